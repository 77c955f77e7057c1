/* table.h - the shared-memory file: open, create, stat.  See docs/table-format.md for the format.
 *
 * What a process holds of a table is struct weir_table: a mapping and nothing else.  Everything
 * that is shared is in the file, reached by offsets, changed by compare-and-swap only; a process
 * may die at any instruction.
 *
 * Threads: any number, in any number of processes, once open.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_TABLE_H
#define WEIR_TABLE_TABLE_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

struct weir_table;

/* How a file is divided.  Zeroes: weir chooses, from file_bytes and the two hints. */
struct weir_table_geometry {
    uint64_t file_bytes;   /* the whole file; 0: the sum of what follows */
    uint64_t slots;        /* 16 bytes each; 0: what the others leave */
    uint64_t sketch_cells; /* 8 bytes each, for keys that had to leave; 0: by file_bytes */
    uint64_t extent_bytes; /* logs and other wide states; 0: by file_bytes */
    uint64_t records;      /* limits with a record of their rate, 64 bytes each; 0: by file_bytes */
    uint64_t approx_bytes; /* hint: for sketches of approximate limits, on top of extent_bytes;
                            * each in whole WEIR_TABLE_GRAINs */
    uint32_t window_regions; /* hint: distinct window lengths in the rules */
    uint32_t bucket_regions; /* hint: distinct bucket horizons (powers of 16) */
    uint32_t bucket_share;   /* of the sketch, in eighths; 0: by the hints */
    bool is_unshared;        /* memory without a name: no child of fork() will ever need it */
};

#define WEIR_TABLE_BYTES_DEFAULT (UINT64_C(64) << 20)
#define WEIR_TABLE_BYTES_MIN (UINT64_C(1) << 20)
#define WEIR_TABLE_GRAIN (UINT64_C(1) << 16)

/* Attaches to the file at path, creating it if there is none.  path NULL: memory without a name,
 * which children of fork() share unless the geometry says otherwise.  0, or WEIR_ERR_TABLE,
 * WEIR_ERR_IO, WEIR_ERR_INVALID; why[] says in words what is wrong and what would be right. */
WEIR_MUST_CHECK int weir_table_open(struct weir_table **out, const char *path,
                                    const struct weir_table_geometry *geometry, char *why,
                                    size_t why_len);
/* Attaches to an existing file only. */
WEIR_MUST_CHECK int weir_table_attach(struct weir_table **out, const char *path, char *why,
                                      size_t why_len);
void weir_table_close(struct weir_table *table);

/* Makes a new file at new_path with another geometry and carries over all that is counted:
 * nothing is forgiven, though a key may for one window be counted higher than it was. */
WEIR_MUST_CHECK int weir_table_resize(const char *path, const char *new_path,
                                      const struct weir_table_geometry *geometry, char *why,
                                      size_t why_len);

const struct weir_hash_key *weir_table_hash_key(const struct weir_table *table);

/* A number that no other table has, the same in all processes on it; says nothing of the key. */
static inline uint64_t weir_table_id(const struct weir_table *table)
{
    return weir_siphash13(weir_table_hash_key(table), "table", 5);
}

/* 64 bits, drawn by chance when the table was opened. */
uint64_t weir_table_seed(const struct weir_table *table);

/* The one clock of all processes on this table. */
uint64_t weir_table_now(struct weir_table *table);

/* How old the boot is: what leases are timed by.  Unlike the clock above it is never slowed down,
 * and unlike CLOCK_MONOTONIC it goes on while the machine sleeps. */
uint64_t weir_table_boot_ns(void);

/* Time is what callers say, to the nanosecond, also where it goes back (replays).  Before limits
 * are bound. */
void weir_table_trust_callers(struct weir_table *table);
/* Keys get a slot also where they were looked at or refused only, as in oracle.py: it shows where
 * the clock goes back afterwards. */
void weir_table_remember_all(struct weir_table *table);

/* Whether the file at the path is still the one that is mapped (it may have been unlinked). */
bool weir_table_is_linked(const struct weir_table *table);

void weir_table_stats(const struct weir_table *table, uint64_t now_ns,
                      struct weir_table_stats *out);

/* One live slot, as `weir table dump` shows it. */
struct weir_slot_view {
    uint64_t index;
    uint64_t fingerprint;
    const char *kind; /* "tat", "window", "slide", "tick", "log", "slots" ... */
    uint64_t expires_ns;
    uint64_t a, b, c;  /* count; previous, current; ... by kind */
    uint64_t window_s; /* 0 where the kind has none */
};
void weir_table_dump(const struct weir_table *table, uint64_t now_ns,
                     void (*each)(void *ctx, const struct weir_slot_view *slot), void *ctx);

/* Geometry as it is in the file, and where each part lies, for `weir table stat`. */
void weir_table_layout(const struct weir_table *table, struct weir_table_geometry *out);

/* ---- statistics per rule (table/stats.c) ---- */

enum weir_counter {
    WEIR_COUNTER_TOTAL_HITS,
    WEIR_COUNTER_OVER_LIMIT,
    WEIR_COUNTER_NEAR_LIMIT,
    WEIR_COUNTER_WITHIN_LIMIT,
    WEIR_COUNTER_SHADOW_MODE,
    WEIR_COUNTER_BY_SKETCH,
    WEIR_COUNTER_NEGATIVE_HITS,
    WEIR_COUNTERS,
};

/* The number under which a rule counts: found or claimed by its id; rule beyond the maximum share
 * the number of "other" (0). */
uint32_t weir_stats_claim(struct weir_table *table, uint64_t stats_id);
/* Adds to one counter.  shard: any number that differs between threads (a session's). */
void weir_stats_add(struct weir_table *table, uint32_t stat, uint32_t shard,
                    enum weir_counter counter, uint64_t amount);
/* The same for all counters at once. */
void weir_stats_add_all(struct weir_table *table, uint32_t stat, uint32_t shard,
                        const uint64_t amounts[WEIR_COUNTERS]);
/* Hits that were within the limit, and not near it: what most decisions add.  One addition for the
 * two counters; where it is done stays the same. */
uint64_t *weir_stats_within(const struct weir_table *table, uint32_t stat, uint32_t shard);
static inline void weir_stats_add_within(uint64_t *at, uint64_t hits)
{
    (void)__atomic_fetch_add(at, hits, __ATOMIC_RELAXED);
}
uint64_t weir_stats_read(const struct weir_table *table, uint32_t stat, enum weir_counter counter);

#endif
