/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lease_pace.h"

#include "algo/lease.h"
#include "base/hash.h"

#include <stdlib.h>

/* Parts of a lease's time to live: sooner is often, later is seldom. */
#define OFTEN_PART 8u
#define SELDOM_PART 2u

#define PRESSED_NS (WEIR_NS_PER_S / 100) /* since the last refusal was over */
#define PRESSED_SURE 16u
#define HOLD_FIRST_NS (WEIR_NS_PER_S / 1000)
#define HOLD_MAX_NS (WEIR_NS_PER_S / 100)

struct weir_lease_paces {
    uint32_t count;
    struct weir_lease_pace places[];
};

int weir_lease_paces_new(struct weir_lease_paces **out, uint32_t count)
{
    size_t bytes = sizeof(**out) + count * sizeof((*out)->places[0]);
    struct weir_lease_paces *paces = calloc(1, bytes);
    if (paces == NULL)
        return WEIR_ERR_NOMEM;
    paces->count = count;
    *out = paces;
    return 0;
}

void weir_lease_paces_free(struct weir_lease_paces *paces)
{
    free(paces);
}

struct weir_lease_pace *weir_lease_pace_of(struct weir_lease_paces *paces, uint64_t key)
{
    struct weir_lease_pace *pace = &paces->places[weir_mix64(key) & (paces->count - 1)];
    if (pace->key != key)
        *pace = (struct weir_lease_pace){.key = key};
    return pace;
}

uint32_t weir_lease_pace_ask(struct weir_lease_pace *pace, uint64_t now_ns, uint64_t ttl_ns)
{
    uint64_t gap_ns = weir_sat_sub(now_ns, pace->asked_ns);
    bool had_all = pace->granted >= pace->wish;
    pace->asked_ns = now_ns;
    if (gap_ns >= ttl_ns)
        pace->wish = 0;
    else if (gap_ns > ttl_ns / SELDOM_PART)
        pace->wish /= 2;
    else if (gap_ns < ttl_ns / OFTEN_PART && had_all)
        pace->wish = pace->wish == 0 ? WEIR_LEASE_WISH_FIRST
                                     : (uint32_t)weir_min(pace->wish * 2, WEIR_LEASE_TOKENS_MAX);
    pace->granted = 0;
    return pace->wish;
}

uint32_t weir_lease_pace_sure(const struct weir_lease_pace *pace)
{
    return pace->hold_ns > 0 ? PRESSED_SURE : 0;
}

void weir_lease_pace_granted(struct weir_lease_pace *pace, uint32_t tokens)
{
    pace->granted = tokens;
}

uint64_t weir_lease_pace_refused(struct weir_lease_pace *pace, uint64_t now_ns, uint64_t wait_ns,
                                 uint64_t ttl_ns)
{
    bool is_pressed = weir_sat_sub(now_ns, pace->refused_ns) < PRESSED_NS;
    uint64_t hold_ns = weir_max(pace->hold_ns * 2, HOLD_FIRST_NS);
    pace->hold_ns = is_pressed ? weir_min(weir_min(hold_ns, HOLD_MAX_NS), ttl_ns / 2) : 0;
    wait_ns = weir_max(wait_ns, pace->hold_ns);
    pace->asked_ns = pace->refused_ns = weir_sat_add(now_ns, wait_ns);
    return wait_ns;
}

void weir_lease_pace_unused(struct weir_lease_pace *pace)
{
    pace->wish /= 2;
}
