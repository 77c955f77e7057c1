/* key_overrides.h - another number for one counter, until a given time.
 *
 * A row belongs to a counter's key.  The keys lie together, eight in a cache line, and a key may
 * have its row at any of 16 places, in two lines: so one that has none is known to have none after
 * two lines, which nobody writes to while nothing is changed.  And a word in the header says
 * whether any override is live at all, so that deciding costs one load where there are none.
 *
 *     value  lo  until_ns
 *            hi  63      35 34         33 32       31       0
 *                tag 29    | unlimited | generation | number |      number: requests per unit
 *
 * A value is changed by one 16-byte swap.  It bears 29 bits of the key for which it is meant: a row
 * that was taken over by another key says nothing of that key until its own value is there.  Who
 * dies on the way leaves a row that says nothing, or all of it.
 *
 * The number before a change is kept, by generation, also when the override has ended, until
 * another key needs the row: a bucket's state is an instant, and means so many tokens only at the
 * rate at which it was made.  A slot says that it was made at a rate of the key's own
 * (WEIR_GENERATIONS and more: see layout.h), and finds it here.
 *
 * Rejected: a lock for those who change rows (they may die), and overrides as new rules (every
 * process would have to load them, and expire them, by itself).
 *
 * Threads: any number, in any number of processes.  Time: an argument.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_KEY_OVERRIDES_H
#define WEIR_TABLE_KEY_OVERRIDES_H

#include "table/caption.h"

struct weir_key_override {
    uint64_t key;      /* the counter's */
    uint64_t name;     /* the descriptor's: who gives and takes it calls it so */
    uint64_t since_ns; /* when it was given */
    uint64_t until_ns;
    uint32_t requests;
    uint32_t generation; /* out: as a slot has it */
    uint32_t stat;       /* of its rule */
    uint32_t ordinal;    /* which of the rule's counters */
    bool is_unlimited;
};

/* Whether any is live.  What a decision asks first. */
static inline bool weir_key_overrides_live(const struct weir_table *table, uint64_t now_ns)
{
    /* Relaxed: a row is read with its own orders, and one given this instant may be missed. */
    return __atomic_load_n(&table->header->key_overrides_until, __ATOMIC_RELAXED) > now_ns;
}

/* The live override of a key: until_ns, requests, generation and is_unlimited are set. */
bool weir_key_override_find(const struct weir_table *table, uint64_t key, uint64_t now_ns,
                            struct weir_key_override *out);

/* The number that a generation of the key's stood for, also of one that has ended; 0: not known. */
uint32_t weir_key_override_rate(const struct weir_table *table, uint64_t key, uint32_t generation);

/* Gives the key this override, instead of what it had.  0, WEIR_ERR_FULL, WEIR_ERR_UNSUPPORTED. */
WEIR_MUST_CHECK int weir_key_override_put(struct weir_table *table,
                                          const struct weir_key_override *override,
                                          const struct weir_key_words *words, uint64_t now_ns);

/* Ends all live ones of a descriptor but those given at since_ns (0: all); says how many. */
uint32_t weir_key_override_drop(struct weir_table *table, uint64_t name, uint64_t since_ns,
                                uint64_t now_ns);

/* Row `number`, if there is a live one.  Its text may be missing (no domain), where it is being
 * written. */
bool weir_key_override_at(const struct weir_table *table, uint32_t number, uint64_t now_ns,
                          struct weir_key_override *out, struct weir_caption_text *text);

#endif
