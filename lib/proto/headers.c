/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/headers.h"

#include "base/hot.h"
#include "base/str.h"

#define NS_PER_S UINT64_C(1000000000)
#define REFUSED_LEN 28 /* of what only a refusal tells: a number, and "no-store" */
#define SF_INTEGER_MAX UINT64_C(999999999999999) /* RFC 9651: 15 digits */

int weir_dialects_read(struct weir_str text, uint32_t *dialects)
{
    static const struct {
        struct weir_str name;
        uint32_t dialect;
    } known[] = {
        {{"legacy", 6}, WEIR_DIALECT_LEGACY},
        {{"ietf-11", 7}, WEIR_DIALECT_IETF_11},
        {{"reset-epoch", 11}, WEIR_DIALECT_RESET_EPOCH},
        {{"reset-delta", 11}, WEIR_DIALECT_RESET_DELTA},
        {{"none", 4}, 0},
    };
    uint32_t found = 0;
    const char *at = text.ptr, *end = text.ptr + text.len;
    for (;;) {
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        const char *stop = comma ? comma : end;
        size_t i = 0;
        while (at < stop && *at == ' ')
            at++;
        struct weir_str word = {.ptr = at, .len = (size_t)(stop - at)};
        while (i < sizeof(known) / sizeof(known[0]) && !weir_str_eq(known[i].name, word))
            i++;
        if (i == sizeof(known) / sizeof(known[0]))
            return WEIR_ERR_INVALID;
        found |= known[i].dialect;
        if (!comma)
            break;
        at = comma + 1;
    }
    const uint32_t both = WEIR_DIALECT_RESET_EPOCH | WEIR_DIALECT_RESET_DELTA;
    if ((found & both) == both)
        return WEIR_ERR_INVALID;
    *dialects = found;
    return 0;
}

/* ---- which status, and its numbers ---- */

static bool is_told(const struct weir_status *s)
{
    return s->is_limited && !s->is_shadow;
}

static bool is_tighter(const struct weir_status *a, const struct weir_status *b)
{
    bool is_a_over = a->code == WEIR_CODE_OVER_LIMIT, is_b_over = b->code == WEIR_CODE_OVER_LIMIT;
    if (is_a_over != is_b_over)
        return is_a_over;
    if (is_a_over)
        return a->retry_after_ns > b->retry_after_ns;
    return a->remaining != b->remaining ? a->remaining < b->remaining
                                        : a->reset_after_ns > b->reset_after_ns;
}

static inline const struct weir_status *tightest_of(const struct weir_decision *decision)
{
    const struct weir_status *best = NULL;
    for (uint32_t i = 0; i < decision->status_count; i++) {
        const struct weir_status *s = &decision->statuses[i];
        if (WEIR_MOSTLY(is_told(s)) && (WEIR_MOSTLY(!best) || is_tighter(s, best)))
            best = s;
    }
    return best;
}

static uint64_t whole_s(uint64_t ns)
{
    return ns / NS_PER_S + (ns % NS_PER_S != 0);
}

static uint64_t unit_s(enum weir_unit unit)
{
    static const uint32_t seconds[] = {
        [WEIR_UNIT_SECOND] = 1,    [WEIR_UNIT_MINUTE] = 60,     [WEIR_UNIT_HOUR] = 3600,
        [WEIR_UNIT_DAY] = 86400,   [WEIR_UNIT_MONTH] = 2592000, [WEIR_UNIT_YEAR] = 31536000,
        [WEIR_UNIT_WEEK] = 604800,
    };
    return (size_t)unit < sizeof(seconds) / sizeof(seconds[0]) ? seconds[unit] : 0;
}

/* Zero where it is not known. */
static uint64_t window_s(const struct weir_status *s)
{
    return unit_s(s->unit) * (s->rule ? s->rule->unit_multiplier : 1);
}

/* Seconds that a refusal tells its client to wait. */
static uint64_t wait_s(const struct weir_status *s)
{
    uint64_t wait = whole_s(s->retry_after_ns);
    if (s->retry_after_ns == WEIR_NEVER)
        wait = s->reset_after_ns > 0 ? whole_s(s->reset_after_ns) : window_s(s);
    return wait > 0 ? wait : 1;
}

WEIR_HOT void weir_headers_tell(struct weir_told *out, const struct weir_decision *decision,
                                uint64_t now_ns)
{
    const struct weir_status *s = tightest_of(decision);
    bool is_refused = decision->overall == WEIR_CODE_OVER_LIMIT;
    out->is_refused = is_refused;
    out->foretell = out->by_address = false;
    out->is_limited = s != NULL;
    out->rule = s ? s->rule : NULL;
    out->generation = 0;
    out->limit = s ? s->limit : 0;
    out->remaining = s ? s->remaining : 0;
    bool is_over = s && WEIR_SELDOM(is_refused || s->code == WEIR_CODE_OVER_LIMIT);
    out->wait_s = is_over ? wait_s(s) : 0;
    out->reset_after_ns = s ? s->reset_after_ns : 0;
    out->now_ns = now_ns;
}

/* ---- headers ---- */

/* Headers while they are written: as lines, or values only, each noted with its name. */
struct telling {
    struct weir_text text;
    struct weir_header *headers; /* NULL: lines */
    uint32_t count;
};

static inline void note(struct telling *to, struct weir_str name, const char *value)
{
    to->headers[to->count++] = (struct weir_header){
        .name = name,
        .value = {.ptr = value, .len = (size_t)(to->text.at - value)},
    };
}

/* put: what writes the value. */
#define PUT_HEADER(to, name, put)                                                                  \
    do {                                                                                           \
        if (!(to)->headers)                                                                        \
            WEIR_TEXT_PUT(&(to)->text, name ": ");                                                 \
        const char *value_ = (to)->text.at;                                                        \
        put;                                                                                       \
        if ((to)->headers)                                                                         \
            note((to), WEIR_STR(name), value_);                                                    \
        else                                                                                       \
            WEIR_TEXT_PUT(&(to)->text, "\r\n");                                                    \
    } while (0)
#define PUT_NUMBER(to, name, number)                                                               \
    PUT_HEADER((to), name, weir_text_put_number(&(to)->text, (number)))

/* Whether there are more numbers than a limit and what remains of it. */
static inline bool has_more(uint32_t dialects, const struct weir_told *t)
{
    return (dialects & (WEIR_DIALECT_RESET_EPOCH | WEIR_DIALECT_RESET_DELTA)) || t->is_refused;
}

/* Those.  put: knows whether as lines or as values. */
static inline __attribute__((always_inline)) void put_more(
    void *to, void (*put)(void *to, struct weir_str name, uint64_t number), uint32_t dialects,
    const struct weir_told *t)
{
    if (dialects & WEIR_DIALECT_RESET_EPOCH)
        put(to, WEIR_STR("X-Ratelimit-Reset"), whole_s(t->now_ns + t->reset_after_ns));
    else if (dialects & WEIR_DIALECT_RESET_DELTA)
        put(to, WEIR_STR("X-Ratelimit-Reset"), whole_s(t->reset_after_ns));
    if (t->is_refused)
        put(to, WEIR_STR("X-Ratelimit-Retry-After"), t->wait_s);
}

static inline void put_line(void *to, struct weir_str name, uint64_t number)
{
    struct weir_text *text = to;
    weir_text_put(text, name);
    WEIR_TEXT_PUT(text, ": ");
    weir_text_put_number(text, number);
    WEIR_TEXT_PUT(text, "\r\n");
}

/* Where the next header goes, and its value: there is room for all. */
struct values {
    struct weir_header *next;
    char *at;
};

/* The value is somewhere in the next WEIR_NUMBER_LEN bytes. */
static inline void add_value(struct values *to, struct weir_str name, const char *begin, size_t len)
{
    *to->next++ = (struct weir_header){.name = name, .value = {.ptr = begin, .len = len}};
    to->at += WEIR_NUMBER_LEN;
}

static inline void put_value(void *to, struct weir_str name, uint64_t number)
{
    struct values *values = to;
    char *end = values->at + WEIR_NUMBER_LEN, *begin = weir_text_digits_before(end, number);
    add_value(values, name, begin, (size_t)(end - begin));
}

/* ---- the two that most answers have ---- */

static void note_digits(struct weir_digits *last, uint64_t number)
{
    last->number = number;
    last->len = weir_text_digits(number);
    (void)weir_text_digits_before(last->digits + last->len, number);
}

/* All digits are copied, which is a few moves. */
static inline void copy_digits(char *to, const struct weir_digits *from)
{
    memcpy(to, from->digits, sizeof(from->digits));
}

WEIR_HOT struct weir_two weir_headers_two(char values[WEIR_NUMBERS_LEN_MAX], uint64_t limit,
                                          uint64_t remaining, const struct weir_told_last *last)
{
    const struct weir_digits *hundreds = &last->hundreds;
    uint64_t pair = remaining - 100 * hundreds->number;
    if (WEIR_SELDOM(limit != last->limit.number || pair >= 100 || remaining < hundreds->number))
        return (struct weir_two){0};
    uint32_t tens = (uint32_t)pair / 10,
             ones = (uint32_t)pair - 10 * tens; /* a table would be far */
    uint32_t is_one = remaining < 10;
    char *at = values + WEIR_NUMBER_LEN + hundreds->len;
    copy_digits(values, &last->limit);
    copy_digits(values + WEIR_NUMBER_LEN, hundreds);
    at[0] = (char)('0' + (is_one ? ones : tens));
    at[1] = (char)('0' + ones);
    return (struct weir_two){.limit_len = last->limit.len,
                             .remaining_len = hundreds->len + 2 - is_one};
}

static __attribute__((noinline)) struct weir_two note_two(char values[WEIR_NUMBERS_LEN_MAX],
                                                          const struct weir_told *told,
                                                          struct weir_told_last *last)
{
    note_digits(&last->limit, told->limit);
    note_digits(&last->hundreds, told->remaining / 100);
    if (last->hundreds.number == 0)
        last->hundreds.len = 0; /* no zeros lead */
    return weir_headers_two(values, told->limit, told->remaining, last);
}

static inline void put_two(struct values *to, const struct weir_told *told,
                           struct weir_told_last *last)
{
    struct weir_two two = weir_headers_two(to->at, told->limit, told->remaining, last);
    if (WEIR_SELDOM(two.limit_len == 0))
        two = note_two(to->at, told, last);
    add_value(to, WEIR_STR(WEIR_HEADER_LIMIT), to->at, two.limit_len);
    add_value(to, WEIR_STR(WEIR_HEADER_REMAINING), to->at, two.remaining_len);
}

/* ---- all of them ---- */

/* What a refusal tells in every dialect. */
static inline void put_refused(struct telling *to, uint32_t dialects, const struct weir_told *t)
{
    if (t->is_limited && dialects)
        PUT_NUMBER(to, "Retry-After", t->wait_s);
    PUT_HEADER(to, "Cache-Control", WEIR_TEXT_PUT(&to->text, "no-store"));
}

_Static_assert(4 * WEIR_NUMBER_LEN + REFUSED_LEN <= WEIR_NUMBERS_LEN_MAX, "room for all values");

static bool has_numbers(uint32_t dialects, const struct weir_told *t)
{
    const uint32_t trio = WEIR_DIALECT_LEGACY | WEIR_DIALECT_RESET_EPOCH | WEIR_DIALECT_RESET_DELTA;
    return t->is_limited && (dialects & trio);
}

static struct weir_str name_of(const struct weir_status *s)
{
    if (!s->rule)
        return WEIR_STR("limit");
    return s->rule->name.len > 0 ? s->rule->name : s->rule->id;
}

/* A structured field string: quotes and backslashes escaped, and ASCII only. */
static void put_sf_string(struct weir_text *to, struct weir_str str)
{
    WEIR_TEXT_PUT(to, "\"");
    for (size_t i = 0; i < str.len; i++) {
        if (str.ptr[i] == '"' || str.ptr[i] == '\\')
            WEIR_TEXT_PUT(to, "\\");
        weir_text_put_printable(to, (struct weir_str){.ptr = str.ptr + i, .len = 1});
    }
    WEIR_TEXT_PUT(to, "\"");
}

static void put_sf_integer(struct weir_text *to, uint64_t number)
{
    weir_text_put_number(to, number < SF_INTEGER_MAX ? number : SF_INTEGER_MAX);
}

static void put_policy(struct weir_text *to, const struct weir_status *s)
{
    put_sf_string(to, name_of(s));
    WEIR_TEXT_PUT(to, ";q=");
    put_sf_integer(to, s->limit);
    if (s->rule && s->rule->algorithm == WEIR_CONCURRENCY) {
        WEIR_TEXT_PUT(to, ";qu=\"concurrent-requests\"");
        return;
    }
    /* The window is known of a rule's first limit only, and of a bucket whose size is another
     * number it would be a lie: w may be left out. */
    bool is_sure = !s->rule || s->rule->requests_per_unit == s->limit;
    if (is_sure && window_s(s) > 0) {
        WEIR_TEXT_PUT(to, ";w=");
        put_sf_integer(to, window_s(s));
    }
}

static void put_left(struct weir_text *to, const struct weir_status *s)
{
    put_sf_string(to, name_of(s));
    WEIR_TEXT_PUT(to, ";r=");
    put_sf_integer(to, s->remaining);
    WEIR_TEXT_PUT(to, ";t=");
    put_sf_integer(to, s->code == WEIR_CODE_OVER_LIMIT ? wait_s(s) : whole_s(s->reset_after_ns));
}

/* As many items as LIST_MAX bytes hold, the tightest first, each whole. */
static void put_list(struct weir_text *to, const struct weir_decision *decision,
                     const struct weir_status *tightest,
                     void (*put)(struct weir_text *to, const struct weir_status *s))
{
    char space[WEIR_HEADERS_LIST_MAX];
    struct weir_text list = weir_text_in(space, sizeof(space));
    put(&list, tightest);
    char *whole = list.has_overflowed ? list.begin : list.at;
    for (uint32_t i = 0; i < decision->status_count && !list.has_overflowed; i++) {
        const struct weir_status *s = &decision->statuses[i];
        if (s == tightest || !is_told(s))
            continue;
        WEIR_TEXT_PUT(&list, ", ");
        put(&list, s);
        if (!list.has_overflowed)
            whole = list.at;
    }
    weir_text_put(to, (struct weir_str){.ptr = space, .len = (size_t)(whole - space)});
}

static void put_lists(struct telling *to, uint32_t dialects, const struct weir_decision *decision)
{
    const struct weir_status *s = dialects & WEIR_DIALECT_IETF_11 ? tightest_of(decision) : NULL;
    if (!s)
        return;
    PUT_HEADER(to, "RateLimit-Policy", put_list(&to->text, decision, s, put_policy));
    PUT_HEADER(to, "RateLimit", put_list(&to->text, decision, s, put_left));
}

void weir_headers_write(struct weir_text *to, uint32_t dialects,
                        const struct weir_decision *decision, uint64_t now_ns)
{
    struct telling telling = {.text = *to};
    struct weir_told told;
    weir_headers_tell(&told, decision, now_ns);
    if (has_numbers(dialects, &told)) {
        put_line(&telling.text, WEIR_STR(WEIR_HEADER_LIMIT), told.limit);
        put_line(&telling.text, WEIR_STR(WEIR_HEADER_REMAINING), told.remaining);
        put_more(&telling.text, put_line, dialects, &told);
    }
    put_lists(&telling, dialects, decision);
    if (told.is_refused)
        put_refused(&telling, dialects, &told);
    *to = telling.text;
}

size_t weir_headers(char to[WEIR_HEADERS_LEN_MAX], uint32_t dialects,
                    const struct weir_decision *decision, uint64_t now_ns)
{
    struct weir_text text = weir_text_in(to, WEIR_HEADERS_LEN_MAX);
    weir_headers_write(&text, dialects, decision, now_ns);
    return weir_text_len(&text);
}

/* All but the first two, which most answers have alone: what these take, those need not. */
static __attribute__((noinline)) uint32_t more_numbers(struct weir_header to[WEIR_NUMBERS_MAX],
                                                       struct values numbers, uint32_t dialects,
                                                       const struct weir_told *told)
{
    if (has_numbers(dialects, told))
        put_more(&numbers, put_value, dialects, told);
    struct telling telling = {.text = weir_text_in(numbers.at, REFUSED_LEN),
                              .headers = to,
                              .count = (uint32_t)(numbers.next - to)};
    if (told->is_refused)
        put_refused(&telling, dialects, told);
    return telling.count;
}

uint32_t weir_headers_numbers(struct weir_header to[WEIR_NUMBERS_MAX],
                              char values[WEIR_NUMBERS_LEN_MAX], uint32_t dialects,
                              const struct weir_told *told, struct weir_told_last *last)
{
    struct values numbers = {.next = to, .at = values};
    if (has_numbers(dialects, told))
        put_two(&numbers, told, last);
    if (has_more(dialects, told))
        return more_numbers(to, numbers, dialects, told);
    return (uint32_t)(numbers.next - to);
}

uint32_t weir_headers_lists(struct weir_header to[WEIR_LISTS_MAX],
                            char values[WEIR_HEADERS_LEN_MAX], uint32_t dialects,
                            const struct weir_decision *decision)
{
    struct telling telling = {.text = weir_text_in(values, WEIR_HEADERS_LEN_MAX), .headers = to};
    put_lists(&telling, dialects, decision);
    return telling.count;
}

/* ---- the body of a refusal ---- */

static void put_problem(struct weir_text *to, int status, const struct weir_decision *decision)
{
    bool is_first = true;
    WEIR_TEXT_PUT(to,
                  "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\","
                  "\"title\":\"Request cannot be satisfied as assigned quota has been "
                  "exceeded\",\"status\":");
    weir_text_put_number(to, (uint64_t)status);
    WEIR_TEXT_PUT(to, ",\"violated-policies\":[");
    for (uint32_t i = 0; i < decision->status_count; i++) {
        const struct weir_status *s = &decision->statuses[i];
        if (!is_told(s) || s->code != WEIR_CODE_OVER_LIMIT)
            continue;
        if (!is_first)
            WEIR_TEXT_PUT(to, ",");
        WEIR_TEXT_PUT(to, "\"");
        weir_text_put_json(to, name_of(s));
        WEIR_TEXT_PUT(to, "\"");
        is_first = false;
    }
    WEIR_TEXT_PUT(to, "]}\n");
}

struct weir_str weir_headers_refusal(struct weir_text *to, enum weir_refusal_body kind, int status,
                                     const struct weir_decision *decision)
{
    if (kind == WEIR_REFUSAL_PROBLEM) {
        put_problem(to, status, decision);
        return WEIR_STR("application/problem+json");
    }
    WEIR_TEXT_PUT(to, "Too many requests\n");
    return WEIR_STR("text/plain; charset=utf-8");
}

size_t weir_refusal(char *to, size_t cap, enum weir_refusal_body kind, int status,
                    const struct weir_decision *decision, struct weir_str *type)
{
    struct weir_text text = weir_text_in(to, cap);
    *type = weir_headers_refusal(&text, kind, status, decision);
    return text.has_overflowed ? 0 : weir_text_len(&text);
}
