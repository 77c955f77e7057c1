/* text.h - text written into memory of the caller's, step by step.
 *
 * What does not fit is not written, and the text says so (has_overflowed): an answer is built in
 * many small steps, and one look at the end is enough.  No printf: some of these are written for
 * every request.
 *
 * Purity: no I/O, no allocation.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_TEXT_H
#define WEIR_PROTO_TEXT_H

#include <stdbool.h>
#include <string.h>
#include <weir/types.h>

struct weir_text {
    char *at, *end;
    char *begin;
    bool has_overflowed;
};

static inline struct weir_text weir_text_in(char *buf, size_t cap)
{
    return (struct weir_text){.at = buf, .end = buf + cap, .begin = buf};
}

static inline size_t weir_text_len(const struct weir_text *text)
{
    return (size_t)(text->at - text->begin);
}

static inline void weir_text_put(struct weir_text *text, struct weir_str str)
{
    if (str.len > (size_t)(text->end - text->at)) {
        text->has_overflowed = true;
        return;
    }
    if (str.len > 0)
        memcpy(text->at, str.ptr, str.len);
    text->at += str.len;
}

/* A literal: its length is known, so this becomes a few moves. */
#define WEIR_TEXT_PUT(text, literal)                                                               \
    weir_text_put((text), (struct weir_str){.ptr = (literal), .len = sizeof(literal) - 1})

static inline void weir_text_put_char(struct weir_text *text, char c)
{
    weir_text_put(text, (struct weir_str){.ptr = &c, .len = 1});
}

/* How many digits a number has: its bits tell but for one, and the power of ten decides. */
static inline uint32_t weir_text_digits(uint64_t number)
{
#define TEN(zeros) UINT64_C(1##zeros)
#define TENS(zeros) TEN(zeros), TEN(zeros##0), TEN(zeros##00), TEN(zeros##000), TEN(zeros##0000)
    static const uint64_t powers[] = {0,
                                      TENS(0),
                                      TENS(000000),
                                      TENS(00000000000),
                                      TEN(0000000000000000),
                                      TEN(00000000000000000),
                                      TEN(000000000000000000),
                                      TEN(0000000000000000000)};
#undef TENS
#undef TEN
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(number | 1);
    uint32_t least = bits * 1233 >> 12; /* log10(2), rounded down */
    return least + (number >= powers[least]);
}

/* The two digits of a number below 100. */
static inline const char *weir_text_pair(uint64_t number)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    return pairs + 2 * number;
}

/* Writes a number so that it ends before `end`; returns where it begins. */
static inline char *weir_text_digits_before(char *end, uint64_t number)
{
    for (; number > UINT32_MAX; number /= 100)
        memcpy(end -= 2, weir_text_pair(number % 100), 2);
    uint32_t rest = (uint32_t)number; /* divided faster */
    for (; rest > 99; rest /= 100)
        memcpy(end -= 2, weir_text_pair(rest % 100), 2);
    if (rest > 9)
        return memcpy(end - 2, weir_text_pair(rest), 2);
    *--end = (char)('0' + rest);
    return end;
}

static inline void weir_text_put_number(struct weir_text *text, uint64_t number)
{
    uint32_t digits = weir_text_digits(number);
    if (digits > (size_t)(text->end - text->at)) {
        text->has_overflowed = true;
        return;
    }
    text->at += digits;
    (void)weir_text_digits_before(text->at, number);
}

/* The inside of a JSON string: quotes, backslashes and control bytes are escaped. */
static inline void weir_text_put_json(struct weir_text *text, struct weir_str str)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < str.len; i++) {
        unsigned char c = (unsigned char)str.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            weir_text_put_char(text, str.ptr[i]);
            continue;
        }
        const char escaped[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        weir_text_put(text, (struct weir_str){.ptr = escaped, .len = sizeof(escaped)});
    }
}

/* For header values and logs: what is not printable ASCII becomes '?'. */
static inline void weir_text_put_printable(struct weir_text *text, struct weir_str str)
{
    for (size_t i = 0; i < str.len; i++)
        weir_text_put_char(text, str.ptr[i] >= ' ' && str.ptr[i] <= '~' ? str.ptr[i] : '?');
}

#endif
