/* SPDX-License-Identifier: Apache-2.0 */
#include "table/record.h"

/* Probes before a full region is believed to be full. */
#define PROBES_MAX 256u

uint32_t weir_window_class(struct weir_table *table, uint64_t window_s)
{
    for (uint32_t class = 0; class < WEIR_WINDOWS_MAX; class ++) {
        uint64_t *at = &table->header->window_s[class];
        uint64_t seen = 0;
        if (__atomic_compare_exchange_n(at, &seen, window_s, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            seen == window_s)
            return class;
    }
    return WEIR_WINDOWS_MAX;
}

uint32_t weir_record_claim(struct weir_table *table, uint64_t id)
{
    uint64_t count = table->header->records;
    uint64_t start = weir_mix64(id);
    for (uint64_t probe = 0; probe < PROBES_MAX && probe < count; probe++) {
        uint64_t number = (start + probe) % count;
        uint64_t seen = 0;
        if (__atomic_compare_exchange_n(&table->records[number].id, &seen, id, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            seen == id)
            return (uint32_t)number;
    }
    return UINT32_MAX;
}

uint32_t weir_record_find(const struct weir_table *table, uint64_t id)
{
    uint64_t count = table->header->records;
    uint64_t start = weir_mix64(id);
    for (uint64_t probe = 0; probe < PROBES_MAX && probe < count; probe++) {
        uint64_t number = (start + probe) % count;
        uint64_t seen = __atomic_load_n(&table->records[number].id, __ATOMIC_ACQUIRE);
        if (seen == id)
            return (uint32_t)number;
        if (seen == 0)
            break;
    }
    return UINT32_MAX;
}

uint32_t weir_record_add(struct weir_table *table, uint32_t record, uint32_t requests)
{
    uint64_t *rate = table->records[record].rate;
    for (uint32_t number = 0; number < WEIR_GENERATIONS; number++) {
        uint64_t seen = 0;
        if (__atomic_compare_exchange_n(&rate[number], &seen, UINT64_C(1) << 32 | requests, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            (uint32_t)seen == requests)
            return number;
    }
    return WEIR_GENERATIONS;
}

/* Entry g of rate[] holds the sequence numbers that are g modulo WEIR_GENERATIONS; the highest is
 * the newest. A change swaps the oldest entry for the next number: of two processes that change
 * to different rates at once, one comes first and the other after it. */
uint32_t weir_record_newest(struct weir_table *table, uint32_t record, uint32_t requests)
{
    uint64_t *rate = table->records[record].rate;
    for (;;) {
        uint64_t newest = 0;
        for (uint32_t g = 0; g < WEIR_GENERATIONS; g++) {
            uint64_t seen = __atomic_load_n(&rate[g], __ATOMIC_ACQUIRE);
            if (seen > newest)
                newest = seen;
        }
        uint64_t sequence = newest >> 32;
        if (sequence != 0 && (uint32_t)newest == requests)
            return (uint32_t)(sequence % WEIR_GENERATIONS);
        uint32_t next = (uint32_t)((sequence + 1) % WEIR_GENERATIONS);
        uint64_t oldest = __atomic_load_n(&rate[next], __ATOMIC_ACQUIRE);
        if (oldest >> 32 > sequence)
            continue; /* somebody has just made it */
        if (__atomic_compare_exchange_n(&rate[next], &oldest, (sequence + 1) << 32 | requests,
                                        false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return next;
    }
}
