/* The two forms of a slot (table/layout.h):
 *
 *     tokens     until: when they end.  large: how many.  small: the logarithm of how many there
 *                were when the last were added, 5 bits; and whether somebody asks for more, 1 bit
 *     refusal    until: when the wait is over.  small and large: the least hits that were refused,
 *                12 bits; and until when that is trusted, the lower 22 bits of a number of 17 ms
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/lease.h"

#include "algo/lease.h"
#include "table/slots.h"

#include <string.h>

#define IS_ASKED 32u     /* of `small`: somebody was told that it is low */
#define LOW_PART_BITS 2u /* low: below a quarter */
#define HITS_MAX 4095u   /* of a refusal */
#define TRUST_BITS 22u
#define TRUST_UNIT_BITS 24u
#define TRUST_MASK ((UINT32_C(1) << TRUST_BITS) - 1)

/* A slot that was found, and what it says. */
struct place {
    struct weir_home home;
    union weir_u16b *slot; /* NULL: there is none */
    union weir_u16b value;
    struct weir_slot_lease lease;
    bool is_lease; /* not somebody else's, that has the same name */
};

static uint64_t units_of(uint64_t ns)
{
    return ns >> WEIR_LEASE_UNIT_BITS;
}

/* Names are mixed with the boot: the times of another one mean nothing. */
static uint64_t name_of(const struct weir_lease_at *at, uint32_t which)
{
    uint64_t boot[2];
    memcpy(boot, at->table->header->clock_boot_id, sizeof(boot));
    return weir_mix64(at->key ^ weir_mix64(boot[0] ^ weir_mix64(boot[1] + which)));
}

static struct place find(const struct weir_lease_at *at, uint32_t which)
{
    struct place p = {.home = weir_slots_locate(at->table, name_of(at, which))};
    p.slot = weir_slots_find(&p.home, &p.value);
    p.is_lease = p.slot != NULL && weir_slot_kind(p.value) == WEIR_KIND_LEASE;
    if (p.is_lease)
        p.lease = weir_slot_lease(p.value);
    return p;
}

/* How many tokens can be spent now.  None that end later than any lease: that is a slot's two
 * halves, read while it was swapped. */
static uint32_t tokens_of(const struct place *p, uint64_t boot_ns)
{
    bool is_live = p->is_lease && !p->lease.is_refusal && p->lease.until > units_of(boot_ns) &&
                   p->lease.until <= units_of(boot_ns + WEIR_LEASE_TTL_MAX_NS);
    return is_live ? p->lease.large : 0;
}

/* ---- taking ---- */

static uint32_t trusted_at(uint64_t boot_ns)
{
    return (uint32_t)(boot_ns >> TRUST_UNIT_BITS) & TRUST_MASK;
}

static uint32_t refused_hits(const struct weir_slot_lease *lease)
{
    return lease->small << 6 | lease->large >> TRUST_BITS;
}

static bool refuses(const struct place *p, uint64_t hits, uint64_t boot_ns)
{
    if (!p->is_lease || !p->lease.is_refusal || p->lease.until <= units_of(boot_ns) ||
        hits < refused_hits(&p->lease))
        return false;
    uint32_t trusted = (p->lease.large - trusted_at(boot_ns)) & TRUST_MASK;
    return trusted > 0 && trusted <= (WEIR_LEASE_TRUST_NS >> TRUST_UNIT_BITS) + 1;
}

/* Takes hits out of a place that has them.  False: somebody was faster. */
static bool spend(const struct place *p, uint64_t hits, struct weir_lease_taken *out)
{
    struct weir_slot_lease lease = p->lease;
    lease.large -= (uint32_t)hits;
    uint32_t low = (UINT32_C(1) << (lease.small & ~IS_ASKED)) >> LOW_PART_BITS;
    bool is_low = !(lease.small & IS_ASKED) && lease.large <= low;
    if (is_low)
        lease.small |= IS_ASKED;
    if (!weir_cas16(p->slot, p->value, weir_slot_pack_lease(p->home.fp, lease)))
        return false;
    *out =
        (struct weir_lease_taken){.said = WEIR_LEASE_SPENT, .is_low = is_low, .left = lease.large};
    return true;
}

/* Of two places the one that ends first, if it has enough. */
static const struct place *choose(const struct place places[2], uint32_t count, uint64_t hits,
                                  uint64_t boot_ns)
{
    const struct place *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (tokens_of(&places[i], boot_ns) < hits)
            continue;
        if (best == NULL || places[i].lease.until < best->lease.until)
            best = &places[i];
    }
    return best;
}

bool weir_lease_has(const struct weir_lease_at *at, uint64_t hits)
{
    struct place places[2];
    uint32_t count = at->is_dated ? 2 : 1;
    for (uint32_t i = 0; i < count; i++)
        places[i] = find(at, i);
    return choose(places, count, hits, at->boot_ns) != NULL ||
           refuses(&places[0], hits, at->boot_ns);
}

struct weir_lease_taken weir_lease_take(const struct weir_lease_at *at, uint64_t hits)
{
    struct weir_lease_taken out = {.said = WEIR_LEASE_NONE};
    uint32_t count = at->is_dated ? 2 : 1;
    if (hits == 0)
        return out;
    for (;;) {
        struct place places[2];
        for (uint32_t i = 0; i < count; i++)
            places[i] = find(at, i);
        const struct place *best = choose(places, count, hits, at->boot_ns);
        if (best != NULL) {
            if (spend(best, hits, &out))
                return out;
            continue;
        }
        if (!refuses(&places[0], hits, at->boot_ns))
            return out;
        if (weir_eq16(weir_peek16(places[0].slot), places[0].value)) { /* its halves belong */
            out.said = WEIR_LEASE_REFUSED;
            out.retry_after_ns = (places[0].lease.until << WEIR_LEASE_UNIT_BITS) - at->boot_ns;
            return out;
        }
    }
}

uint32_t weir_lease_left(const struct weir_lease_at *at)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < (at->is_dated ? 2u : 1u); i++) {
        struct place p = find(at, i);
        left += tokens_of(&p, at->boot_ns);
    }
    return left;
}

/* ---- putting ---- */

static uint32_t log2_of(uint32_t n)
{
    return 31u - (uint32_t)__builtin_clz(n | 1);
}

/* Writes to the place, or makes it.  False: somebody was faster. */
static bool put(const struct weir_lease_at *at, struct place *p, struct weir_slot_lease lease,
                uint64_t now_ns)
{
    union weir_u16b value = weir_slot_pack_lease(p->home.fp, lease);
    if (p->slot != NULL)
        return !p->is_lease || weir_cas16(p->slot, p->value, value);
    union weir_u16b *slot, claim;
    if (weir_slots_claim(at->table, &p->home, now_ns, &slot, &claim))
        return false;
    return weir_cas16(slot, claim, value);
}

/* Where new tokens go: what is there already stays.  Tokens of a window are all of the same, and
 * those that came last end last. */
static struct place place_for(const struct weir_lease_at *at, struct weir_slot_lease *lease)
{
    struct place first = find(at, 0);
    uint32_t held = tokens_of(&first, at->boot_ns);
    if (held > 0 && !at->is_dated) {
        lease->large += held;
        lease->until = weir_max(lease->until, first.lease.until);
    }
    if (held == 0 || !at->is_dated)
        return first;
    struct place second = find(at, 1);
    held = tokens_of(&second, at->boot_ns);
    if (held > 0) {
        lease->large += held;
        lease->until = weir_min(lease->until, second.lease.until);
    }
    return second;
}

bool weir_lease_add(const struct weir_lease_at *at, uint32_t tokens, uint64_t until_ns,
                    uint64_t now_ns)
{
    uint64_t until = units_of(weir_sat_sub(until_ns, WEIR_LEASE_MARGIN_NS));
    if (until <= units_of(at->boot_ns) || tokens == 0)
        return false;
    for (;;) {
        struct weir_slot_lease lease = {.until = until, .large = tokens};
        struct place p = place_for(at, &lease);
        lease.large = (uint32_t)weir_min(lease.large, WEIR_LEASE_LARGE_MAX);
        lease.small = log2_of(lease.large);
        if (put(at, &p, lease, now_ns))
            return true;
    }
}

void weir_lease_refuse(const struct weir_lease_at *at, uint64_t hits, uint64_t retry_after_ns,
                       uint64_t now_ns)
{
    if (hits == 0 || hits > HITS_MAX)
        return;
    uint64_t until_ns = weir_sat_add(at->boot_ns, retry_after_ns);
    uint64_t trusted_ns = at->boot_ns + weir_min(retry_after_ns, WEIR_LEASE_TRUST_NS);
    struct weir_slot_lease lease = {
        .until = weir_min(units_of(until_ns), (UINT64_C(1) << 47) - 1),
        .small = (uint32_t)hits >> 6,
        .large = ((uint32_t)hits & 63) << TRUST_BITS | ((trusted_at(trusted_ns) + 1) & TRUST_MASK),
        .is_refusal = true,
    };
    for (;;) {
        struct place p = find(at, 0);
        if (tokens_of(&p, at->boot_ns) > 0 || refuses(&p, hits, at->boot_ns))
            return;
        if (put(at, &p, lease, now_ns))
            return;
    }
}

/* ---- giving back ---- */

static uint32_t unspent(const struct place *p)
{
    return p->is_lease && !p->lease.is_refusal ? p->lease.large : 0;
}

uint32_t weir_lease_count(const struct weir_lease_at *at)
{
    struct place p = find(at, 0);
    return unspent(&p);
}

/* False: somebody was faster. */
static bool empty(struct place *p)
{
    p->lease.large = 0;
    return weir_cas16(p->slot, p->value, weir_slot_pack_lease(p->home.fp, p->lease));
}

uint32_t weir_lease_collect(const struct weir_lease_at *at, uint32_t tokens)
{
    struct place p = find(at, 0);
    return tokens > 0 && unspent(&p) == tokens && empty(&p) ? tokens : 0;
}

uint32_t weir_lease_recall(const struct weir_lease_at *at)
{
    for (;;) {
        struct place p = find(at, 0);
        uint32_t tokens = tokens_of(&p, at->boot_ns);
        if (tokens == 0 || empty(&p))
            return tokens;
    }
}

void weir_lease_drop(const struct weir_lease_at *at)
{
    for (uint32_t which = 0; which < 2; which++) {
        struct place p;
        do {
            p = find(at, which);
            if (!p.is_lease)
                break;
        } while (!weir_cas16(p.slot, p.value,
                             weir_slot_pack_lease(p.home.fp, (struct weir_slot_lease){0})));
    }
}
