/* extent.h - room for states that do not fit a slot: logs, sub-windows, very large counters.
 *
 *     control 16 | owner 8 | home 8 | cells ...
 *
 * `control` is to a wide state what a slot is to a small one: all that changes, changed by one
 * 16-byte swap.  Its highest bit freezes it: a frozen state is only read, to be charged or
 * moved.  `owner` names the key (fingerprint and a nonce); who comes through a slot checks it
 * after reading control, so an extent that was given to another key is noticed.  `home` says
 * which slot was to point here, and since when: an extent that its slot does not point to, though
 * it has had the time, belonged to a process that died, and is free.
 *
 * The region is cut into chunks of 64 KiB.  A chunk is given to one size of object on first use
 * and keeps it; larger objects take chunks that follow each other.  Objects of one size fill a
 * chunk like slots.
 *
 * Threads: any number, in any number of processes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_EXTENT_H
#define WEIR_TABLE_EXTENT_H

#include "table/internal.h"

struct weir_extent {
    union weir_u16b control;
    union {
        struct {
            uint64_t owner; /* fingerprint << 22 | nonce; 0: free */
            uint64_t home;  /* number of the slot << 24 | second of the claim, low 24 bits */
        };
        union weir_u16b whose; /* both: claimed as one, so that no new owner has an old home */
    };
    uint64_t cells[];
};
static_assert(sizeof(struct weir_extent) == 32, "header of an extent");
static_assert(WEIR_CHUNK_BYTES == WEIR_TABLE_GRAIN, "what table.h promises");

#define WEIR_EXTENT_NONE UINT32_MAX
#define WEIR_EXTENT_CELLS_MAX (1u << 20) /* what a log's head can point to */
#define WEIR_CONTROL_FROZEN (UINT64_C(1) << 63)

/* Claims an extent with at least `cells` cells for a key; the number of its first unit, or
 * WEIR_EXTENT_NONE.  *owner is what the extent then names.  Its control is whatever the caller
 * stores before it links the extent: by weir_extent_store_control(), because a caller that
 * slept for long may have been taken for dead. */
uint32_t weir_extent_claim(struct weir_table *table, uint64_t fp, union weir_u16b *home,
                           uint32_t cells, uint64_t now_ns, uint64_t *owner);
/* False: the extent is no longer ours. */
bool weir_extent_store_control(struct weir_extent *extent, uint64_t owner, union weir_u16b control);
/* Gives it back; harmless if it is another's by now, or the same key's once more. */
void weir_extent_release(struct weir_table *table, uint32_t unit, uint64_t fp, uint32_t nonce);

/* The part of an owner's nonce that a slot repeats, so that what it points to can be told from
 * a later extent of the same key in the same place. */
#define WEIR_EXTENT_NONCE_BITS 9
static inline uint32_t weir_extent_nonce(uint64_t owner)
{
    return (uint32_t)(owner >> 1) & ((1u << WEIR_EXTENT_NONCE_BITS) - 1);
}

/* The extent at a unit, or NULL where no extent can be. */
struct weir_extent *weir_extent_at(const struct weir_table *table, uint32_t unit);
uint32_t weir_extent_capacity(const struct weir_table *table, uint32_t unit);

static inline bool weir_extent_is_of(const struct weir_extent *extent, uint64_t fp, uint32_t nonce)
{
    uint64_t owner = __atomic_load_n(&extent->owner, __ATOMIC_ACQUIRE);
    return owner >> WEIR_FP_SHIFT == fp && weir_extent_nonce(owner) == nonce;
}

/* Whole chunks for a sketch, for good: the offset from the start of the extents, or UINT64_MAX. */
uint64_t weir_extent_claim_chunks(struct weir_table *table, uint64_t bytes);

/* Gives back chunks that were never used. */
void weir_extent_release_chunks(struct weir_table *table, uint64_t offset, uint64_t bytes);

uint64_t weir_extent_bytes_used(const struct weir_table *table);

#endif
