/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "rules/match_regex.h"

#include "base/str.h"

#include <pcre2.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 100000u /* of one match: about a millisecond */
#define HEAP_KIB_MAX 24u  /* of the interpreter, where there is no JIT; it lies in a scratch */
#define SCRATCH_BYTES 32768u
#define TOLD_AGAIN 10 /* when it has given up so many times as often as when it was told last */

struct weir_regex {
    pcre2_code *code;
    pcre2_match_context *bounds; /* read only while matching, so one serves all threads */
    struct weir_regex *next;
    uint32_t len_min; /* of what can match, in characters */
    int first, last;  /* bytes that must be there, or -1 */
    atomic_ulong gave_up;
    unsigned long told;                 /* how often it had given up when somebody was last told */
    char pattern[WEIR_REGEX_SHOWN_LEN]; /* its beginning, to be told */
};

/* Memory for one match, on the stack of whoever matches. */
struct scratch {
    size_t used;
    _Alignas(16) unsigned char bytes[SCRATCH_BYTES];
};

static void *scratch_alloc(size_t bytes, void *ctx)
{
    struct scratch *scratch = ctx;
    size_t need = (bytes + 15) & ~(size_t)15;
    if (need < bytes || need > sizeof(scratch->bytes) - scratch->used)
        return NULL;
    void *at = scratch->bytes + scratch->used;
    scratch->used += need;
    return at;
}

static void scratch_free(void *at, void *ctx)
{
    (void)at;
    (void)ctx;
}

/* A byte that must be there, or -1. */
static int required_byte(const pcre2_code *code, uint32_t type_of, uint32_t unit_of)
{
    uint32_t type = 0, unit = 0;
    if (pcre2_pattern_info(code, type_of, &type) != 0 || type != 1 ||
        pcre2_pattern_info(code, unit_of, &unit) != 0)
        return -1;
    return (int)unit;
}

/* What PCRE2 knows of the pattern and we can look at before asking it.  Groups with options, such
 * as (?i), may make a byte stand for another too, and it does not tell which; then nothing is
 * known. */
static void learn(struct weir_regex *regex, struct weir_str pattern)
{
    bool has_options =
        memmem(pattern.ptr, pattern.len, "(?", 2) || memmem(pattern.ptr, pattern.len, "(*", 2);
    (void)pcre2_pattern_info(regex->code, PCRE2_INFO_MINLENGTH, &regex->len_min);
    regex->first = regex->last = -1;
    if (has_options)
        return;
    regex->first = required_byte(regex->code, PCRE2_INFO_FIRSTCODETYPE, PCRE2_INFO_FIRSTCODEUNIT);
    regex->last = required_byte(regex->code, PCRE2_INFO_LASTCODETYPE, PCRE2_INFO_LASTCODEUNIT);
}

static void regex_free(struct weir_regex *regex)
{
    if (!regex)
        return;
    pcre2_match_context_free(regex->bounds);
    pcre2_code_free(regex->code);
    free(regex);
}

int weir_regex_new(struct weir_regex **out, struct weir_str pattern, char *why, size_t why_len,
                   size_t *offset)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    struct weir_regex *regex = calloc(1, sizeof(*regex));
    if (!regex)
        return WEIR_ERR_NOMEM;
    regex->code = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len,
                                PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C,
                                &error, &at, NULL);
    if (!regex->code) {
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, why_len);
        *offset = at;
        regex_free(regex);
        return WEIR_ERR_RULES;
    }
    /* Where there is no JIT the interpreter does it, slower. */
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    regex->bounds = pcre2_match_context_create(NULL);
    if (!regex->bounds) {
        regex_free(regex);
        return WEIR_ERR_NOMEM;
    }
    pcre2_set_match_limit(regex->bounds, STEPS_MAX);
    pcre2_set_heap_limit(regex->bounds, HEAP_KIB_MAX);
    learn(regex, pattern);
    snprintf(regex->pattern, sizeof(regex->pattern), "%.*s", WEIR_STR_ARG(pattern));
    *out = regex;
    return 0;
}

static bool may_match(const struct weir_regex *regex, struct weir_str text)
{
    if (text.len < regex->len_min) /* a character has at least one byte */
        return false;
    if (regex->first >= 0 && !memchr(text.ptr, regex->first, text.len))
        return false;
    return regex->last < 0 || memchr(text.ptr, regex->last, text.len);
}

bool weir_regex_matches(struct weir_regex *regex, struct weir_str text)
{
    if (!text.ptr)
        text.ptr = "";
    if (!may_match(regex, text))
        return false;
    struct scratch scratch;
    scratch.used = 0;
    pcre2_general_context *memory =
        pcre2_general_context_create(scratch_alloc, scratch_free, &scratch);
    pcre2_match_data *data = memory ? pcre2_match_data_create(1, memory) : NULL;
    if (!data)
        return true; /* cannot be: the scratch is large enough; but a limit is the safe answer */
    int found = pcre2_match(regex->code, (PCRE2_SPTR)text.ptr, text.len, 0, 0, data, regex->bounds);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        atomic_fetch_add_explicit(&regex->gave_up, 1, memory_order_relaxed); /* a number to tell */
    return found != PCRE2_ERROR_NOMATCH;
}

const char *weir_regex_next_slow(struct weir_regex *list, unsigned long *times)
{
    for (struct weir_regex *regex = list; regex; regex = regex->next) {
        *times = atomic_load_explicit(&regex->gave_up, memory_order_relaxed);
        if (*times == 0 || *times / TOLD_AGAIN < regex->told)
            continue;
        regex->told = *times;
        return regex->pattern;
    }
    return NULL;
}

void weir_regex_link(struct weir_regex *regex, struct weir_regex **list)
{
    regex->next = *list;
    *list = regex;
}

void weir_regex_free_all(struct weir_regex *list)
{
    while (list) {
        struct weir_regex *next = list->next;
        regex_free(list);
        list = next;
    }
}
