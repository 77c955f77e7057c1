/* ask_elsewhere.c - what processes on the same table decide by themselves, and tell afterwards.
 *
 * They spend tokens that are leased here, ask for more before there are none, and owe what they let
 * pass while nobody was here to be asked.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/math.h"
#include "engine/publish.h"
#include "proto/desk.h"
#include "serve/ask_internal.h"

void weir_ask_spent(struct weir_asks *asks, const struct weir_desk_spent *spent)
{
    weir_ask_add(asks, WEIR_ASK_COUNT_LEASED, spent->leased);
    weir_ask_add(asks, WEIR_ASK_COUNT_SPENT, spent->tokens);
    weir_ask_add(asks, WEIR_ASK_COUNT_REFUSED, spent->refused);
}

void weir_ask_refill(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns)
{
    weir_publish_hold(asks->worker->session);
    /* What cannot be planned here is asked for, and then told. */
    (void)!weir_redis_request_refill(&asks->planner, request, asks->prefix, now_ns);
}

/* ---- owed ---- */

static uint64_t hits_of(const struct weir_request *request, uint32_t i)
{
    const struct weir_descriptor *d = &request->descriptors[i];
    return d->has_hits ? d->hits : weir_max(request->hits_addend, 1);
}

/* The same request, asking for nothing: to be named only. */
static struct weir_request look(const struct weir_request *request,
                                struct weir_descriptor room[static WEIR_DESCRIPTORS_MAX])
{
    struct weir_request out = *request;
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        room[i] = request->descriptors[i];
        room[i].has_hits = true;
        room[i].hits = 0;
    }
    out.descriptors = room;
    return out;
}

void weir_ask_owed(struct weir_asks *asks, const struct weir_request *request, uint32_t times,
                   uint64_t since_ns)
{
    struct weir_descriptor room[WEIR_DESCRIPTORS_MAX];
    struct weir_redis_request named;
    const struct weir_request nothing = look(request, room);
    uint64_t now_ns = weir_loop_now(asks->worker->loop);
    weir_publish_hold(asks->worker->session);
    if (weir_redis_request_name(&named, &asks->planner, &nothing, asks->prefix, now_ns) != 0)
        return; /* rules that are gone */
    for (uint32_t i = 0; i < named.count; i++) {
        const struct weir_redis_counter *counter = &named.counters[i];
        uint64_t hits = weir_sat_mul(hits_of(request, named.owners[i].item), times);
        if (!named.owners[i].is_compat)
            weir_ask_owe(asks, counter->key, counter->limit, hits, weir_min(since_ns, now_ns));
    }
}
