/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/match_path.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum segment_kind { SEGMENT_LITERAL, SEGMENT_NAME, SEGMENT_REST };

/* One place in the trie: all patterns that agree up to here. */
struct place {
    struct edge *literals; /* sorted by their text */
    struct place *name;    /* {name} */
    uint32_t literal_count;
    uint32_t ends; /* node of the pattern that ends here, or NONE */
    uint32_t rest; /* node of the pattern that goes on with *, or NONE */
    uint32_t best; /* most literal segments that a pattern can still add below */
};

struct edge {
    struct weir_str text;
    struct place *to;
};

struct group {
    struct weir_str key;
    struct place *root;
};

struct weir_paths {
    uint32_t count;
    struct group groups[];
};

/* Takes the segment at *at, which ends before a slash or at the end, and steps over the slash.
 * False: the path is over.  "/a/" has the segments "a" and "". */
static bool next_segment(struct weir_str path, size_t *at, struct weir_str *out)
{
    if (*at > path.len)
        return false;
    const char *from = path.ptr + *at;
    const char *slash = *at < path.len ? memchr(from, '/', path.len - *at) : NULL;
    out->ptr = from;
    out->len = slash ? (size_t)(slash - from) : path.len - *at;
    *at += out->len + 1;
    return true;
}

static enum segment_kind kind_of(struct weir_str segment)
{
    if (weir_str_eq(segment, WEIR_STR("*")))
        return SEGMENT_REST;
    return segment.len > 0 && segment.ptr[0] == '{' ? SEGMENT_NAME : SEGMENT_LITERAL;
}

/* NULL: nothing is wrong with the segment. */
static const char *segment_fault(struct weir_str segment, bool is_last)
{
    bool opens = segment.len > 0 && segment.ptr[0] == '{';
    bool closes = segment.len > 0 && segment.ptr[segment.len - 1] == '}';
    bool has_brace = memchr(segment.ptr, '{', segment.len) || memchr(segment.ptr, '}', segment.len);
    if (has_brace && !(opens && closes && segment.len > 2))
        return "{name} must be a whole segment, as in /orders/{id}/pay";
    if (!memchr(segment.ptr, '*', segment.len))
        return NULL;
    if (segment.len != 1 || !is_last)
        return "* may only be the last segment, as in /static/*";
    return NULL;
}

bool weir_path_check(struct weir_str pattern, const char **why, size_t *offset)
{
    struct weir_str segment;
    uint32_t segments = 0;
    *offset = 0;
    if (pattern.len == 0 || pattern.ptr[0] != '/') {
        *why = "a path pattern starts with /";
        return false;
    }
    for (size_t at = 1; next_segment(pattern, &at, &segment);) {
        *offset = (size_t)(segment.ptr - pattern.ptr);
        *why = segment_fault(segment, at > pattern.len);
        if (++segments > WEIR_PATH_SEGMENTS_MAX)
            *why = "it has too many segments";
        if (*why)
            return false;
    }
    return true;
}

static int compare_bytes(struct weir_str a, struct weir_str b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.ptr, b.ptr, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_segments(struct weir_str a, struct weir_str b)
{
    enum segment_kind x = kind_of(a), y = kind_of(b);
    if (x != y)
        return x < y ? -1 : 1;
    return x == SEGMENT_LITERAL ? compare_bytes(a, b) : 0;
}

/* By key, then segment by segment: literals, {name}, *; a shorter pattern before those that go on.
 */
static int by_segments(const void *left, const void *right)
{
    const struct weir_path *a = left, *b = right;
    int order = compare_bytes(a->key, b->key);
    for (size_t i = 1, j = 1; order == 0;) {
        struct weir_str x = {0}, y = {0};
        bool more = next_segment(a->pattern, &i, &x);
        bool others = next_segment(b->pattern, &j, &y);
        if (!more || !others)
            return (int)more - (int)others;
        order = compare_segments(x, y);
    }
    return order;
}

static struct weir_str segment_at(const struct weir_path *path, size_t at)
{
    struct weir_str segment = {.ptr = "", .len = 0};
    (void)next_segment(path->pattern, &at, &segment);
    return segment;
}

/* Patterns that agree in all before byte `at` of the first; texts of {name} differ, so each knows
 * its own byte (depth segments in). */
struct range {
    const struct weir_path *paths;
    size_t *at; /* where the next segment of each starts; > len: it has ended */
    uint32_t count;
};

static struct place *build(struct weir_arena *arena, struct range range);

/* How many at the start of the range share their next segment. */
static uint32_t run_len(struct range range)
{
    struct weir_str first = segment_at(&range.paths[0], range.at[0]);
    uint32_t len = 1;
    while (len < range.count &&
           compare_segments(first, segment_at(&range.paths[len], range.at[len])) == 0)
        len++;
    return len;
}

static uint32_t count_literals(struct range range)
{
    uint32_t count = 0;
    while (range.count > 0) {
        if (kind_of(segment_at(&range.paths[0], range.at[0])) != SEGMENT_LITERAL)
            break;
        uint32_t len = run_len(range);
        range = (struct range){range.paths + len, range.at + len, range.count - len};
        count++;
    }
    return count;
}

/* The run of patterns that go on with one segment, hung below the place. */
static bool add_run(struct weir_arena *arena, struct place *place, struct range run)
{
    struct weir_str segment = segment_at(&run.paths[0], run.at[0]);
    enum segment_kind kind = kind_of(segment);
    if (kind == SEGMENT_REST) {
        place->rest = run.paths[0].node;
        return true;
    }
    for (uint32_t i = 0; i < run.count; i++)
        run.at[i] += segment_at(&run.paths[i], run.at[i]).len + 1;
    struct place *below = build(arena, run);
    if (!below)
        return false;
    uint32_t best = below->best + (kind == SEGMENT_LITERAL);
    place->best = best > place->best ? best : place->best;
    if (kind == SEGMENT_NAME)
        place->name = below;
    else
        place->literals[place->literal_count++] = (struct edge){segment, below};
    return true;
}

/* Recursion is as deep as the longest pattern, WEIR_PATH_SEGMENTS_MAX. */
static struct place *build(struct weir_arena *arena, struct range range)
{
    struct place *place = WEIR_ARENA_NEW(arena, struct place);
    if (!place)
        return NULL;
    place->ends = place->rest = NONE;
    while (range.count > 0 && range.at[0] > range.paths[0].pattern.len) {
        place->ends = range.paths[0].node;
        range = (struct range){range.paths + 1, range.at + 1, range.count - 1};
    }
    place->literals = WEIR_ARENA_ARRAY(arena, count_literals(range), struct edge);
    if (!place->literals)
        return NULL;
    while (range.count > 0) {
        uint32_t len = run_len(range);
        if (!add_run(arena, place, (struct range){range.paths, range.at, len}))
            return NULL;
        range = (struct range){range.paths + len, range.at + len, range.count - len};
    }
    return place;
}

static struct weir_paths *build_groups(struct weir_arena *arena, const struct weir_path *paths,
                                       size_t *at, uint32_t count, uint32_t groups)
{
    struct weir_paths *set = weir_arena_alloc(arena, sizeof(*set) + groups * sizeof(struct group),
                                              _Alignof(struct weir_paths));
    for (uint32_t i = 0; set && i < count;) {
        uint32_t end = i;
        while (end < count && weir_str_eq(paths[i].key, paths[end].key))
            at[end++] = 1;
        struct place *root = build(arena, (struct range){paths + i, at + i, end - i});
        if (!root)
            return NULL;
        set->groups[set->count++] = (struct group){paths[i].key, root};
        i = end;
    }
    return set;
}

struct weir_paths *weir_paths_new(struct weir_arena *arena, struct weir_path *paths, uint32_t count,
                                  uint32_t *twice)
{
    qsort(paths, count, sizeof(*paths), by_segments);
    *twice = UINT32_MAX;
    uint32_t groups = 0;
    for (uint32_t i = 0; i < count; i++) {
        groups += i == 0 || !weir_str_eq(paths[i - 1].key, paths[i].key);
        if (i > 0 && by_segments(&paths[i - 1], &paths[i]) == 0)
            *twice = i;
    }
    size_t *at = calloc(count ? count : 1, sizeof(*at));
    struct weir_paths *set = at ? build_groups(arena, paths, at, count, groups) : NULL;
    if (!set)
        arena->has_failed = true;
    free(at);
    return set;
}

/* The best pattern found so far, and how many of its segments are literal. */
struct search {
    struct weir_str path;
    uint32_t node;
    uint32_t literals;
};

static void offer(struct search *s, uint32_t node, uint32_t literals)
{
    if (node == NONE || (s->node != NONE && literals <= s->literals))
        return;
    s->node = node;
    s->literals = literals;
}

static const struct place *find_literal(const struct place *place, struct weir_str segment)
{
    uint32_t low = 0, high = place->literal_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_bytes(place->literals[middle].text, segment);
        if (order == 0)
            return place->literals[middle].to;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Literals first, so that of equals the one that is literal earlier is found first and stays. */
static void search(struct search *s, const struct place *place, size_t at, uint32_t literals)
{
    struct weir_str segment;
    if (s->node != NONE && literals + place->best <= s->literals)
        return;
    if (!next_segment(s->path, &at, &segment)) {
        offer(s, place->ends, literals);
        return;
    }
    const struct place *literal = find_literal(place, segment);
    if (literal)
        search(s, literal, at, literals + 1);
    if (place->name && segment.len > 0)
        search(s, place->name, at, literals);
    offer(s, place->rest, literals);
}

uint32_t weir_paths_find(const struct weir_paths *paths, const struct weir_entry *entry)
{
    if (entry->value.len == 0 || entry->value.ptr[0] != '/')
        return NONE;
    for (uint32_t i = 0; i < paths->count; i++) {
        if (!weir_str_eq(paths->groups[i].key, entry->key))
            continue;
        struct search s = {.path = entry->value, .node = NONE};
        search(&s, paths->groups[i].root, 1, 0);
        return s.node;
    }
    return NONE;
}
