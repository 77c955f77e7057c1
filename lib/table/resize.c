/* resize.c - a new file of another size, with all that the old one counts.
 *
 * A slot knows its key by part of a hash only, so it cannot be put into its place in a table of
 * another size. Its state can be charged to the new table's sketch, though, from where the key
 * takes it up when it comes next: the same way that a key comes back after it had to leave a full
 * table.  Nothing is forgiven; a key may be counted higher than it was, where keys share cells,
 * and a log's entries are dated to the resize.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "table/controls.h"
#include "table/extent.h"
#include "table/key_overrides.h"
#include "table/record.h"
#include "table/slots.h"
#include "table/spill.h"
#include "table/wide.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void move_slots(const struct weir_table *from, struct weir_table *to, uint64_t now_ns)
{
    for (uint64_t n = 0; n < from->bucket_count * WEIR_BUCKET_SLOTS; n++) {
        union weir_u16b slot =
            weir_peek16(&from->buckets[n / WEIR_BUCKET_SLOTS].slot[n % WEIR_BUCKET_SLOTS]);
        if (weir_slot_kind(slot) != WEIR_KIND_WIDE) {
            weir_spill_slot(to, slot, now_ns);
            continue;
        }
        struct weir_extent *extent;
        union weir_u16b control;
        if (weir_wide_read(from, slot, &extent, &control))
            weir_wide_charge(to, from, slot, extent, control, now_ns);
    }
}

/* What had left the old table already is found by fingerprint in cells of the old width; it can
 * only be kept where the width is the same. */
static bool move_sketch(const struct weir_table *from, struct weir_table *to)
{
    const struct weir_table_header *a = from->header;
    struct weir_table_header *b = to->header;
    if (a->sketch_cells != b->sketch_cells || a->window_regions != b->window_regions ||
        a->bucket_share != b->bucket_share)
        return false;
    memcpy(to->sketch, from->sketch, a->sketch_cells * 8);
    memcpy(b->sketch_until_ns, a->sketch_until_ns, sizeof b->sketch_until_ns);
    return true;
}

static bool sketch_is_idle(const struct weir_table *table, uint64_t now_ns)
{
    for (uint32_t i = 0; i <= WEIR_SKETCH_REGIONS_MAX; i++)
        if (table->header->sketch_until_ns[i] > now_ns)
            return false;
    return true;
}

/* A damaged record must not lead out of the file. */
static bool has_sketch(const struct weir_table *table, const struct weir_record *record)
{
    uint64_t room = table->extent_chunks * WEIR_CHUNK_BYTES, at = record->approx_offset - 1;
    return record->approx_offset != 0 && at <= room && record->approx_bytes > 0 &&
           record->approx_bytes <= room - at;
}

static bool move_records(const struct weir_table *from, struct weir_table *to)
{
    for (uint64_t n = 0; n < from->header->records; n++) {
        const struct weir_record *old = &from->records[n];
        if (old->id == 0)
            continue;
        uint32_t number = weir_record_claim(to, old->id);
        if (number == UINT32_MAX)
            continue; /* its next change of rate starts afresh */
        struct weir_record *new = &to->records[number];
        memcpy(new->rate, old->rate, sizeof new->rate);
        if (!has_sketch(from, old))
            continue;
        uint64_t offset = weir_extent_claim_chunks(to, old->approx_bytes);
        if (offset == UINT64_MAX)
            return false;
        memcpy(to->extents + offset, from->extents + old->approx_offset - 1, old->approx_bytes);
        new->approx_offset = offset + 1;
        new->approx_bytes = old->approx_bytes;
    }
    return true;
}

static void move_stats(const struct weir_table *from, struct weir_table *to)
{
    for (uint32_t n = 0; n < from->header->stats_rules; n++) {
        uint32_t number = n == 0 ? 0 : weir_stats_claim(to, from->stats_ids[n]);
        for (uint32_t k = 0; k < WEIR_COUNTERS; k++) {
            enum weir_counter counter = (enum weir_counter)k;
            weir_stats_add(to, number, 0, counter, weir_stats_read(from, n, counter));
        }
        /* Not for those who share a number in the new table: it is not theirs alone. */
        if ((number != 0 || n == 0) &&
            weir_enforced_set(to, number, weir_enforced_percent(from, n)) != 0)
            return; /* a new file has controls: never */
    }
}

/* Where there is no room for one, the rule's own number holds again. */
static void move_overrides(const struct weir_table *from, struct weir_table *to, uint64_t now_ns)
{
    struct weir_key_override override;
    struct weir_caption_text text;
    for (uint32_t i = 0; i < from->controls.override_count; i++) {
        if (!weir_key_override_at(from, i, now_ns, &override, &text))
            continue;
        bool is_known = override.stat < from->header->stats_rules;
        override.stat = is_known ? weir_stats_claim(to, from->stats_ids[override.stat]) : 0;
        if (weir_key_override_put(to, &override, &text.words, now_ns) != 0)
            continue;
    }
}

static int move_all(struct weir_table *from, struct weir_table *to, char *why, size_t why_len)
{
    uint64_t now_ns = weir_table_now(from);
    weir_table_take_identity(to, from);
    if (!sketch_is_idle(from, now_ns) && !move_sketch(from, to)) {
        snprintf(why, why_len,
                 "the table has been full, and its sketch can only be kept at its size of %llu "
                 "cells; keep that, or wait until the windows that overflowed have ended",
                 (unsigned long long)from->header->sketch_cells);
        return WEIR_ERR_TABLE;
    }
    if (!move_records(from, to)) {
        snprintf(why, why_len, "the new size has no room for the sketches of approximate limits");
        return WEIR_ERR_FULL;
    }
    move_stats(from, to);
    move_overrides(from, to, now_ns);
    move_slots(from, to, now_ns);
    return 0;
}

int weir_table_resize(const char *path, const char *new_path,
                      const struct weir_table_geometry *geometry, char *why, size_t why_len)
{
    struct weir_table *from = NULL, *to = NULL;
    struct weir_table_geometry wanted = *geometry;
    int err = weir_table_attach(&from, path, why, why_len);
    if (err != 0)
        return err;
    /* The same regions, and while something is in it the same width: see move_sketch(). */
    wanted.window_regions = from->header->window_regions;
    wanted.bucket_share = from->header->bucket_share;
    if (wanted.sketch_cells == 0 && !sketch_is_idle(from, weir_table_now(from)))
        wanted.sketch_cells = from->header->sketch_cells;
    if (access(new_path, F_OK) == 0) {
        snprintf(why, why_len, "%s: exists already", new_path);
        err = WEIR_ERR_INVALID;
    }
    if (err == 0)
        err = weir_table_open(&to, new_path, &wanted, why, why_len);
    if (err == 0)
        err = move_all(from, to, why, why_len);
    weir_table_close(to);
    if (err != 0 && to != NULL)
        (void)unlink(new_path);
    weir_table_close(from);
    return err;
}
