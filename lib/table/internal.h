/* internal.h - a mapped table as the files of lib/table and lib/store see it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_INTERNAL_H
#define WEIR_TABLE_INTERNAL_H

#include "table/layout.h"
#include "table/table.h"

#include <sys/types.h>

/* No process's reading of the clock is older than this when it is used. */
#define WEIR_CLOCK_LAG_S 2u

/* Where the parts of a file with these counts lie. */
struct weir_table_map {
    uint64_t slots_at, sketch_at, records_at, stats_at, extents_at, controls_at, file_bytes;
};

/* What an operator sets and sees (controls.h).  All NULL where the file has none. */
struct weir_controls {
    uint8_t *enforcement; /* by number of statistics: 100 less the share that is enforced */
    uint64_t *override_keys;
    struct weir_key_override_row *overrides;
    uint32_t override_count;
    uint32_t top_count;
    uint64_t *top_keys;
    struct weir_top_row *top;
    struct weir_process_row *processes;
};

struct weir_table {
    /* What every decision reads, in one line: */
    struct weir_table_header *header;
    struct weir_bucket *buckets;
    uint64_t bucket_count;
    uint64_t *sketch;
    struct weir_record *records;
    uint64_t *stats_ids; /* stats_rules of them, then the lines */
    struct weir_stats_line *stats_lines;
    uint64_t stats_rules; /* as in the header */

    uint32_t *chunk_class; /* one for each chunk: 0 free, else units of an object; see extent.h */
    unsigned char *extents;
    uint64_t extent_chunks;
    struct weir_controls controls;
    struct weir_table_map map;
    uint64_t process_id; /* of the row that this process has; 0: none */
    struct weir_process_row *process_row;
    uint64_t nonce;             /* random; tells this process's claims from others' */
    uint64_t claims;            /* claims made by this process */
    uint64_t extent_hint;       /* where the last extent was found */
    uint32_t lag_ms;            /* how old a caller's reading of the clock may be */
    bool remembers_all;         /* also answers that took nothing */
    int64_t wall_check_boot_ns; /* when to compare with the wall clock again */
    char *path;                 /* NULL: private memory */
    dev_t device;
    ino_t inode;
};

static inline uint64_t weir_class_window_s(const struct weir_table *table, uint32_t class)
{
    return __atomic_load_n(&table->header->window_s[class], __ATOMIC_RELAXED);
}

/* A number that nobody else draws (table/slots.c): not another thread, nor a process that
 * shares the handle because it was forked. */
uint64_t weir_table_unique(struct weir_table *table);

/* Adds one to a counter of the table; any key's bucket number spreads the lines. */
#define WEIR_TABLE_COUNT(table, spread, which)                                                     \
    ((void)__atomic_fetch_add(&(table)->header->counters[(spread) % WEIR_COUNTER_SHARDS].which, 1, \
                              __ATOMIC_RELAXED))

/* table/open.c: the same hash key and window classes, so that the same requests meet the same
 * states. */
void weir_table_take_identity(struct weir_table *to, const struct weir_table *from);

/* table/clock.c: the state of the clock in a new file, and its check on attaching. */
WEIR_MUST_CHECK int weir_clock_create(struct weir_table_header *header, char *why, size_t why_len);
/* What the clock shows when the boot is so old. */
uint64_t weir_clock_at_boot(const struct weir_table *table, uint64_t boot_ns);
WEIR_MUST_CHECK int weir_clock_attach(struct weir_table *table, char *why, size_t why_len);

#endif
