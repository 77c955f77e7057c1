/* json_read.h - reads JSON step by step, without a tree: the reader says what it expects.
 *
 *     for (bool more = weir_json_open(&json, '{'); more; more = weir_json_more(&json, '}')) {
 *         if (weir_json_name(&json, &name)) ...     then the member's value, by its kind
 *     }
 *     if (!weir_json_end(&json)) ...                json.fault says why
 *
 * The first fault stays, and with it every further step fails: so a caller may look once, at the
 * end of a stretch.  Nothing skips a value, for nobody here takes what he does not know.
 *
 * Strict, as RFC 8259: valid UTF-8, no lone surrogates, no control bytes, no leading zeroes.
 * Strings without escapes are not copied: they lie in the text.  Others are written into the space
 * that the caller gives; as much as the text is long is always enough.
 *
 * Purity: no I/O, no allocation.  Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_JSON_READ_H
#define WEIR_PROTO_JSON_READ_H

#include <stdbool.h>
#include <weir/types.h>

struct weir_json {
    const char *at, *end;
    char *space, *space_end;
    const char *fault; /* NULL: none so far */
    bool is_short_of_space;
};

enum weir_json_kind {
    WEIR_JSON_NONE, /* nothing more, or no JSON */
    WEIR_JSON_OBJECT,
    WEIR_JSON_ARRAY,
    WEIR_JSON_STRING,
    WEIR_JSON_NUMBER,
    WEIR_JSON_TRUE,
    WEIR_JSON_FALSE,
    WEIR_JSON_NULL,
};

static inline struct weir_json weir_json_of(struct weir_str text, char *space, size_t space_len)
{
    const char *at = text.len > 0 ? text.ptr : ""; /* which may be NULL otherwise */
    return (struct weir_json){
        .at = at, .end = at + text.len, .space = space, .space_end = space + space_len};
}

/* What comes next; it is not read yet. */
enum weir_json_kind weir_json_kind(struct weir_json *json);

/* Reads '{' or '[': whether there is a first member.  Then, behind each, whether there is another;
 * `close` is '}' or ']'. */
bool weir_json_open(struct weir_json *json, char open);
bool weir_json_more(struct weir_json *json, char close);

/* False: a fault.  A number is given as it is written. */
bool weir_json_name(struct weir_json *json, struct weir_str *out); /* and the colon behind it */
bool weir_json_string(struct weir_json *json, struct weir_str *out);
bool weir_json_number(struct weir_json *json, struct weir_str *out);
bool weir_json_word(struct weir_json *json); /* true, false, null: after weir_json_kind() */
bool weir_json_end(struct weir_json *json);  /* nothing but blanks is left */

#endif
