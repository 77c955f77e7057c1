/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/combine.h"

enum weir_code weir_combine_many(const struct weir_status *statuses, uint32_t count)
{
    uint32_t quota = 0, quota_over = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_over = statuses[i].code == WEIR_CODE_OVER_LIMIT;
        if (is_over && !statuses[i].is_quota)
            return WEIR_CODE_OVER_LIMIT;
        quota += statuses[i].is_quota;
        quota_over += statuses[i].is_quota && is_over;
    }
    return quota > 0 && quota_over == quota ? WEIR_CODE_OVER_LIMIT : WEIR_CODE_OK;
}

/* Whether a is to be shown rather than b. */
static bool is_tighter(const struct weir_verdict *a, const struct weir_verdict *b)
{
    if (a->allowed != b->allowed)
        return !a->allowed;
    if (!a->allowed)
        return a->retry_after_ns > b->retry_after_ns; /* WEIR_NEVER is the longest of all */
    if (a->remaining != b->remaining)
        return a->remaining < b->remaining;
    return a->reset_after_ns > b->reset_after_ns;
}

const struct weir_charge *weir_tightest_of_many(const struct weir_charge *charges, uint32_t count)
{
    const struct weir_charge *tightest = &charges[0];
    for (uint32_t i = 1; i < count; i++) {
        if (is_tighter(&charges[i].verdict, &tightest->verdict))
            tightest = &charges[i];
    }
    return tightest;
}

uint64_t weir_longest_delay_of_many(const struct weir_charge *charges, uint32_t count)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!charges[i].verdict.allowed)
            return 0;
        if (charges[i].verdict.delay_ns > longest)
            longest = charges[i].verdict.delay_ns;
    }
    return longest;
}

uint64_t weir_delay_ns(const struct weir_decision *decision)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < decision->status_count && decision->overall == WEIR_CODE_OK; i++)
        if (decision->statuses[i].delay_ns > longest)
            longest = decision->statuses[i].delay_ns;
    return longest;
}
