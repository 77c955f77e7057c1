/* `metadata:` as JSON text.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/maxima.h"
#include "base/str.h"
#include "rules/parse.h"

#include <math.h>
#include <stdio.h>

struct writer {
    struct weir_parser *p;
    struct weir_buf out;
    bool has_failed;
};

static void fail(struct writer *w, const struct weir_yaml *node, const char *why)
{
    if (!w->has_failed)
        weir_report_error(w->p->report, weir_parse_mark(w->p, node), "error parsing metadata: %s",
                          why);
    w->has_failed = true;
}

static void write_str(struct writer *w, struct weir_str text)
{
    weir_buf_add_char(&w->out, '"');
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        char escape[8];
        if (c == '"' || c == '\\') {
            weir_buf_add_char(&w->out, '\\');
            weir_buf_add_char(&w->out, c);
        } else if ((unsigned char)c < 0x20) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)(unsigned char)c);
            weir_buf_add(&w->out, weir_str_of(escape));
        } else {
            weir_buf_add_char(&w->out, c);
        }
    }
    weir_buf_add_char(&w->out, '"');
}

static void write_int(struct writer *w, struct weir_str text)
{
    bool is_negative;
    uint64_t magnitude;
    char number[32];
    if (!weir_scalar_int(text, &is_negative, &magnitude))
        return;
    snprintf(number, sizeof(number), "%s%llu", is_negative ? "-" : "",
             (unsigned long long)magnitude);
    weir_buf_add(&w->out, weir_str_of(number));
}

/* The shortest of 15, 16 or 17 digits that reads back as the same number. */
static void write_float(struct writer *w, const struct weir_yaml *node)
{
    double number = 0;
    char text[40];
    if (!weir_scalar_float(node->text, &number) || !isfinite(number)) {
        fail(w, node, "JSON has no such number");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        double again = 0;
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if (weir_scalar_float(weir_str_of(text), &again) && !(again < number || again > number))
            break;
    }
    weir_buf_add(&w->out, weir_str_of(text));
}

static void write_scalar(struct writer *w, const struct weir_yaml *node)
{
    bool truth = false;
    switch (weir_scalar_kind(node)) {
    case WEIR_SCALAR_NULL:
        weir_buf_add(&w->out, WEIR_STR("null"));
        break;
    case WEIR_SCALAR_BOOL:
        (void)weir_scalar_bool(node->text, &truth);
        weir_buf_add(&w->out, truth ? WEIR_STR("true") : WEIR_STR("false"));
        break;
    case WEIR_SCALAR_INT:
        write_int(w, node->text);
        break;
    case WEIR_SCALAR_FLOAT:
        write_float(w, node);
        break;
    case WEIR_SCALAR_STR:
    default:
        write_str(w, node->text);
        break;
    }
}

static void write_node(struct writer *w, const struct weir_yaml *node);

static void write_map(struct writer *w, const struct weir_yaml *map)
{
    weir_buf_add_char(&w->out, '{');
    for (const struct weir_yaml *k = map->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        if (k != map->first)
            weir_buf_add_char(&w->out, ',');
        if (key->kind != WEIR_YAML_SCALAR) {
            fail(w, key, "a key must be a text");
            return;
        }
        write_str(w, key->text);
        weir_buf_add_char(&w->out, ':');
        write_node(w, weir_yaml_follow(k->next));
        if (w->has_failed || w->out.has_failed)
            return;
    }
    weir_buf_add_char(&w->out, '}');
}

/* Recursion is as deep as the YAML, and that is bounded; so is the text, whatever aliases
 * multiply. */
static void write_node(struct writer *w, const struct weir_yaml *node)
{
    if (node->kind == WEIR_YAML_SCALAR) {
        write_scalar(w, node);
        return;
    }
    if (node->kind == WEIR_YAML_MAP) {
        write_map(w, node);
        return;
    }
    weir_buf_add_char(&w->out, '[');
    for (const struct weir_yaml *i = node->first; i; i = i->next) {
        if (i != node->first)
            weir_buf_add_char(&w->out, ',');
        write_node(w, weir_yaml_follow(i));
        if (w->has_failed || w->out.has_failed)
            return;
    }
    weir_buf_add_char(&w->out, ']');
}

bool weir_parse_json(struct weir_parser *p, const struct weir_yaml *node, struct weir_str *out)
{
    struct writer w = {.p = p};
    weir_buf_init(&w.out, WEIR_METADATA_LEN_MAX);
    write_node(&w, node);
    if (w.out.has_failed)
        fail(&w, node, "it is too long");
    if (!w.has_failed)
        *out = weir_arena_str(p->arena, weir_buf_str(&w.out));
    weir_buf_fini(&w.out);
    return !w.has_failed;
}
