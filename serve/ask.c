/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/ask.h"

#include "base/err.h"
#include "engine/publish.h"
#include "engine/top.h"
#include "serve/ask_internal.h"
#include "serve/ask_lease.h"
#include "table/table.h"

#include <stdlib.h>

#define TRIES_MAX 256 /* of a call: while nodes learn of a new rate, each finds the other's */

/* ---- memory ---- */

/* Returns a version that nobody uses any more. */
static void drop_version(struct weir_asks *asks, struct weir_ask_version *version)
{
    struct weir_ask_version **link = &asks->versions;
    while (*link != version)
        link = &(*link)->next;
    *link = version->next;
    weir_publish_return(asks->worker->engine, version->published);
    free(version);
}

/* The version that the session holds now; kept once, for all that are planned by it. */
static struct weir_ask_version *version_of(struct weir_asks *asks)
{
    struct weir_session *session = asks->worker->session;
    struct weir_ask_version *before = asks->versions;
    if (before != NULL && before->published == session->mine)
        return before;
    struct weir_ask_version *version = malloc(sizeof(*version)); /* alloc: once for each reload */
    if (version == NULL)
        return NULL;
    *version = (struct weir_ask_version){.published = weir_publish_keep(session), .next = before};
    asks->versions = version;
    if (before != NULL && before->users == 0)
        drop_version(asks, before);
    return version;
}

/* The newest stays, for the next request. */
static void leave_version(struct weir_asks *asks, struct weir_ask_version *version)
{
    if (--version->users == 0 && version != asks->versions)
        drop_version(asks, version);
}

void *weir_ask_block_take(struct weir_asks *asks)
{
    struct weir_ask_block *block = asks->free;
    if (block != NULL)
        asks->free = block->next;
    else if (asks->used < asks->max)
        block = (void *)(asks->blocks + (size_t)asks->used++ * WEIR_ASK_BLOCK);
    weir_ask_add(asks, block != NULL ? WEIR_ASK_COUNT_PENDING : WEIR_ASK_COUNT_NO_ROOM, 1);
    return block;
}

void weir_ask_block_give(struct weir_asks *asks, void *block)
{
    struct weir_ask_block *freed = block;
    freed->next = asks->free;
    asks->free = freed;
    weir_ask_add(asks, WEIR_ASK_COUNT_PENDING, UINT64_MAX); /* - 1 */
}

static void free_large(struct weir_ask *ask)
{
    struct weir_ask_large *large = ask->large;
    *(large->before != NULL ? &large->before->after : &ask->asks->large) = large->after;
    if (large->after != NULL)
        large->after->before = large->before;
    weir_budget_give(&ask->asks->worker->budget, ask->large_bytes);
    free(large);
}

void weir_ask_free(struct weir_ask *ask)
{
    struct weir_asks *asks = ask->asks;
    if (ask->version != NULL)
        leave_version(asks, ask->version);
    if (ask->large != NULL)
        free_large(ask);
    weir_ask_block_give(asks, ask);
}

/* Memory behind the block's head, or beside it.  NULL: there is none. */
static void *take_room(struct weir_ask *ask, size_t bytes)
{
    const size_t head = (sizeof(*ask) + 15) / 16 * 16;
    if (bytes <= WEIR_ASK_BLOCK - head)
        return (uint8_t *)ask + head;
    struct weir_asks *asks = ask->asks;
    struct weir_ask_large *large = NULL;
    bytes += sizeof(*large);
    if (!weir_budget_take(&asks->worker->budget, bytes))
        return NULL;
    large = malloc(bytes); /* alloc: for requests of many descriptors */
    if (large == NULL) {
        weir_budget_give(&asks->worker->budget, bytes);
        return NULL;
    }
    *large = (struct weir_ask_large){.after = asks->large};
    if (asks->large != NULL)
        asks->large->before = large;
    asks->large = ask->large = large;
    ask->large_bytes = bytes;
    return large + 1;
}

struct weir_ask *weir_ask_take(struct weir_asks *asks, struct weir_redis_request *planned)
{
    struct weir_ask *ask = weir_ask_block_take(asks);
    if (ask == NULL)
        return NULL;
    *ask = (struct weir_ask){.asks = asks, .version = version_of(asks), .request = *planned};
    if (ask->version != NULL)
        ask->version->users++;
    /* As many parts as there are counters, at most. */
    bool is_compat = asks->planner.is_compat;
    size_t part_bytes = (planned->count * sizeof(struct weir_ask_part) + 15) / 16 * 16;
    size_t expire_bytes = (planned->count * sizeof(struct weir_ask_expire) + 15) / 16 * 16;
    expire_bytes = is_compat ? expire_bytes : 0;
    uint8_t *room = take_room(ask, part_bytes + expire_bytes + weir_redis_request_bytes(planned));
    if (room == NULL || ask->version == NULL) {
        weir_ask_free(ask);
        return NULL;
    }
    ask->parts = (struct weir_ask_part *)(void *)room;
    room += part_bytes;
    ask->expires = is_compat ? (struct weir_ask_expire *)(void *)room : NULL;
    weir_redis_request_move(&ask->request, asks->worker->session, room + expire_bytes);
    return ask;
}

/* ---- the end ---- */

static void decide(struct weir_asks *asks, struct weir_redis_request *r, uint64_t now_ns,
                   struct weir_decision *out)
{
    struct weir_session *session = asks->worker->session;
    weir_ask_fall_back(asks, r, now_ns, out->statuses);
    weir_redis_request_decide(r, session, now_ns, out);
    if (r->top_weight > 0)
        weir_top_tell_over(session, r->items, r->item_count, out->statuses, r->top_weight, now_ns);
}

/* Remembers which items have passed, of those that the store was asked for in vain, or in
 * pieces. */
static void note_passed(struct weir_redis_request *r, const struct weir_decision *decision,
                        bool is_split)
{
    bool is_refused = r->is_atomic && decision->overall != WEIR_CODE_OK;
    for (uint32_t i = 0; i < r->item_count; i++) {
        const struct weir_status *status = &decision->statuses[i];
        if (r->deciders[i] != WEIR_BY_NOBODY && !(is_split && r->deciders[i] == WEIR_BY_STORE))
            continue;
        bool has_passed = status->code == WEIR_CODE_OK && !status->is_shadow && !is_refused;
        r->deciders[i] = has_passed ? WEIR_WITHOUT_STORE_PASSED : WEIR_WITHOUT_STORE_REFUSED;
    }
}

/* An atomic request whose parts went several ways is decided as a whole: where one has failed, so
 * have all. */
static void fail_together(struct weir_ask *ask)
{
    struct weir_redis_request *r = &ask->request;
    for (uint32_t i = 0; i < r->item_count && ask->has_failed && ask->is_split; i++) {
        if (r->deciders[i] == WEIR_BY_STORE)
            r->deciders[i] = WEIR_BY_NOBODY;
    }
}

static void tell(struct weir_ask *ask, struct weir_decision *decision)
{
    struct weir_asks *asks = ask->asks;
    struct weir_waiter *waiter = ask->waiter;
    ask->is_forfeit = waiter == NULL; /* it has left */
    if (waiter == NULL)
        return;
    waiter->ask = NULL;
    asks->telling = ask;
    waiter->done(waiter, decision);
    asks->telling = NULL;
}

void weir_ask_finish(struct weir_ask *ask)
{
    struct weir_asks *asks = ask->asks;
    struct weir_decision decision = {.statuses = asks->statuses};
    bool is_unknown = ask->is_look && ask->has_failed;
    ask->decided_ns = weir_loop_now(asks->worker->loop);
    if (!is_unknown) {
        fail_together(ask);
        decide(asks, &ask->request, ask->decided_ns, &decision);
        note_passed(&ask->request, &decision, ask->is_split);
    }
    tell(ask, is_unknown ? NULL : &decision);
    if (ask->has_failed || ask->is_split)
        weir_ask_settle(ask);
    else if (ask->is_forfeit)
        weir_ask_release(ask);
    else if (!ask->is_kept)
        weir_ask_free(ask);
}

/* ---- calls ---- */

static struct weir_ask_part *part_of(struct weir_redis_ask *call)
{
    return (struct weir_ask_part *)call; /* its first member */
}

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    struct weir_ask_part *part = part_of(call);
    const struct weir_redis_request *r = &part->ask->request;
    part->sent_ns = weir_table_boot_ns();
    weir_redis_put_call(
        out, how,
        &(struct weir_redis_call){.counters = r->counters + part->from,
                                  .count = part->count,
                                  .is_atomic = r->is_atomic && part->ask->part_count == 1});
}

/* What it was asked for is nobody's to decide now, but the rule's policy's. */
static void give_up(struct weir_ask_part *part, int err)
{
    struct weir_redis_request *r = &part->ask->request;
    part->err = err;
    part->ask->has_failed = true;
    for (uint32_t i = part->from; i < part->from + part->count; i++)
        r->deciders[r->owners[i].item] = WEIR_BY_NOBODY;
}

static bool is_read(struct weir_ask_part *part, const struct weir_redis_answer *answer)
{
    if (part->is_compat)
        return weir_ask_compat_read(part, answer);
    return weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count,
                                  part->ask->request.counters + part->from, part->count,
                                  &part->decided_ns) == 0;
}

/* Reads a reply.  False: there must be another call. */
static bool read_answer(struct weir_ask_part *part, const struct weir_redis_answer *answer)
{
    struct weir_redis_request *r = &part->ask->request;
    if (!is_read(part, answer)) {
        weir_redis_link_complain(&part->sent.call);
        give_up(part, WEIR_ERR_STORE);
        return true;
    }
    weir_ask_part_leases(part, answer);
    part->count = weir_redis_request_settle(r, part->from, part->count);
    if (part->count == 0)
        return true;
    if (++part->tries < TRIES_MAX)
        return false;
    give_up(part, WEIR_ERR_STORE);
    return true;
}

void weir_ask_part_done(struct weir_ask_part *part, int err)
{
    struct weir_ask *ask = part->ask;
    struct weir_asks *asks = ask->asks;
    struct weir_ask_flight *flight = ask->flight;
    if (--ask->parts_left > 0)
        return;
    ask->flight = NULL; /* it may be heard of again when that is another's */
    weir_ask_finish(ask);
    if (flight != NULL)
        weir_ask_lease_landed(asks->leases, flight, err);
}

static void call_done(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_part *part = part_of(call);
    struct weir_ask *ask = part->ask;
    if (err != 0) {
        give_up(part, err);
    } else if (!read_answer(part, answer)) {
        weir_ask_add(ask->asks, WEIR_ASK_COUNT_AGAIN, 1);
        call->since_ns = call->begun_ns; /* whoever waits does so since then */
        weir_redis_link_ask(ask->asks->link, call);
        return;
    }
    weir_ask_part_done(part, err);
}

static bool has_looked(const struct weir_redis_request *r)
{
    for (uint32_t i = 0; i < r->item_count; i++) {
        if (r->deciders[i] == WEIR_BY_TABLE_LOOKED)
            return true;
    }
    return false;
}

static bool goes_with_next(const struct weir_redis_request *r, uint32_t i, bool is_one)
{
    if (r->owners[i].is_compat || r->owners[i + 1].is_compat)
        return false;
    return is_one ||
           weir_redis_slot_of(r->counters[i].key) == weir_redis_slot_of(r->counters[i + 1].key);
}

void weir_ask_make_parts(struct weir_ask *ask)
{
    struct weir_redis_request *r = &ask->request;
    enum weir_redis_topology topology = ask->asks->shared->topology;
    bool is_one = topology == WEIR_REDIS_SINGLE || topology == WEIR_REDIS_SENTINEL;
    uint32_t from = 0;
    ask->parts_left = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (i + 1 < r->count && goes_with_next(r, i, is_one))
            continue;
        ask->parts[ask->part_count++] = (struct weir_ask_part){
            .sent = {.call = {.key = r->counters[from].key,
                              .put = put,
                              .done = call_done,
                              .since_ns = ask->since_ns},
                     .asks = ask->asks},
            .ask = ask,
            .from = from,
            .count = i + 1 - from,
            .size = i + 1 - from,
        };
        struct weir_ask_part *part = &ask->parts[ask->part_count - 1];
        part->sent.call.late_tag = weir_ask_tag(part, WEIR_TAG_PART);
        part->sent.call.needs_replicas = weir_ask_lease_wishes(part);
        ask->parts_left++;
        if (r->owners[from].is_compat)
            weir_ask_compat_part(part, ask->decided_ns);
        from = i + 1;
    }
    ask->is_split = r->is_atomic && (ask->part_count > 1 || has_looked(r));
}

void weir_ask_launch(struct weir_ask *ask)
{
    weir_ask_add(ask->asks, WEIR_ASK_COUNT_ASKED, 1);
    weir_ask_lease_recall(ask);
    weir_ask_make_parts(ask);
    for (uint32_t i = 0; i < ask->part_count; i++) {
        struct weir_ask_part *part = &ask->parts[i];
        weir_redis_link_ask(ask->asks->link, &part->sent.call);
        if (part->is_compat && ask->request.counters[part->from].op == WEIR_OP_TAKE)
            weir_redis_link_ask(ask->asks->link, &ask->expires[i].call);
    }
}

void weir_ask_fail(struct weir_ask *ask)
{
    weir_ask_make_parts(ask);
    for (uint32_t i = 0; i < ask->part_count; i++)
        give_up(&ask->parts[i], WEIR_ERR_STORE_AWAY);
    weir_ask_finish(ask);
}

/* ---- for front ends ---- */

/* Nothing goes to the store, or there is no memory to wait in. */
static void decide_without_room(struct weir_asks *asks, struct weir_redis_request *r,
                                uint64_t now_ns, struct weir_decision *out)
{
    struct weir_ask_part part = {
        .ask = &(struct weir_ask){.asks = asks, .decided_ns = now_ns},
        .count = r->count,
    };
    for (uint32_t i = 0; i < r->count; i++)
        r->deciders[r->owners[i].item] = WEIR_BY_NOBODY;
    decide(asks, r, now_ns, out);
    note_passed(r, out, false);
    part.ask->request = *r;
    weir_ask_part_owe(&part);
}

/* Plans, and asks the store where that must be: WEIR_ASK_PENDING.  0: nothing goes to it, or what
 * is planned would, and there is no room. */
static int begin(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns,
                 bool is_look, struct weir_waiter *waiter, struct weir_status *statuses,
                 struct weir_redis_request *planned)
{
    struct weir_session *session = asks->worker->session;
    int err =
        weir_redis_request_plan(planned, &asks->planner, request, asks->prefix, now_ns, statuses);
    if (err != 0)
        return err;
    if (weir_top_is_due(session))
        planned->top_weight = weir_top_tell_asked(session, &session->plans[0], now_ns);
    struct weir_ask *ask = planned->count > 0 ? weir_ask_take(asks, planned) : NULL;
    if (ask == NULL)
        return 0;
    ask->is_look = is_look;
    ask->decided_ns = now_ns; /* so far */
    ask->waiter = waiter;
    waiter->ask = ask;
    if (!weir_ask_lease_parks(asks->leases, ask))
        weir_ask_launch(ask);
    return WEIR_ASK_PENDING;
}

int weir_ask_start(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns,
                   struct weir_decision *out, struct weir_waiter *waiter)
{
    struct weir_redis_request planned;
    int err = begin(asks, request, now_ns, false, waiter, out->statuses, &planned);
    if (err == 0)
        decide_without_room(asks, &planned, now_ns, out);
    return err;
}

int weir_ask_look(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns,
                  struct weir_decision *out, struct weir_waiter *waiter)
{
    struct weir_redis_request planned;
    int err = begin(asks, request, now_ns, true, waiter, out->statuses, &planned);
    if (err == 0 && planned.count > 0)
        return WEIR_ERR_STORE_AWAY;
    if (err == 0)
        decide(asks, &planned, now_ns, out);
    return err;
}

void weir_ask_cancel(struct weir_waiter *waiter)
{
    if (waiter->ask != NULL)
        waiter->ask->waiter = NULL;
    waiter->ask = NULL;
}

void weir_ask_forfeit(struct weir_asks *asks)
{
    if (asks->telling != NULL)
        asks->telling->is_forfeit = true;
}

struct weir_ask *weir_ask_keep(struct weir_asks *asks)
{
    struct weir_ask *ask = asks->telling;
    if (ask == NULL || ask->has_failed || ask->is_split)
        return NULL;
    ask->is_kept = true;
    return ask;
}

void weir_ask_let_go(struct weir_ask *ask, bool is_forfeit)
{
    if (is_forfeit)
        weir_ask_release(ask);
    else
        weir_ask_free(ask);
}
