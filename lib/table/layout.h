/* layout.h - the bytes of a table file.  docs/table-format.md draws them; the asserts keep both
 * true.
 *
 *     header | slots | sketch | records | statistics | extents | controls
 *
 * All numbers are little-endian, all places are offsets from the start of the file, every part
 * starts on a page.  The sizes of the parts follow from the five counts in the header, so that a
 * reader recomputes them and refuses a file in which they disagree.
 *
 * A slot is 16 bytes, {state, fingerprint}, and is changed only by one 16-byte swap:
 *
 *     hi  63          22 21 20    18 17   12 11            0
 *         fingerprint 42 | 0 | kind 3 | class 6 | body, high 12 |     kinds but TAT
 *         fingerprint 42 | 1 | gen 2 | own 1 | 0 0 | num 16    |     TAT
 *     lo  63                       30 29                    0
 *         index 34                   | body, low 30            |     kinds but TAT
 *         ns 63                                                |     TAT
 *
 * The kind says when a slot may be forgotten without asking the rule that made it:
 *
 *     EMPTY   zero                                    at once
 *     CLAIM   lo = when it was made, body = nonce     holds no count: when it is old
 *     TAT     when the bucket is full again           then
 *     WINDOW  index, count 42                         end of window `index`
 *     SLIDE   index, previous 21, current 21          end of the window after it
 *     TICK    tick, shift 6, used 32 (class: W<<shift) two class windows after it
 *     LEASES  deadline, three counts of 14 (class: 2W) at the deadline; g = class/4
 *     WIDE    index, extent 24                        end of the window after `index`
 *     LEASE   below: tokens from Redis, or a refusal  when it ends
 *
 * class numbers a window length in the header's list (at most WEIR_WINDOWS_MAX of them).
 *
 * Purity: macros and inline packing only.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_LAYOUT_H
#define WEIR_TABLE_LAYOUT_H

#include "base/atomic16.h"
#include "base/hash.h"
#include "base/maxima.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_TABLE_MAGIC UINT64_C(0x314c425452494557) /* "WEIRTBL1" */
#define WEIR_TABLE_VERSION 2u
#define WEIR_TABLE_VERSION_OLDEST 1u /* the same without controls */
#define WEIR_PAGE 4096u

#define WEIR_BUCKET_SLOTS 8u
#define WEIR_SKETCH_ROWS 2u
#define WEIR_SKETCH_REGIONS_MAX 8u
#define WEIR_COUNTER_SHARDS 8u
#define WEIR_STATS_SHARDS 8u
#define WEIR_GENERATIONS 4u
#define WEIR_LINE_KEYS 8u /* keys of 8 bytes in a cache line */

enum weir_kind {
    WEIR_KIND_EMPTY = 0,
    WEIR_KIND_CLAIM = 1,
    WEIR_KIND_WINDOW = 2,
    WEIR_KIND_SLIDE = 3,
    WEIR_KIND_TICK = 4,
    WEIR_KIND_LEASES = 5,
    WEIR_KIND_WIDE = 6,
    WEIR_KIND_LEASE = 7,
    WEIR_KIND_TAT = 8, /* not in the three bits: its own flag */
};

struct weir_bucket {
    union weir_u16b slot[WEIR_BUCKET_SLOTS];
};

/* Counters of the table itself, spread over lines so that two inserters seldom share one. */
struct weir_table_counters {
    uint64_t insertions;
    uint64_t evictions; /* live keys that had to leave; the sketch remembers them */
    uint64_t seeds;     /* keys that came back with what the sketch remembered */
    uint64_t fallbacks; /* wide states that found no extent and were counted coarsely */
    uint64_t spare[4];
};

struct weir_table_header {
    /* Written once, before the file has a name; covered by `checksum`. */
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t file_bytes;
    uint64_t buckets;
    uint64_t sketch_cells; /* all regions together */
    uint64_t records;
    uint64_t stats_rules;
    uint64_t extent_chunks;
    uint32_t window_regions; /* of the sketch; then one region for buckets */
    uint32_t bucket_share;   /* of 8: how much of the sketch is the bucket region */
    struct weir_hash_key hash_key;
    uint8_t boot_id[16];
    int64_t boottime_offset_ns; /* of the maker's time namespace */
    uint64_t created_ns;
    uint64_t checksum;

    uint64_t key_overrides_until; /* table/key_overrides.h; 0: there are none */
    uint64_t spare0[7];

    /* The clock (clock.c): now = clock.hi + (CLOCK_BOOTTIME - clock.lo / 2), or 90% of the
     * latter while the lowest bit of clock.lo is set. */
    union weir_u16b clock;
    uint64_t clock_last; /* the latest time seen, to about 100 ms */
    uint8_t clock_boot_id[16];
    uint64_t spare1[3];

    /* Until when the sketch holds anything: windows by region, then buckets. */
    uint64_t sketch_until_ns[WEIR_SKETCH_REGIONS_MAX + 1];
    uint64_t spare2[7];

    uint64_t window_s[WEIR_WINDOWS_MAX]; /* class -> length; 0: free */

    struct weir_table_counters counters[WEIR_COUNTER_SHARDS];
};
static_assert(sizeof(struct weir_table_header) <= WEIR_PAGE, "the header is one page");
static_assert(offsetof(struct weir_table_header, counters) % 64 == 0, "a line for each shard");

/* What the table remembers of one limit: the rates that its buckets may be dated in. */
struct weir_record {
    uint64_t id;                     /* the limit's tag; 0: free */
    uint64_t rate[WEIR_GENERATIONS]; /* sequence number << 32 | requests per window */
    uint64_t approx_offset;          /* counting: approximate: where in the extents, plus 1 */
    uint64_t approx_bytes;
    uint64_t spare;
};
static_assert(sizeof(struct weir_record) == 64, "a record is a cache line");

/* One rule's counters in one shard: by enum weir_counter, and hits that are total and within the
 * limit, both, because most are, and two additions to shared memory are dearer than one. */
#define WEIR_STATS_BOTH 7
struct weir_stats_line {
    uint64_t counter[8];
};
static_assert(sizeof(struct weir_stats_line) == 64, "a line for each rule and shard");

/* Words that people read, stored and read without a lock (table/caption.h). */
#define WEIR_CAPTION_BYTES 176u
struct weir_caption {
    uint64_t sum;  /* of all that follows, and of whom it speaks */
    uint64_t head; /* length 16, cut 1 */
    uint64_t words[WEIR_CAPTION_BYTES / 8];
};

/* Another number for one counter, for a while (table/key_overrides.h). */
struct weir_key_override_row {
    union weir_u16b value;           /* until when; for whom, generation, number */
    uint64_t name;                   /* of the descriptor that it was given to */
    uint64_t since_ns;               /* when it was given */
    uint32_t rate[WEIR_GENERATIONS]; /* the numbers before, by generation */
    uint32_t stat;                   /* of its rule */
    uint32_t ordinal;                /* which of the rule's counters */
    uint64_t spare;
    struct weir_caption caption;
};
static_assert(sizeof(struct weir_key_override_row) == 256, "four cache lines");

/* What one counter was asked for, of late (table/top.h). */
struct weir_top_count {
    uint64_t now;    /* minute 24, count 40 */
    uint64_t before; /* the same, of an earlier minute */
};
struct weir_top_row {
    struct weir_top_count hits, over;
    uint64_t described; /* the key whose words the caption has */
    uint32_t stat;      /* of its rule */
    uint32_t spare0;
    uint64_t spare1[2];
    struct weir_caption caption;
};
static_assert(sizeof(struct weir_top_row) == 256, "four cache lines");

/* A process that is attached (table/processes.h). */
struct weir_process_row {
    uint64_t id; /* 0: nobody */
    uint64_t pid;
    uint64_t generation;
    uint64_t rules; /* a sum over them */
    uint64_t started_ns, published_ns, seen_ns;
    uint64_t spare;
};
static_assert(sizeof(struct weir_process_row) == 64, "a cache line");

#define WEIR_CHUNK_BYTES 65536u
#define WEIR_UNIT_BYTES 64u
#define WEIR_EXTENT_UNITS_MAX (UINT64_C(1) << 24)

/* Packing of a slot. ------------------------------------------------------------------------- */

#define WEIR_FP_SHIFT 22
#define WEIR_FP_BITS 42
#define WEIR_TAT_FLAG (UINT64_C(1) << 21)
#define WEIR_BODY_LOW_BITS 30
#define WEIR_BODY_BITS 42
#define WEIR_BODY_MAX ((UINT64_C(1) << WEIR_BODY_BITS) - 1)

static inline uint64_t weir_slot_fp(union weir_u16b s)
{
    return s.hi >> WEIR_FP_SHIFT;
}

static inline enum weir_kind weir_slot_kind(union weir_u16b s)
{
    if (s.hi & WEIR_TAT_FLAG)
        return WEIR_KIND_TAT;
    return (enum weir_kind)((s.hi >> 18) & 7);
}

static inline uint32_t weir_slot_class(union weir_u16b s)
{
    return (uint32_t)(s.hi >> 12) & 63;
}

static inline uint64_t weir_slot_index(union weir_u16b s)
{
    return s.lo >> WEIR_BODY_LOW_BITS;
}

static inline uint64_t weir_slot_body(union weir_u16b s)
{
    return (s.hi & 0xfff) << WEIR_BODY_LOW_BITS |
           (s.lo & ((UINT64_C(1) << WEIR_BODY_LOW_BITS) - 1));
}

static inline union weir_u16b weir_slot_pack(uint64_t fp, enum weir_kind kind, uint32_t class,
                                             uint64_t index, uint64_t body)
{
    union weir_u16b s;
    s.hi = fp << WEIR_FP_SHIFT | (uint64_t)kind << 18 | (uint64_t) class << 12 |
           body >> WEIR_BODY_LOW_BITS;
    s.lo = index << WEIR_BODY_LOW_BITS | (body & ((UINT64_C(1) << WEIR_BODY_LOW_BITS) - 1));
    return s;
}

/* The rate that a TAT was made at is a generation of five bits: which of four rates, and where they
 * are remembered (store/rates.h). */
#define WEIR_GENERATION_MAX 31u
#define WEIR_PLACE_RECORD 0u /* in the limit's own record; 1, 2 and 3: in those of its tag */
#define WEIR_PLACE_SHARED_MAX 3u
#define WEIR_PLACE_KEY 4u /* in the key's own override */

static inline uint32_t weir_generation(uint32_t number, uint32_t place)
{
    return number << 3 | place;
}

static inline uint32_t weir_generation_number(uint32_t generation)
{
    return generation >> 3;
}

static inline uint32_t weir_generation_place(uint32_t generation)
{
    return generation & 7;
}

static inline union weir_u16b weir_slot_pack_tat(uint64_t fp, uint32_t generation, uint64_t ns,
                                                 uint32_t num)
{
    union weir_u16b s;
    s.hi = fp << WEIR_FP_SHIFT | WEIR_TAT_FLAG | (uint64_t)generation << 16 | num;
    s.lo = ns;
    return s;
}

static inline uint32_t weir_slot_tat_generation(union weir_u16b s)
{
    return (uint32_t)(s.hi >> 16) & WEIR_GENERATION_MAX;
}

/* A LEASE (store/lease.h) has no class, because its time is the boot's and not the clock's:
 *
 *     hi  17       16       11 10              0     lo  63           28 27       0
 *         refused 1 | small 6 | until, high 11 |         until, low 36 | large 28 |
 *
 * until counts 65.5 microseconds of CLOCK_BOOTTIME. */
#define WEIR_LEASE_UNIT_BITS 16
#define WEIR_REFUSAL_FLAG (UINT64_C(1) << 17)
#define WEIR_LEASE_SMALL_MAX 63u
#define WEIR_LEASE_LARGE_MAX ((UINT32_C(1) << 28) - 1)

struct weir_slot_lease {
    uint64_t until; /* in units, below 2^47 */
    uint32_t small, large;
    bool is_refusal;
};

static inline struct weir_slot_lease weir_slot_lease(union weir_u16b s)
{
    return (struct weir_slot_lease){
        .until = (s.hi & 0x7ff) << 36 | s.lo >> 28,
        .small = (uint32_t)(s.hi >> 11) & WEIR_LEASE_SMALL_MAX,
        .large = (uint32_t)s.lo & WEIR_LEASE_LARGE_MAX,
        .is_refusal = (s.hi & WEIR_REFUSAL_FLAG) != 0,
    };
}

static inline union weir_u16b weir_slot_pack_lease(uint64_t fp, struct weir_slot_lease lease)
{
    union weir_u16b s;
    s.hi = fp << WEIR_FP_SHIFT | (uint64_t)WEIR_KIND_LEASE << 18 |
           (lease.is_refusal ? WEIR_REFUSAL_FLAG : 0) | (uint64_t)lease.small << 11 |
           (lease.until >> 36 & 0x7ff);
    s.lo = lease.until << 28 | lease.large;
    return s;
}

static inline uint32_t weir_slot_tat_num(union weir_u16b s)
{
    return (uint32_t)(s.hi & 0xffff);
}

#endif
