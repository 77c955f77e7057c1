/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/yaml_node.h"

#include "base/hash.h"
#include "base/str.h"

#include <yaml.h>

#define ANCHOR_ROWS 1024u

/* The last node that bore a name; earlier ones are hidden behind it, as YAML says. */
struct anchor {
    struct weir_str name;
    const struct weir_yaml *node;
    struct anchor *next;
};

/* One open collection. */
struct frame {
    struct weir_yaml *node;
    struct weir_yaml *last;
};

struct reader {
    yaml_parser_t parser;
    struct weir_arena *arena;
    struct weir_report *report;
    uint32_t file;
    struct anchor **anchors; /* ANCHOR_ROWS chains, from the first anchor on */
    uint32_t depth;
    struct weir_yaml *root;
    struct frame frames[WEIR_YAML_DEPTH_MAX];
    bool has_failed;
};

static struct weir_mark mark_of(const struct reader *r, yaml_mark_t at)
{
    return (struct weir_mark){r->file, (uint32_t)at.line + 1, (uint32_t)at.column + 1};
}

static uint32_t row_of(struct weir_str name)
{
    static const struct weir_hash_key key = {0, 0}; /* rules are trusted: nobody floods this */
    return (uint32_t)weir_siphash13(&key, name.ptr, name.len) % ANCHOR_ROWS;
}

static const struct weir_yaml *find_anchor(const struct reader *r, struct weir_str name)
{
    if (!r->anchors)
        return NULL;
    for (const struct anchor *a = r->anchors[row_of(name)]; a; a = a->next)
        if (weir_str_eq(a->name, name))
            return a->node;
    return NULL;
}

static void add_anchor(struct reader *r, const yaml_char_t *name, const struct weir_yaml *node)
{
    if (!name)
        return;
    if (!r->anchors)
        r->anchors = WEIR_ARENA_ARRAY(r->arena, ANCHOR_ROWS, struct anchor *);
    struct anchor *anchor = WEIR_ARENA_NEW(r->arena, struct anchor);
    if (!r->anchors || !anchor)
        return; /* the arena remembers */
    anchor->name = weir_arena_str(r->arena, weir_str_of((const char *)name));
    anchor->node = node;
    struct anchor **row = &r->anchors[row_of(anchor->name)];
    anchor->next = *row;
    *row = anchor;
}

static void fail(struct reader *r, yaml_mark_t at, const char *text)
{
    weir_report_error(r->report, mark_of(r, at), "%s", text);
    r->has_failed = true;
}

static struct weir_yaml *new_node(struct reader *r, enum weir_yaml_kind kind, yaml_mark_t at)
{
    struct weir_yaml *node = WEIR_ARENA_NEW(r->arena, struct weir_yaml);
    if (!node) {
        r->has_failed = true;
        return NULL;
    }
    node->kind = (uint8_t)kind;
    node->line = (uint32_t)at.line + 1;
    node->column = (uint32_t)at.column + 1;
    node->weight = 1;
    node->height = 1;
    return node;
}

/* Appends to the open collection, or makes the root. */
static void attach(struct reader *r, struct weir_yaml *node)
{
    if (r->depth == 0) {
        r->root = node;
        return;
    }
    struct frame *frame = &r->frames[r->depth - 1];
    if (frame->last)
        frame->last->next = node;
    else
        frame->node->first = node;
    frame->last = node;
}

/* A finished child makes its collection heavier and perhaps higher. */
static void weigh(struct reader *r, const struct weir_yaml *child, yaml_mark_t at)
{
    if (r->depth == 0)
        return;
    struct weir_yaml *parent = r->frames[r->depth - 1].node;
    parent->weight += child->weight; /* both at most WEIR_YAML_NODES_MAX */
    if (parent->weight > WEIR_YAML_NODES_MAX)
        fail(r, at, "too many nodes once aliases are followed");
    if (child->height >= parent->height)
        parent->height = (uint8_t)(child->height + 1);
    if (r->depth + child->height > WEIR_YAML_DEPTH_MAX)
        fail(r, at, "nested too deeply");
}

static void on_alias(struct reader *r, const yaml_event_t *event)
{
    struct weir_str name = weir_str_of((const char *)event->data.alias.anchor);
    const struct weir_yaml *target = find_anchor(r, name);
    struct weir_mark at = mark_of(r, event->start_mark);
    if (!target || target->is_open) {
        weir_report_error(r->report, at,
                          target ? "anchor '%.*s' contains itself" : "unknown anchor '%.*s'",
                          WEIR_STR_ARG(name));
        r->has_failed = true;
        return;
    }
    struct weir_yaml *node = new_node(r, WEIR_YAML_ALIAS, event->start_mark);
    if (!node)
        return;
    node->target = target;
    node->weight = target->weight;
    node->height = target->height;
    attach(r, node);
    weigh(r, node, event->start_mark);
}

static void on_scalar(struct reader *r, const yaml_event_t *event)
{
    struct weir_yaml *node = new_node(r, WEIR_YAML_SCALAR, event->start_mark);
    if (!node)
        return;
    const char *tag = (const char *)event->data.scalar.tag;
    bool is_text = tag && (strcmp(tag, "!") == 0 || strcmp(tag, YAML_STR_TAG) == 0);
    node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !is_text;
    node->text =
        weir_arena_str(r->arena, (struct weir_str){.ptr = (const char *)event->data.scalar.value,
                                                   .len = event->data.scalar.length});
    add_anchor(r, event->data.scalar.anchor, node);
    attach(r, node);
    weigh(r, node, event->start_mark);
}

static void on_open(struct reader *r, const yaml_event_t *event)
{
    if (r->depth == WEIR_YAML_DEPTH_MAX) {
        fail(r, event->start_mark, "nested too deeply");
        return;
    }
    bool is_map = event->type == YAML_MAPPING_START_EVENT;
    struct weir_yaml *node =
        new_node(r, is_map ? WEIR_YAML_MAP : WEIR_YAML_LIST, event->start_mark);
    if (!node)
        return;
    node->is_open = true;
    add_anchor(r, is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor,
               node);
    attach(r, node);
    r->frames[r->depth++] = (struct frame){.node = node};
}

static void on_close(struct reader *r, const yaml_event_t *event)
{
    struct weir_yaml *node = r->frames[--r->depth].node;
    node->is_open = false;
    weigh(r, node, event->start_mark);
}

static void on_second_document(struct reader *r, const yaml_event_t *event)
{
    weir_report_warning(r->report, mark_of(r, event->start_mark),
                        "only the first document of a file is read; what follows '---' is not");
}

/* libyaml says where, but for bad bytes only as an offset. */
static void on_error(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) {
        r->arena->has_failed = true;
        return;
    }
    const char *context = p->context ? p->context : "";
    weir_report_error(r->report, mark_of(r, p->problem_mark),
                      WEIR_NOT_LOADED "not valid YAML: %s%s%s",
                      p->problem ? p->problem : "unreadable", *context ? " " : "", context);
}

/* Handles one event; false at the end of the first document, or of all patience. */
static bool on_event(struct reader *r, const yaml_event_t *event, bool *is_done)
{
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        on_alias(r, event);
        break;
    case YAML_SCALAR_EVENT:
        on_scalar(r, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        on_open(r, event);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        on_close(r, event);
        break;
    case YAML_DOCUMENT_START_EVENT:
        if (*is_done) {
            on_second_document(r, event);
            return false;
        }
        break;
    case YAML_DOCUMENT_END_EVENT:
        *is_done = true;
        break;
    case YAML_STREAM_END_EVENT:
        return false;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    default:
        break;
    }
    return !r->has_failed;
}

static void read_events(struct reader *r)
{
    bool is_done = false;
    bool goes_on = true;
    while (goes_on) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) {
            if (is_done) /* whatever follows the first document is not read */
                return;
            on_error(r);
            r->has_failed = true;
            return;
        }
        goes_on = on_event(r, &event, &is_done);
        yaml_event_delete(&event);
    }
}

bool weir_yaml_parse(const struct weir_yaml **out, struct weir_arena *arena, struct weir_str text,
                     struct weir_report *report, uint32_t file)
{
    struct reader *r = WEIR_ARENA_NEW(arena, struct reader);
    if (!r)
        return false;
    r->arena = arena;
    r->report = report;
    r->file = file;
    if (!yaml_parser_initialize(&r->parser)) {
        arena->has_failed = true;
        return false;
    }
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text.ptr, text.len);
    read_events(r);
    yaml_parser_delete(&r->parser);
    if (r->has_failed || arena->has_failed)
        return false;
    *out = r->root;
    return true;
}
