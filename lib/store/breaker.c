/* SPDX-License-Identifier: Apache-2.0 */
#include "store/breaker.h"

#include "base/hash.h"

void weir_breaker_init(struct weir_breaker *b, uint64_t seed)
{
    *b = (struct weir_breaker){.pause_ns = WEIR_BREAKER_PAUSE_FIRST_NS, .chance = seed};
}

void weir_breaker_succeed(struct weir_breaker *b)
{
    b->failures = 0;
    if (b->state == WEIR_BREAKER_OPEN)
        return; /* an answer to what was asked before: a probe will tell */
    b->state = WEIR_BREAKER_CLOSED;
    b->pause_ns = WEIR_BREAKER_PAUSE_FIRST_NS;
}

bool weir_breaker_trip(struct weir_breaker *b, uint64_t now_ns)
{
    bool opens = b->state != WEIR_BREAKER_OPEN;
    uint64_t cut_ns = weir_mix64(++b->chance) % (b->pause_ns / 2);
    b->state = WEIR_BREAKER_OPEN;
    b->failures = 0;
    b->due_ns = now_ns + b->pause_ns - cut_ns;
    b->pause_ns *= 2;
    if (b->pause_ns > WEIR_BREAKER_PAUSE_MAX_NS)
        b->pause_ns = WEIR_BREAKER_PAUSE_MAX_NS;
    return opens;
}

bool weir_breaker_fail(struct weir_breaker *b, uint64_t now_ns)
{
    if (b->state == WEIR_BREAKER_OPEN)
        return false; /* of what was asked before */
    if (b->state == WEIR_BREAKER_CLOSED && ++b->failures < WEIR_BREAKER_FAILURES)
        return false;
    return weir_breaker_trip(b, now_ns);
}

bool weir_breaker_try(struct weir_breaker *b)
{
    if (b->state != WEIR_BREAKER_OPEN)
        return false;
    b->state = WEIR_BREAKER_TRIAL;
    return true;
}
