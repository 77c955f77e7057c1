/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/compile.h"

#include "base/str.h"
#include "rules/lint.h"
#include "rules/match_cidr.h"
#include "rules/match_glob.h"
#include "rules/match_path.h"
#include "rules/match_regex.h"

#include <string.h>

#define PATH_LEN_MAX                                                                               \
    (WEIR_DOMAIN_LEN_MAX + (WEIR_ENTRIES_MAX + 1) * (WEIR_KEY_LEN_MAX + WEIR_VALUE_LEN_MAX + 2))

/* A level while its children are being added. */
struct making {
    struct weir_compiler *c;
    struct weir_children *level;
    struct weir_cidr *cidrs;
    struct weir_path *paths;
    struct weir_compile_place parent;
    uint32_t cidr_count, path_count, wildcard_count, regex_count;
};

enum weir_match_kind weir_compile_kind(const struct weir_draft_descriptor *draft)
{
    bool has_star = memchr(draft->key.ptr, '*', draft->key.len) ||
                    (draft->value.len && memchr(draft->value.ptr, '*', draft->value.len));
    if (draft->match == WEIR_MATCH_UNSAID || draft->match == WEIR_MATCH_WILDCARD)
        return has_star ? WEIR_MATCH_WILDCARD : WEIR_MATCH_EXACT;
    return (enum weir_match_kind)draft->match;
}

/* ---- how much room ---- */

static const struct weir_draft_descriptor *cut_of(const struct weir_draft_descriptor *draft,
                                                  const struct weir_draft_descriptor *above)
{
    bool is_cut = draft->extra && (draft->extra->ipv4.count || draft->extra->ipv6.count);
    return is_cut ? draft : above;
}

static void count_level(struct weir_totals *totals, const struct weir_draft_descriptor *first,
                        const struct weir_draft_descriptor *above)
{
    for (const struct weir_draft_descriptor *d = first; d; d = d->next) {
        const struct weir_draft_descriptor *cut = cut_of(d, above);
        uint64_t overrides = d->extra ? d->extra->override_count : 0;
        totals->nodes++;
        totals->rules += d->limits != NULL;
        uint64_t own = d->limit_count * weir_compile_tiers(cut);
        totals->limits += (1 + overrides) * own;
        totals->apart += ((own > 1) + overrides) * own;
        totals->overrides += overrides;
        totals->ids += d->extra && d->extra->id.len > 0;
        count_level(totals, d->children, cut);
    }
}

static struct weir_totals count_all(const struct weir_draft *draft)
{
    struct weir_totals totals = {0};
    for (const struct weir_draft_root *root = draft->roots; root; root = root->next) {
        totals.domains++;
        totals.nodes++;
        count_level(&totals, root->descriptors, NULL);
        for (const struct weir_draft_attribute *a = root->attributes; a; a = a->next) {
            totals.attributes++;
            totals.map_rows += a->map_count;
        }
    }
    totals.overrides++; /* room to try one that turns out to be there already */
    totals.map_rows++;
    return totals;
}

static bool make_room(struct weir_compiler *c, const struct weir_totals *totals,
                      const struct weir_hash_key *key)
{
    struct weir_rules *rules = c->rules;
    struct weir_arena *arena = &rules->arena;
    uint64_t keys = totals->nodes + totals->overrides + totals->map_rows + totals->ids;
    rules->nodes = WEIR_ARENA_ARRAY(arena, totals->nodes, struct weir_node);
    rules->rules = WEIR_ARENA_ARRAY(arena, totals->rules, struct weir_rule);
    rules->limits = WEIR_ARENA_ARRAY(arena, totals->apart, struct weir_rule_limit);
    rules->numbered = WEIR_ARENA_ARRAY(arena, totals->limits, struct weir_rule_limit *);
    rules->domains = WEIR_ARENA_ARRAY(arena, totals->domains, struct weir_domain);
    rules->overrides = WEIR_ARENA_ARRAY(arena, totals->overrides, struct weir_override_row);
    rules->map_rows = WEIR_ARENA_ARRAY(arena, totals->map_rows, struct weir_map_row);
    rules->ids = WEIR_ARENA_ARRAY(arena, totals->ids, struct weir_id_row);
    c->marks = WEIR_ARENA_ARRAY(&c->draft->arena, totals->nodes, struct weir_mark);
    c->id_marks = WEIR_ARENA_ARRAY(&c->draft->arena, totals->ids, struct weir_mark);
    if (!weir_dict_init(&rules->dict, arena, keys, key))
        return false;
    return !arena->has_failed && !c->draft->arena.has_failed;
}

/* ---- one level ---- */

static void report_twice(struct weir_compiler *c, struct weir_mark at, uint32_t other)
{
    struct weir_mark first = c->marks[other];
    weir_report_error(
        c->report, at, "duplicate descriptor composite key '%.*s'; the first is at %s:%u",
        WEIR_STR_ARG(weir_buf_str(&c->path)), c->report->files[first.file], first.line);
}

static void report_bad_value(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                             const char *kind, size_t offset, const char *why)
{
    struct weir_mark at = draft->value_at;
    at.column += (uint32_t)offset;
    weir_report_error(c->report, at, "%s '%.*s' is not valid: %s", kind,
                      (int)(draft->value.len < 200 ? draft->value.len : 200), draft->value.ptr,
                      why);
}

static void add_wildcard(struct making *m, uint32_t node, struct weir_mark at)
{
    if (m->wildcard_count++ == WEIR_WILDCARDS_MAX)
        weir_report_error(m->c->report, at, "more than %d wildcards at one level",
                          WEIR_WILDCARDS_MAX);
    struct weir_pattern *pattern = &m->level->patterns[m->level->pattern_count++];
    pattern->node = node;
    weir_glob_init(pattern, weir_node_text(&m->c->rules->nodes[node]));
}

static void add_regex(struct making *m, const struct weir_draft_descriptor *draft, uint32_t node)
{
    struct weir_regex *regex = NULL;
    char why[256] = "";
    size_t offset = 0;
    int err = 0;
    if (m->regex_count++ == WEIR_REGEXES_MAX)
        weir_report_error(m->c->report, draft->at, "more than %d regexes at one level",
                          WEIR_REGEXES_MAX);
    if (m->regex_count <= WEIR_REGEXES_MAX)
        err = weir_regex_new(&regex, draft->value, why, sizeof(why), &offset);
    if (err == WEIR_ERR_NOMEM)
        m->c->rules->arena.has_failed = true;
    else if (err)
        report_bad_value(m->c, draft, "regex", offset, why);
    if (!regex)
        return;
    weir_regex_link(regex, &m->c->rules->regexes);
    m->level->patterns[m->level->pattern_count++] =
        (struct weir_pattern){.node = node, .regex = regex};
}

static void add_cidr(struct making *m, const struct weir_draft_descriptor *draft, uint32_t node)
{
    struct weir_cidr *cidr = &m->cidrs[m->cidr_count];
    const char *why = NULL;
    bool is_exact = true;
    if (!weir_cidr_parse(cidr, draft->value, &why, &is_exact)) {
        report_bad_value(m->c, draft, "network", 0, why);
        return;
    }
    if (!is_exact)
        weir_report_warning(m->c->report, draft->value_at,
                            "the address has bits beyond its prefix; they are ignored");
    cidr->node = node;
    cidr->key = weir_node_key(&m->c->rules->nodes[node]);
    m->cidr_count++;
}

static void add_path(struct making *m, const struct weir_draft_descriptor *draft, uint32_t node)
{
    const char *why = NULL;
    size_t offset = 0;
    if (!weir_path_check(draft->value, &why, &offset)) {
        report_bad_value(m->c, draft, "path pattern", offset, why);
        return;
    }
    const struct weir_node *n = &m->c->rules->nodes[node];
    m->paths[m->path_count++] = (struct weir_path){weir_node_key(n), weir_node_value(n), node};
}

/* Where a request finds the node. */
static void add_to_level(struct making *m, const struct weir_draft_descriptor *draft, uint32_t node)
{
    struct weir_rules *rules = m->c->rules;
    enum weir_match_kind kind = (enum weir_match_kind)rules->nodes[node].kind;
    uint32_t other = WEIR_NONE;
    if (kind == WEIR_MATCH_EXACT || kind == WEIR_MATCH_WILDCARD) {
        struct weir_str text = weir_node_text(&rules->nodes[node]);
        other = weir_dict_add(rules, WEIR_DICT_NODE, node, m->parent.hash);
        m->level->lengths |= UINT64_C(1) << (text.len & 63);
        m->level->has_underscore |= memchr(text.ptr, '_', text.len) != NULL;
    } else if (kind == WEIR_MATCH_REGEX) {
        other = weir_dict_add(rules, WEIR_DICT_REGEX, node, m->parent.hash);
    }
    if (other != WEIR_NONE) {
        report_twice(m->c, draft->at, other);
        return;
    }
    if (kind == WEIR_MATCH_WILDCARD)
        add_wildcard(m, node, draft->at);
    else if (kind == WEIR_MATCH_REGEX)
        add_regex(m, draft, node);
    else if (kind == WEIR_MATCH_CIDR)
        add_cidr(m, draft, node);
    else if (kind == WEIR_MATCH_PATH)
        add_path(m, draft, node);
}

/* Sharing is the pattern's default where a value of its own means little (each /orders/{id}). */
static bool is_shared(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                      enum weir_match_kind kind, bool is_cut)
{
    bool is_pattern = kind != WEIR_MATCH_EXACT && kind != WEIR_MATCH_WILDCARD;
    bool is_asked = draft->has_share && draft->is_shared;
    if (is_asked && kind == WEIR_MATCH_EXACT)
        weir_report_error(c->report, draft->share_at,
                          "share_threshold can only be used with wildcard values (containing '*'), "
                          "but found key '%.*s'",
                          WEIR_STR_ARG(weir_buf_str(&c->path)));
    if (is_asked && is_cut)
        weir_report_error(c->report, draft->share_at,
                          "share_threshold and a prefix exclude each other: addresses are counted "
                          "together, or by prefix");
    return draft->has_share ? draft->is_shared : is_pattern && !is_cut;
}

static void check_cut(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                      const struct weir_draft_descriptor *above)
{
    const struct weir_draft_tiers *ipv4 = &draft->extra->ipv4, *ipv6 = &draft->extra->ipv6;
    struct weir_mark at = ipv6->count ? ipv6->at : ipv4->at;
    if (above)
        weir_report_error(c->report, at, "prefixes may be given at one level of a chain only");
    for (uint32_t i = 0; i < ipv4->count && i < ipv6->count; i++)
        if (ipv4->tier[i].times != ipv6->tier[i].times)
            weir_report_error(c->report, at,
                              "tier %u of ipv4_prefix and of ipv6_prefix must have the same times",
                              i + 1);
}

static void check_needs_limit(struct weir_compiler *c, const struct weir_draft_descriptor *draft)
{
    if (draft->limits || !draft->extra)
        return;
    if (draft->extra->overrides)
        weir_report_error(c->report, draft->extra->overrides_at,
                          "'overrides' need a rate_limit beside them");
    if (draft->extra->id.len)
        weir_report_warning(c->report, draft->extra->id_at,
                            "'id' has no effect on a descriptor without rate_limit");
}

/* Writes "key" or "key_value" behind the path; the whole is the rule's id unless it has another. */
static size_t push_path(struct weir_compiler *c, const struct weir_draft_descriptor *draft)
{
    size_t outer = c->path.len;
    weir_buf_add_char(&c->path, '.');
    weir_buf_add(&c->path, draft->key);
    if (draft->value.len) {
        weir_buf_add_char(&c->path, '_');
        weir_buf_add(&c->path, draft->value);
    }
    if (c->path.has_failed)
        c->rules->arena.has_failed = true;
    return outer;
}

/* The node's text is the end of its id: one copy serves both. */
static struct weir_str set_text(struct weir_compiler *c, struct weir_node *node, size_t outer,
                                const struct weir_draft_descriptor *draft)
{
    struct weir_str path = weir_buf_str(&c->path);
    bool is_whole = draft->limits != NULL;
    size_t skip = outer + 1;
    struct weir_str own = {.ptr = path.ptr + skip, .len = path.len - skip};
    struct weir_str id = weir_arena_str(&c->rules->arena, is_whole ? path : own);
    if (id.len == 0)
        return id;
    node->text = is_whole ? id.ptr + skip : id.ptr;
    node->text_len = (uint16_t)own.len;
    node->key_len = (uint16_t)draft->key.len;
    return id;
}

static void add_id(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                   uint32_t rule)
{
    uint32_t index = c->rules->id_count;
    uint32_t domain = (uint32_t)(c->domain - c->rules->domains);
    c->rules->ids[index] = (struct weir_id_row){domain, rule};
    c->id_marks[index] = draft->extra->id_at;
    uint32_t other = weir_dict_add(c->rules, WEIR_DICT_ID, index, domain);
    if (other == WEIR_NONE) {
        c->rules->id_count++;
        return;
    }
    weir_report_error(c->report, draft->extra->id_at, "id '%.*s' is taken already, at %s:%u",
                      WEIR_STR_ARG(draft->extra->id), c->report->files[c->id_marks[other].file],
                      c->id_marks[other].line);
}

static void add_rule(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                     const struct weir_draft_descriptor *cut, uint32_t node, struct weir_str id)
{
    bool is_named = draft->extra && draft->extra->id.len > 0;
    if (is_named)
        id = weir_arena_str(&c->rules->arena, draft->extra->id);
    weir_compile_rule(c, draft, cut, node, id);
    if (is_named)
        add_id(c, draft, c->rules->nodes[node].rule);
}

static void add_child(struct making *m, const struct weir_draft_descriptor *draft,
                      const struct weir_draft_descriptor *above)
{
    struct weir_compiler *c = m->c;
    uint32_t index = c->rules->node_count++;
    struct weir_node *node = &c->rules->nodes[index];
    const struct weir_draft_descriptor *cut = cut_of(draft, above);
    bool is_cut = cut == draft;
    size_t outer = push_path(c, draft);
    struct weir_str id = set_text(c, node, outer, draft);
    if (id.len == 0)
        return; /* out of memory; the arena remembers */
    node->parent = m->parent.node;
    node->rule = WEIR_NONE;
    node->kind = (uint8_t)weir_compile_kind(draft);
    node->is_cut = is_cut;
    node->is_shared = is_shared(c, draft, (enum weir_match_kind)node->kind, is_cut);
    node->has_value_to_metric = draft->has_value_to_metric;
    c->marks[index] = draft->at;
    if (is_cut)
        check_cut(c, draft, above);
    check_needs_limit(c, draft);
    if (draft->value.len == 0 && draft->is_match_said && draft->match != WEIR_MATCH_EXACT)
        weir_report_error(c->report, draft->at, "'match' needs a value to match");
    else
        add_to_level(m, draft, index);
    if (draft->limits)
        add_rule(c, draft, cut, index, id);
    if (draft->children) {
        uint64_t hash = weir_node_hash(c->rules, index, m->parent.hash);
        struct weir_compile_place place = {index, m->parent.depth + 1, hash};
        weir_compile_level(c, place, draft->children, cut);
    }
    weir_buf_cut(&c->path, outer);
}

static bool open_level(struct making *m, const struct weir_draft_descriptor *first)
{
    struct weir_arena *arena = &m->c->rules->arena;
    uint32_t counts[WEIR_MATCH_UNSAID] = {0};
    for (const struct weir_draft_descriptor *d = first; d; d = d->next)
        counts[weir_compile_kind(d)]++;
    uint32_t patterns = counts[WEIR_MATCH_WILDCARD] + counts[WEIR_MATCH_REGEX];
    m->level = WEIR_ARENA_NEW(arena, struct weir_children);
    if (patterns && m->level)
        m->level->patterns = WEIR_ARENA_ARRAY(arena, patterns, struct weir_pattern);
    if (counts[WEIR_MATCH_CIDR])
        m->cidrs = WEIR_ARENA_ARRAY(arena, counts[WEIR_MATCH_CIDR], struct weir_cidr);
    if (counts[WEIR_MATCH_PATH])
        m->paths = WEIR_ARENA_ARRAY(&m->c->draft->arena, counts[WEIR_MATCH_PATH], struct weir_path);
    return !arena->has_failed && !m->c->draft->arena.has_failed;
}

static void close_level(struct making *m)
{
    struct weir_compiler *c = m->c;
    uint32_t twice;
    if (m->cidr_count) {
        m->level->cidrs = weir_cidrs_new(&c->rules->arena, m->cidrs, m->cidr_count, &twice);
        if (twice != UINT32_MAX)
            weir_report_error(c->report, c->marks[m->cidrs[twice].node],
                              "this network is there twice at one level; the other is at line %u",
                              c->marks[m->cidrs[twice - 1].node].line);
    }
    if (m->path_count) {
        m->level->paths = weir_paths_new(&c->rules->arena, m->paths, m->path_count, &twice);
        if (twice != UINT32_MAX)
            weir_report_error(c->report, c->marks[m->paths[twice].node],
                              "this path pattern matches the same as the one at line %u",
                              c->marks[m->paths[twice - 1].node].line);
    }
}

/* What requests may meet at this depth, for guesses. */
static void note_depth(struct weir_domain *domain, uint32_t depth,
                       const struct weir_children *level)
{
    bool has_special = level->pattern_count || level->cidrs || level->paths;
    if (depth >= WEIR_GUESSES_MAX)
        return;
    domain->lengths[depth] |= level->lengths;
    domain->underscore_depths |= (uint8_t)((unsigned)level->has_underscore << depth);
    domain->special_depths |= (uint8_t)((unsigned)has_special << depth);
}

void weir_compile_level(struct weir_compiler *c, struct weir_compile_place parent,
                        const struct weir_draft_descriptor *first,
                        const struct weir_draft_descriptor *cut)
{
    struct making m = {.c = c, .parent = parent};
    if (!first || c->rules->arena.has_failed || !open_level(&m, first))
        return;
    c->rules->nodes[parent.node].level = m.level;
    for (const struct weir_draft_descriptor *d = first; d; d = d->next)
        add_child(&m, d, cut);
    close_level(&m);
    note_depth(c->domain, parent.depth, m.level);
}

bool weir_compile(struct weir_rules *rules, struct weir_draft *draft, struct weir_report *report,
                  bool merge_domains, const struct weir_hash_key *key)
{
    struct weir_compiler c = {.rules = rules, .draft = draft, .report = report};
    struct weir_totals totals = count_all(draft);
    if (totals.rules > WEIR_RULES_MAX || totals.limits > 4 * (uint64_t)WEIR_RULES_MAX) {
        weir_report_error(
            report, (struct weir_mark){0},
            "%llu rules with %llu limits are more than one set can have (%d rules, %d "
            "limits)",
            (unsigned long long)totals.rules, (unsigned long long)totals.limits, WEIR_RULES_MAX,
            4 * WEIR_RULES_MAX);
        return true;
    }
    if (totals.nodes > WEIR_DICT_INDEX_MAX || totals.overrides > WEIR_DICT_INDEX_MAX ||
        totals.map_rows > WEIR_DICT_INDEX_MAX) {
        weir_report_error(report, (struct weir_mark){0},
                          "more descriptors, overrides or lines of maps than one set can have (%u)",
                          WEIR_DICT_INDEX_MAX);
        return true;
    }
    if (!make_room(&c, &totals, key))
        return false;
    weir_buf_init(&c.path, PATH_LEN_MAX);
    weir_compile_domains(&c, merge_domains);
    weir_buf_fini(&c.path);
    if (rules->dict.has_collided)
        weir_report_error(report, (struct weir_mark){0},
                          "two descriptors came to one hash by chance; load the rules again");
    weir_dict_seal(rules);
    return !rules->arena.has_failed && !draft->arena.has_failed;
}
