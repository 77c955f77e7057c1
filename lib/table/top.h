/* top.h - who asks most: the busiest counters of the last minute, in fixed memory.
 *
 * Rows with a key each, in lines of eight; a key has one line.  A hit of a key that has no row
 * takes the place of the least busy key of its line, by chance: with odds of weight to (what that
 * one has + weight), and then with both as its count, which is right on average.  So a flood of
 * keys that come once can hardly push out one that comes often.
 *
 * Counts are of the present minute and of the one before; together they are an estimate for the
 * last 60 seconds, and what is older is forgotten by itself.  Callers sample: a hit stands for
 * `weight` of them.
 *
 * Nothing is decided on any of this.  Who dies half-way leaves a count that is off, or words that
 * do not belong to the key, which nobody believes (caption.h).
 *
 * Threads: any number, in any number of processes.  Time and chance: arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_TOP_H
#define WEIR_TABLE_TOP_H

#include "table/caption.h"

struct weir_top_hit {
    uint64_t key;
    uint64_t weight;
    uint64_t random; /* any 64 bits */
    uint32_t stat;   /* of its rule */
    bool is_over;    /* over the limit */
};

#define WEIR_TOP_NOWHERE UINT32_MAX

/* Counts a hit.  Returns the row where words are missing, to be described by who has them; else
 * WEIR_TOP_NOWHERE. */
uint32_t weir_top_add(struct weir_table *table, const struct weir_top_hit *hit, uint64_t now_ns);
/* Of hits that were counted before it was known: they were over the limit. */
void weir_top_add_over(struct weir_table *table, uint64_t key, uint64_t weight, uint64_t now_ns);
void weir_top_describe(struct weir_table *table, uint32_t row, uint64_t key,
                       const struct weir_key_words *words);

struct weir_top_view {
    uint64_t hits, over; /* of the last 60 seconds, about */
    uint32_t stat;
};

/* Row `number`, if it has anything of late. */
bool weir_top_at(const struct weir_table *table, uint32_t number, uint64_t now_ns,
                 struct weir_top_view *out, struct weir_caption_text *text);

#endif
