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
#include "serve/ask_lease.h"

#define RETURN_WAITS_MAX 40 /* of 50 ms: what is given back later than that may have come back */

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
    case WEIR_TAG_ERRAND:
        weir_ask_errand_late(of, err, answer);
        return;
    }
    weir_panic("a late call is one of ours", __FILE__, __LINE__);
}

void weir_ask_make_return(struct weir_redis_counter *counter)
{
    counter->op = WEIR_OP_RELEASE;
    counter->part = WEIR_REDIS_NO_PART;
    counter->ends = true;
    counter->is_rescaled = false;
    counter->mark = counter->hits_mark;
}

/* ---- giving back ---- */

static void end_part(struct weir_ask_part *part)
{
    if (--part->ask->parts_late == 0)
        weir_ask_free(part->ask);
}

/* If not even this works, a count stays too high. */
static void returned(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_return *sent = (struct weir_ask_return *)call; /* its first member */
    (void)answer;
    if (err != WEIR_ERR_STORE_AWAY || sent->waits++ == RETURN_WAITS_MAX) {
        sent->finish(sent);
        return;
    }
    sent->next = sent->asks->returns;
    sent->asks->returns = sent;
}

void weir_ask_return(struct weir_ask_return *sent, void (*finish)(struct weir_ask_return *done))
{
    sent->call.done = returned;
    sent->call.late_tag = 0;
    sent->call.since_ns = 0;
    sent->call.needs_replicas = false;
    sent->finish = finish;
    weir_ask_add(sent->asks, WEIR_ASK_COUNT_RETURNED, 1);
    weir_redis_link_ask(sent->asks->link, &sent->call);
}

void weir_ask_return_more(struct weir_asks *asks)
{
    struct weir_ask_return *sent = asks->returns;
    asks->returns = NULL;
    while (sent != NULL) {
        struct weir_ask_return *next = sent->next;
        weir_redis_link_ask(asks->link, &sent->call);
        sent = next;
    }
}

static void part_returned(struct weir_ask_return *sent)
{
    end_part((struct weir_ask_part *)sent); /* its first member */
}

/* Its counters are questions now that give hits back. */
static void give_back(struct weir_ask_part *part)
{
    part->ask->request.is_atomic = false;
    weir_ask_return(&part->sent, part_returned);
}

static bool is_take(const struct weir_redis_counter *counter)
{
    return counter->op == WEIR_OP_TAKE || counter->op == WEIR_OP_LEASE;
}

/* Leaves those counters of a part of which the answer says yes to must_return. */
static void collect(struct weir_ask_part *part,
                    bool (*must_return)(struct weir_ask *ask, const struct weir_redis_counter *,
                                        const struct weir_redis_owner *))
{
    struct weir_redis_request *r = &part->ask->request;
    uint32_t kept = part->from;
    for (uint32_t i = part->from; i < part->from + part->size && !part->is_compat; i++) {
        struct weir_redis_counter *counter = &r->counters[i];
        if (r->owners[i].charge == WEIR_REDIS_STAND_IN || !is_take(counter) ||
            !must_return(part->ask, counter, &r->owners[i]))
            continue;
        weir_ask_make_return(counter);
        r->owners[kept] = r->owners[i];
        r->counters[kept++] = *counter;
    }
    part->count = kept - part->from;
}

/* ---- places ---- */

static bool is_place(struct weir_ask *ask, const struct weir_redis_counter *counter,
                     const struct weir_redis_owner *owner)
{
    (void)ask;
    (void)owner;
    return counter->op == WEIR_OP_TAKE && counter->is_charged && counter->new_mark != 0;
}

void weir_ask_release(struct weir_ask *ask)
{
    ask->parts_late = 1; /* until all are begun */
    for (uint32_t i = 0; i < ask->part_count; i++) {
        struct weir_ask_part *part = &ask->parts[i];
        if (part->tries == 0) /* of those that were asked again some are gone */
            collect(part, is_place);
        if (part->count == 0)
            continue;
        ask->parts_late++;
        give_back(part);
    }
    if (--ask->parts_late == 0)
        weir_ask_free(ask);
}

/* ---- what is owed ---- */

void weir_ask_part_owe(const struct weir_ask_part *part)
{
    struct weir_asks *asks = part->ask->asks;
    const struct weir_redis_request *r = &part->ask->request;
    for (uint32_t i = part->from; i < part->from + part->count; i++) {
        const struct weir_redis_counter *counter = &r->counters[i];
        if (r->owners[i].charge != WEIR_REDIS_STAND_IN && !r->owners[i].is_compat &&
            is_take(counter) && r->deciders[r->owners[i].item] == WEIR_WITHOUT_STORE_PASSED)
            weir_ask_owe(asks, counter->key, counter->limit, counter->hits, part->ask->decided_ns);
    }
}

/* Whether the counter holds the hits: some count what they refuse, too. */
static bool has_counted(const struct weir_redis_counter *counter)
{
    return counter->is_charged || (counter->limit->count_rejected && !counter->is_stale);
}

/* Owes what the store has refused and policy let pass; what it has charged of a request that was
 * refused must come back. */
static bool is_wrong(struct weir_ask *ask, const struct weir_redis_counter *counter,
                     const struct weir_redis_owner *owner)
{
    enum weir_redis_decider fate = (enum weir_redis_decider)ask->request.deciders[owner->item];
    if (fate == WEIR_WITHOUT_STORE_PASSED && !has_counted(counter))
        weir_ask_owe(ask->asks, counter->key, counter->limit, counter->hits, ask->decided_ns);
    return fate == WEIR_WITHOUT_STORE_REFUSED && counter->part != WEIR_REDIS_NO_PART &&
           counter->is_charged && counter->hits > 0;
}

/* Of a part that the store has answered.  Says whether something is given back. */
static bool set_right(struct weir_ask_part *part)
{
    if (part->tries > 0)
        return false;
    collect(part, is_wrong);
    if (part->count > 0)
        give_back(part);
    return part->count > 0;
}

/* Says whether more will be heard of it: an answer after all, or that hits were given back. */
static bool settle_part(struct weir_ask_part *part)
{
    bool is_late = part->err == WEIR_ERR_STORE_LATE && !part->is_compat;
    if (part->err != 0 && !is_late)
        weir_ask_part_owe(part);
    return is_late || (part->err == 0 && part->ask->is_split && set_right(part));
}

void weir_ask_settle(struct weir_ask *ask)
{
    ask->parts_late = 1; /* until all are seen */
    for (uint32_t i = 0; i < ask->part_count; i++)
        ask->parts_late += settle_part(&ask->parts[i]);
    if (--ask->parts_late == 0)
        weir_ask_free(ask);
}

void weir_ask_part_late(void *ctx, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_part *part = ctx;
    struct weir_redis_request *r = &part->ask->request;
    if (err != 0) {
        weir_ask_part_owe(part);
    } else if (weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count,
                                      r->counters + part->from, part->count,
                                      &part->decided_ns) == 0) {
        weir_ask_part_leases(part, answer);
        part->size = part->count;
        part->tries = 0;
        if (set_right(part))
            return;
    }
    end_part(part);
}
