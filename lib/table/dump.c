/* dump.c - looks at a whole table: occupancy, live slots, and moving all of it to another file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "table/extent.h"
#include "table/internal.h"
#include "table/slots.h"
#include "table/spill.h"
#include "table/wide.h"

#include <stdio.h>
#include <string.h>

static uint64_t sum_counters(const struct weir_table *table, size_t offset)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WEIR_COUNTER_SHARDS; i++) {
        const unsigned char *shard = (const unsigned char *)&table->header->counters[i];
        sum += __atomic_load_n((const uint64_t *)(const void *)(shard + offset), __ATOMIC_RELAXED);
    }
    return sum;
}

void weir_table_stats(const struct weir_table *table, uint64_t now_ns, struct weir_table_stats *out)
{
    *out = (struct weir_table_stats){
        .file_bytes = table->map.file_bytes,
        .slots = table->bucket_count * WEIR_BUCKET_SLOTS,
        .insertions = sum_counters(table, offsetof(struct weir_table_counters, insertions)),
        .evictions = sum_counters(table, offsetof(struct weir_table_counters, evictions)),
        .sketch_answers = sum_counters(table, offsetof(struct weir_table_counters, seeds)),
        .extent_bytes = table->extent_chunks * WEIR_CHUNK_BYTES,
        .extent_bytes_used = weir_extent_bytes_used(table),
    };
    for (uint64_t b = 0; b < table->bucket_count; b++) {
        for (uint32_t i = 0; i < WEIR_BUCKET_SLOTS; i++) {
            union weir_u16b value = weir_peek16(&table->buckets[b].slot[i]);
            out->slots_used += weir_slot_kind(value) != WEIR_KIND_EMPTY;
            out->slots_live += weir_slot_expires_ns(table, value) > now_ns;
        }
    }
}

void weir_table_layout(const struct weir_table *table, struct weir_table_geometry *out)
{
    const struct weir_table_header *h = table->header;
    *out = (struct weir_table_geometry){
        .file_bytes = h->file_bytes,
        .slots = h->buckets * WEIR_BUCKET_SLOTS,
        .sketch_cells = h->sketch_cells,
        .extent_bytes = h->extent_chunks * WEIR_CHUNK_BYTES,
        .records = h->records,
        .window_regions = h->window_regions,
        .bucket_share = h->bucket_share,
    };
}

static void view_of(const struct weir_table *table, union weir_u16b value,
                    struct weir_slot_view *out)
{
    static const char *const names[] = {"empty",  "claim", "window", "slide", "tick",
                                        "leases", "wide",  "lease",  "bucket"};
    enum weir_kind kind = weir_slot_kind(value);
    uint64_t body = weir_slot_body(value);
    out->fingerprint = weir_slot_fp(value);
    out->kind = names[kind];
    out->expires_ns = weir_slot_expires_ns(table, value);
    out->window_s = kind == WEIR_KIND_TAT || kind == WEIR_KIND_LEASE
                        ? 0
                        : weir_class_window_s(table, weir_slot_class(value));
    out->a = kind == WEIR_KIND_LEASE ? weir_slot_lease(value).is_refusal
             : kind == WEIR_KIND_TAT ? value.lo
                                     : weir_slot_index(value);
    out->b = kind == WEIR_KIND_LEASE   ? weir_slot_lease(value).large
             : kind == WEIR_KIND_TAT   ? weir_slot_tat_num(value)
             : kind == WEIR_KIND_SLIDE ? body >> 21
             : kind == WEIR_KIND_TICK  ? body & UINT32_MAX
                                       : body;
    out->c = kind == WEIR_KIND_LEASE   ? weir_slot_lease(value).small
             : kind == WEIR_KIND_TAT   ? weir_slot_tat_generation(value)
             : kind == WEIR_KIND_SLIDE ? body & WEIR_SLIDE_INLINE_MAX
                                       : 0;
}

void weir_table_dump(const struct weir_table *table, uint64_t now_ns,
                     void (*each)(void *ctx, const struct weir_slot_view *slot), void *ctx)
{
    for (uint64_t n = 0; n < table->bucket_count * WEIR_BUCKET_SLOTS; n++) {
        union weir_u16b value =
            weir_peek16(&table->buckets[n / WEIR_BUCKET_SLOTS].slot[n % WEIR_BUCKET_SLOTS]);
        if (weir_slot_expires_ns(table, value) <= now_ns)
            continue;
        struct weir_slot_view view = {.index = n};
        view_of(table, value, &view);
        each(ctx, &view);
    }
}
