/* wide.h - states too large for a slot: how their control words are packed, and how they leave.
 *
 *     LOG    lo: nonce 1 | last 63          hi: frozen 1 | head 20 | len 21 | run 21
 *     SUB    lo: base 32 | total 32         hi: frozen 1 | index 40
 *     SLIDE  lo: current 40 | index, low 24 hi: frozen 1 | nonce 13 | previous 40 | index, high 10
 *
 * The slot of a wide state says where it is and how to read it without its rule:
 *
 *     body = nonce 9 << 33 | buckets 7 << 26 | flavour 2 << 24 | extent 24
 *
 * Threads: any number.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_WIDE_H
#define WEIR_TABLE_WIDE_H

#include "algo/sliding_counter.h"
#include "algo/sliding_log.h"
#include "algo/sub_windows.h"
#include "table/extent.h"

enum weir_wide {
    WEIR_WIDE_LOG = 0,
    WEIR_WIDE_SUB = 1,
    WEIR_WIDE_SLIDE = 2,
};

#define WEIR_WIDE_COUNT_MAX ((UINT64_C(1) << 40) - 1)

/* A wide slot's body, taken apart. */
struct weir_wide_ref {
    uint32_t unit;
    enum weir_wide flavour;
    uint32_t buckets;
    uint32_t nonce; /* of the extent's owner */
};

static inline uint64_t weir_wide_pack_ref(struct weir_wide_ref ref)
{
    return (uint64_t)ref.nonce << 33 | (uint64_t)ref.buckets << 26 | (uint64_t)ref.flavour << 24 |
           ref.unit;
}

static inline struct weir_wide_ref weir_wide_unpack_ref(uint64_t body)
{
    return (struct weir_wide_ref){.unit = (uint32_t)(body & 0xffffff),
                                  .flavour = (enum weir_wide)(body >> 24 & 3),
                                  .buckets = (uint32_t)(body >> 26 & 127),
                                  .nonce = (uint32_t)(body >> 33)};
}

union weir_u16b weir_wide_pack_log(const struct weir_log *log, uint64_t nonce);
/* Bounded by the ring: a damaged control word must not lead out of its extent. */
struct weir_log weir_wide_unpack_log(union weir_u16b control, uint32_t capacity);
union weir_u16b weir_wide_pack_sub(const struct weir_sub *sub);
struct weir_sub weir_wide_unpack_sub(union weir_u16b control);
union weir_u16b weir_wide_pack_slide(const struct weir_slide *slide, uint64_t nonce);
struct weir_slide weir_wide_unpack_slide(union weir_u16b control);

/* Writes into the cells what the control word says belongs there.  False: the control word has
 * changed meanwhile, so what was read of it is of no use. */
bool weir_wide_flush(struct weir_extent *extent, uint32_t capacity, struct weir_wide_ref ref,
                     union weir_u16b control);

/* Sets one cell, while the control word is still the one that the value belongs to. */
bool weir_wide_set_cell(struct weir_extent *extent, uint32_t at, uint64_t value,
                        union weir_u16b control);

/* The control word, read as one, if the extent is (still) the key's; false otherwise, and where the
 * slot is damaged so that its cells would lie elsewhere. */
bool weir_wide_read(const struct weir_table *table, union weir_u16b slot,
                    struct weir_extent **extent, union weir_u16b *control);

/* Freezes the state for good and returns it in *control. */
bool weir_wide_freeze(const struct weir_table *table, union weir_u16b slot,
                      struct weir_extent **extent, union weir_u16b *control);

/* Charges what a control word says to the sketch of `to`. */
void weir_wide_charge(struct weir_table *to, const struct weir_table *from, union weir_u16b slot,
                      const struct weir_extent *extent, union weir_u16b control, uint64_t now_ns);

/* Freezes the state and charges it to the sketch; the slot may then be given away. */
bool weir_wide_evict(struct weir_table *table, union weir_u16b slot, uint64_t now_ns);
/* Frees the extent of a slot that was given away. */
void weir_wide_release(struct weir_table *table, union weir_u16b slot);

#endif
