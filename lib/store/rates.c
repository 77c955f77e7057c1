/* SPDX-License-Identifier: Apache-2.0 */
#include "store/rates.h"

#include "base/hash.h"
#include "table/key_overrides.h"
#include "table/record.h"

/* The lowest bits of a record's id: what kind it is, so that who knows one record of a tag by its
 * number alone, as a ticket does, finds the others. */
#define KIND_MASK UINT64_C(7)
#define KIND_OWN UINT64_C(4) /* else the place: 1, 2 or 3 */

static uint64_t shared_id(uint64_t tag, uint32_t place)
{
    return (weir_mix64(tag) & ~KIND_MASK) | place;
}

static uint64_t own_id(const struct weir_limit *limit)
{
    return (weir_mix64(limit->tag ^ weir_mix64(limit->variant)) & ~KIND_MASK) | KIND_OWN;
}

/* Windows and logs count hits, which mean the same at any rate; an instant does not. */
static bool is_instant(const struct weir_limit *limit)
{
    return limit->algorithm == WEIR_LEAKY_BUCKET || weir_limit_drips(limit);
}

/* Says whether the rate is one of those that the tag's limits share. */
static bool bind_shared(struct weir_table *table, struct weir_limit *limit)
{
    for (uint32_t place = 1; place <= WEIR_PLACE_SHARED_MAX; place++) {
        uint32_t record = weir_record_claim(table, shared_id(limit->tag, place));
        if (record == WEIR_NO_RECORD)
            return false;
        uint32_t number = weir_record_add(table, record, limit->requests);
        if (number == WEIR_GENERATIONS)
            continue;
        limit->record = record;
        limit->generation = (uint8_t)weir_generation(number, place);
        return true;
    }
    return false;
}

void weir_rates_bind(struct weir_table *table, struct weir_limit *limit)
{
    limit->record = WEIR_NO_RECORD;
    limit->generation = 0;
    if (!is_instant(limit) || bind_shared(table, limit))
        return;
    limit->record = weir_record_claim(table, own_id(limit));
    if (limit->record != WEIR_NO_RECORD)
        limit->generation = (uint8_t)weir_generation(
            weir_record_newest(table, limit->record, limit->requests), WEIR_PLACE_RECORD);
}

/* The record of this place, or WEIR_NO_RECORD.  A limit that was made of a ticket has no tag, but
 * the number of one record. */
static uint32_t record_at(const struct weir_table *table, const struct weir_limit *limit,
                          uint32_t place)
{
    uint64_t known = __atomic_load_n(&table->records[limit->record].id, __ATOMIC_RELAXED);
    uint64_t wanted = place == WEIR_PLACE_RECORD ? KIND_OWN : place;
    if ((known & KIND_MASK) == wanted)
        return limit->record;
    if (place == WEIR_PLACE_RECORD)
        return weir_record_find(table, own_id(limit));
    bool is_of_tag = (known & KIND_MASK) != KIND_OWN;
    return weir_record_find(table, is_of_tag ? (known & ~KIND_MASK) | place
                                             : shared_id(limit->tag, place));
}

uint32_t weir_rates_find(const struct weir_table *table, const struct weir_limit *limit,
                         uint64_t key, uint32_t generation)
{
    uint32_t place = weir_generation_place(generation);
    const struct weir_limit *whole = limit->record_of ? limit->record_of : limit;
    if (place == WEIR_PLACE_KEY)
        return weir_key_override_rate(table, key, generation);
    if (place > WEIR_PLACE_SHARED_MAX)
        return 0; /* a damaged table's */
    uint32_t record = record_at(table, whole, place);
    if (record == WEIR_NO_RECORD)
        return 0;
    return weir_record_requests(table, record, weir_generation_number(generation));
}
