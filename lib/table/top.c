/* SPDX-License-Identifier: Apache-2.0 */
#include "table/top.h"

#include "base/hot.h"

#define MINUTE_NS UINT64_C(60000000000)
#define COUNT_BITS 40 /* of a count; its minute is above */
#define COUNT_MAX ((UINT64_C(1) << COUNT_BITS) - 1)

static uint64_t minute_of(uint64_t now_ns)
{
    return (now_ns / MINUTE_NS) & (UINT64_MAX >> COUNT_BITS);
}

/* ---- counts: {minute, count} now, and the same of before ---- */

/* Relaxed throughout: numbers for people. */
static void add_to(struct weir_top_count *count, uint64_t weight, uint64_t now_ns)
{
    uint64_t minute = minute_of(now_ns), new;
    uint64_t old = __atomic_load_n(&count->now, __ATOMIC_RELAXED);
    do {
        uint64_t sum = old >> COUNT_BITS == minute ? (old & COUNT_MAX) + weight : weight;
        new = minute << COUNT_BITS | (sum < COUNT_MAX ? sum : COUNT_MAX);
    } while (!__atomic_compare_exchange_n(&count->now, &old, new, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    if (old >> COUNT_BITS != minute)
        __atomic_store_n(&count->before, old, __ATOMIC_RELAXED);
}

static void begin_with(struct weir_top_count *count, uint64_t weight, uint64_t now_ns)
{
    uint64_t sum = weight < COUNT_MAX ? weight : COUNT_MAX;
    __atomic_store_n(&count->before, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&count->now, minute_of(now_ns) << COUNT_BITS | sum, __ATOMIC_RELAXED);
}

/* The last 60 seconds: all of this minute, and of the one before what is not yet so long ago. */
static uint64_t estimate(const struct weir_top_count *count, uint64_t now_ns)
{
    uint64_t minute = minute_of(now_ns), left_ms = (MINUTE_NS - now_ns % MINUTE_NS) / 1000000;
    const uint64_t words[] = {__atomic_load_n(&count->now, __ATOMIC_RELAXED),
                              __atomic_load_n(&count->before, __ATOMIC_RELAXED)};
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t age = (minute - (words[i] >> COUNT_BITS)) & (UINT64_MAX >> COUNT_BITS);
        if (age == 0)
            sum += words[i] & COUNT_MAX;
        else if (age == 1)
            sum += (words[i] & COUNT_MAX) * left_ms / (MINUTE_NS / 1000000);
    }
    return sum;
}

/* ---- rows ---- */

static uint32_t line_of(const struct weir_table *table, uint64_t key)
{
    return (uint32_t)(key % (table->controls.top_count / WEIR_LINE_KEYS)) * WEIR_LINE_KEYS;
}

static uint64_t load_key(const struct weir_table *table, uint32_t row)
{
    return __atomic_load_n(&table->controls.top_keys[row], __ATOMIC_ACQUIRE);
}

static uint32_t least_busy(const struct weir_table *table, uint32_t line, uint64_t now_ns,
                           uint64_t *count)
{
    uint32_t least = line;
    *count = UINT64_MAX;
    for (uint32_t i = line; i < line + WEIR_LINE_KEYS; i++) {
        uint64_t hits =
            load_key(table, i) == 0 ? 0 : estimate(&table->controls.top[i].hits, now_ns);
        if (hits < *count) {
            least = i;
            *count = hits;
        }
    }
    return least;
}

/* False: chance was against it, or somebody was faster. */
static bool admit(struct weir_table *table, const struct weir_top_hit *hit, uint64_t now_ns,
                  uint32_t *row)
{
    uint64_t count;
    *row = least_busy(table, line_of(table, hit->key), now_ns, &count);
    count += hit->weight;
    if ((weir_u128)hit->random * count >> 64 >= hit->weight)
        return false;
    uint64_t old = load_key(table, *row);
    if (!__atomic_compare_exchange_n(&table->controls.top_keys[*row], &old, hit->key, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return false;
    begin_with(&table->controls.top[*row].hits, count, now_ns);
    begin_with(&table->controls.top[*row].over, hit->is_over ? count : 0, now_ns);
    return true;
}

/* Where the key has its row; false: nowhere. */
static bool find_row(const struct weir_table *table, uint64_t key, uint32_t *row)
{
    uint32_t line = line_of(table, key);
    for (*row = line; *row < line + WEIR_LINE_KEYS; ++*row) {
        if (load_key(table, *row) == key)
            return true;
    }
    return false;
}

/* Where the key has its row, or gets one; false: nowhere. */
static bool count_hit(struct weir_table *table, const struct weir_top_hit *hit, uint64_t now_ns,
                      uint32_t *row)
{
    if (!find_row(table, hit->key, row))
        return admit(table, hit, now_ns, row);
    add_to(&table->controls.top[*row].hits, hit->weight, now_ns);
    if (hit->is_over)
        add_to(&table->controls.top[*row].over, hit->weight, now_ns);
    return true;
}

WEIR_HOT uint32_t weir_top_add(struct weir_table *table, const struct weir_top_hit *hit,
                               uint64_t now_ns)
{
    uint32_t number;
    if (table->controls.top == NULL || hit->key == 0 || !count_hit(table, hit, now_ns, &number))
        return WEIR_TOP_NOWHERE;
    struct weir_top_row *row = &table->controls.top[number];
    __atomic_store_n(&row->stat, hit->stat, __ATOMIC_RELAXED);
    return __atomic_load_n(&row->described, __ATOMIC_RELAXED) == hit->key ? WEIR_TOP_NOWHERE
                                                                          : number;
}

void weir_top_add_over(struct weir_table *table, uint64_t key, uint64_t weight, uint64_t now_ns)
{
    uint32_t row;
    if (table->controls.top != NULL && key != 0 && find_row(table, key, &row))
        add_to(&table->controls.top[row].over, weight, now_ns);
}

void weir_top_describe(struct weir_table *table, uint32_t row, uint64_t key,
                       const struct weir_key_words *words)
{
    weir_caption_write(&table->controls.top[row].caption, key, words);
    __atomic_store_n(&table->controls.top[row].described, key, __ATOMIC_RELAXED);
}

bool weir_top_at(const struct weir_table *table, uint32_t number, uint64_t now_ns,
                 struct weir_top_view *out, struct weir_caption_text *text)
{
    if (table->controls.top == NULL || number >= table->controls.top_count)
        return false;
    struct weir_top_row *row = &table->controls.top[number];
    uint64_t key = load_key(table, number);
    *out = (struct weir_top_view){
        .hits = estimate(&row->hits, now_ns),
        .over = estimate(&row->over, now_ns),
        .stat = __atomic_load_n(&row->stat, __ATOMIC_RELAXED),
    };
    if (key == 0 || out->hits == 0)
        return false;
    if (!weir_caption_read(&row->caption, key, text)) {
        text->words = (struct weir_key_words){.is_cut = true};
        /* Two wrote at once, or one died: the next hit brings the words again. */
        __atomic_store_n(&row->described, 0, __ATOMIC_RELAXED);
    }
    return true;
}
