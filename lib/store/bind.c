/* bind.c - ties the limits of a rules set to a table, before the set is published.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "store/local.h"
#include "store/rates.h"
#include "table/extent.h"
#include "table/record.h"

/* The window length by which a limit's slots expire (see layout.h). */
static uint64_t class_window_s(const struct weir_limit *limit, uint32_t *shift)
{
    uint64_t window_s = weir_limit_window_s(limit);
    *shift = 0;
    if (limit->algorithm == WEIR_CONCURRENCY)
        return 2 * window_s;
    if (limit->algorithm == WEIR_TOKEN_BUCKET && limit->refill_interval && limit->requests > 0) {
        uint64_t ticks = (limit->burst + (uint64_t)limit->requests - 1) / limit->requests;
        while (UINT64_C(1) << *shift < ticks)
            ++*shift;
        return window_s << *shift;
    }
    return window_s;
}

/* Sketches of another shape, whose cells cannot be read in this one, have records of their own. */
static uint64_t sketch_id(const struct weir_limit *limit)
{
    uint64_t id = limit->tag ^ weir_mix64(limit->variant);
    id ^= weir_mix64((uint64_t)limit->approx->width << 8 ^ limit->approx->depth ^
                     (uint64_t)limit->approx->bloom_words << 40);
    return id | 1;
}

/* The sketch of an approximate limit lies in chunks of its own, found again through the record. */
static int bind_sketch(struct weir_table *table, struct weir_limit *limit)
{
    struct weir_approx *approx = limit->approx;
    uint64_t bytes = weir_approx_bytes(limit, approx);
    limit->record = weir_record_claim(table, sketch_id(limit));
    limit->generation = 0; /* cells are dated, not rated */
    if (limit->record == WEIR_NO_RECORD)
        return WEIR_ERR_FULL;
    struct weir_record *record = &table->records[limit->record];
    uint64_t offset = __atomic_load_n(&record->approx_offset, __ATOMIC_ACQUIRE);
    if (offset == 0) {
        uint64_t claimed = weir_extent_claim_chunks(table, bytes);
        if (claimed == UINT64_MAX)
            return WEIR_ERR_FULL;
        /* The same for everyone: the shape is in the record's id. */
        __atomic_store_n(&record->approx_bytes, bytes, __ATOMIC_RELAXED);
        if (__atomic_compare_exchange_n(&record->approx_offset, &offset, claimed + 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            offset = claimed + 1;
        else /* another process was faster; offset is its */
            weir_extent_release_chunks(table, claimed, bytes);
    }
    uint64_t room = table->extent_chunks * WEIR_CHUNK_BYTES;
    if (offset - 1 > room || bytes > room - (offset - 1) || (offset - 1) % WEIR_CHUNK_BYTES != 0)
        return WEIR_ERR_TABLE;
    unsigned char *at = table->extents + offset - 1;
    approx->cells = at;
    approx->bloom = (uint64_t *)(void *)(at + bytes) - approx->bloom_words;
    return 0;
}

static int bind_window(struct weir_table *table, struct weir_limit *limit)
{
    uint32_t shift;
    uint64_t window_s = class_window_s(limit, &shift);
    uint32_t class = weir_window_class(table, window_s);
    if (class == WEIR_WINDOWS_MAX)
        return WEIR_ERR_FULL;
    limit->window_class = (uint8_t) class;
    limit->window_shift = (uint8_t)shift;
    return 0;
}

int weir_local_bind_own(struct weir_table *table, struct weir_limit *limit, uint32_t generation)
{
    if (limit->record != WEIR_NO_RECORD)
        limit->generation = (uint8_t)generation;
    /* Only where tokens come at intervals does the length of the window depend on the number. */
    return limit->refill_interval ? bind_window(table, limit) : 0;
}

/* How far ahead of its time a bucket's state may be.  Where others' hits are learned of later, it
 * also owes those: eight times what it holds, or passes in a window, if forty nodes at once have
 * each admitted the fifth that they may (store/gossip.h); weir_gcra_add() uses half of the lag. */
static uint32_t lag_ms_of(const struct weir_table *table, const struct weir_limit *limit)
{
    if (limit->consistency != WEIR_CONSISTENCY_EVENTUAL)
        return table->lag_ms;
    uint64_t longer_ns = limit->cap_ns > limit->window_ns ? limit->cap_ns : limit->window_ns;
    uint64_t lag_ms = longer_ns / 1000000 * 16 + 2 * (uint64_t)table->lag_ms;
    return lag_ms < UINT32_MAX ? (uint32_t)lag_ms : UINT32_MAX;
}

int weir_local_bind(struct weir_table *table, struct weir_limit *limit)
{
    int err = bind_window(table, limit);
    if (err != 0)
        return err;
    limit->lag_ms = limit->approx == NULL ? lag_ms_of(table, limit) : 0;
    if (limit->approx != NULL)
        return bind_sketch(table, limit);
    weir_rates_bind(table, limit);
    return 0;
}
