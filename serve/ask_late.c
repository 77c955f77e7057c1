/* ask_late.c - calls that were not answered in time, set right once their fate is known.
 *
 *                             the store has charged it      it has not      nobody knows
 *     policy let it pass      fine                          owed            owed
 *     policy refused it       given back                    fine            fine
 *
 * What nobody will ever know - the connection broke, and the server may have obeyed before - is
 * charged: a count may then be too high by what was under way, never too low.
 *
 * Until then the request's block stays; there are no more of them than the link remembers calls.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/math.h"
#include "base/err.h"
#include "serve/ask_internal.h"

void weir_ask_late(void *ctx, uint64_t tag, int err, const struct weir_redis_answer *answer)
{
    void *of = (void *)(uintptr_t)(tag & ~UINT64_C(7)); /* as weir_ask_tag() made it */
    (void)ctx;
    switch ((enum weir_ask_tag)(tag & 7)) {
    case WEIR_TAG_PART:
        weir_ask_part_late(of, err, answer);
        return;
    case WEIR_TAG_THROTTLE:
        weir_ask_throttle_late(of, err, answer);
        return;
    case WEIR_TAG_DEBT:
        weir_ask_debt_late(of, err);
        return;
    }
    weir_panic("a late call is one of ours", __FILE__, __LINE__);
}

void weir_ask_make_return(struct weir_redis_counter *counter, uint64_t decided_ns)
{
    const struct weir_limit *limit = counter->limit;
    counter->op = WEIR_OP_RELEASE;
    counter->part = WEIR_REDIS_NO_PART;
    counter->ends = true;
    counter->is_rescaled = false;
    counter->mark = counter->new_mark;
    switch (weir_redis_kind_of(limit)) {
    case WEIR_REDIS_WINDOW:
    case WEIR_REDIS_SLIDE:
    case WEIR_REDIS_TICK:
        counter->mark = decided_ns / limit->window_ns;
        break;
    case WEIR_REDIS_SUB:
        counter->mark = (uint64_t)((weir_u128)decided_ns * limit->buckets / limit->window_ns);
        break;
    case WEIR_REDIS_BUCKET:
        if (limit->algorithm == WEIR_TOKEN_BUCKET)
            counter->op = WEIR_OP_GIVE;
        break;
    case WEIR_REDIS_LOG:
    case WEIR_REDIS_CLOSED:
        counter->op = WEIR_OP_GIVE;
        break;
    case WEIR_REDIS_LEASES:
        break;
    }
}

/* ---- of a request ---- */

static void returned(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_part *part = (struct weir_ask_part *)call; /* its first member */
    (void)err; /* if not even this works, a count stays too high */
    (void)answer;
    weir_ask_part_end(part);
}

/* Gives back what the store has charged of a request that was refused meanwhile. */
static void give_back(struct weir_ask_part *part)
{
    struct weir_ask *ask = part->ask;
    ask->request.is_atomic = false;
    part->call.done = returned;
    part->call.late_tag = 0;
    weir_ask_add(ask->asks, WEIR_ASK_COUNT_RETURNED, 1);
    weir_redis_link_ask(ask->asks->link, &part->call);
}

void weir_ask_part_owe(struct weir_ask_part *part)
{
    struct weir_asks *asks = part->ask->asks;
    const struct weir_redis_request *r = &part->ask->request;
    for (uint32_t i = part->from; i < part->from + part->count; i++) {
        const struct weir_redis_counter *counter = &r->counters[i];
        if (r->owners[i].charge != WEIR_REDIS_STAND_IN && counter->op == WEIR_OP_TAKE &&
            r->deciders[r->owners[i].item] == WEIR_WITHOUT_STORE_PASSED)
            weir_ask_owe(asks, counter->key, counter->limit, counter->hits, part->ask->decided_ns);
    }
}

/* Whether the counter holds the hits: some count what they refuse, too. */
static bool has_counted(const struct weir_redis_counter *counter)
{
    bool is_taken = counter->is_charged || (counter->limit->count_rejected && !counter->is_stale);
    return counter->op == WEIR_OP_TAKE && is_taken && counter->hits > 0;
}

/* Leaves those of its counters that are to be given back; says how many. */
static uint32_t sort_out(struct weir_ask_part *part, uint64_t decided_ns)
{
    struct weir_ask *ask = part->ask;
    struct weir_redis_request *r = &ask->request;
    uint32_t kept = part->from;
    for (uint32_t i = part->from; i < part->from + part->count; i++) {
        struct weir_redis_counter *counter = &r->counters[i];
        bool has_passed = r->deciders[r->owners[i].item] == WEIR_WITHOUT_STORE_PASSED;
        if (r->owners[i].charge == WEIR_REDIS_STAND_IN || counter->op != WEIR_OP_TAKE)
            continue;
        if (has_passed && !has_counted(counter))
            weir_ask_owe(ask->asks, counter->key, counter->limit, counter->hits, ask->decided_ns);
        if (has_passed || !counter->is_charged)
            continue;
        weir_ask_make_return(counter, decided_ns);
        r->owners[kept] = r->owners[i];
        r->counters[kept++] = *counter;
    }
    return kept - part->from;
}

void weir_ask_part_late(void *ctx, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_part *part = ctx;
    struct weir_redis_request *r = &part->ask->request;
    uint64_t decided_ns;
    if (err != 0) {
        weir_ask_part_owe(part);
    } else if (weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count,
                                      r->counters + part->from, part->count, &decided_ns) == 0) {
        part->count = sort_out(part, decided_ns);
        if (part->count > 0) {
            give_back(part);
            return;
        }
    }
    weir_ask_part_end(part);
}
