/* ask_ticket.c - what was taken from the store for another process: told, given back, renewed.
 *
 * A ticket says all that is needed - the counter's name in the store, its limit, the mark - so
 * nothing is kept here meanwhile, and a service that is started anew understands it.  It comes from
 * another process, and is not believed: what no limit could have written does nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/math.h"
#include "base/err.h"
#include "base/str.h"
#include "engine/ticket.h"
#include "proto/desk.h"
#include "serve/ask_internal.h"

#include <string.h>

/* ---- told ---- */

/* The counter of a charge; NULL: it is not known any more. */
static const struct weir_redis_counter *counter_of(const struct weir_ask *ask, uint32_t charge)
{
    const struct weir_redis_request *r = &ask->request;
    for (uint32_t i = 0; i < ask->part_count; i++) {
        const struct weir_ask_part *part = &ask->parts[i];
        for (uint32_t k = part->from; k < part->from + part->size && part->tries == 0; k++) {
            if (r->owners[k].charge == charge && !r->owners[k].is_compat)
                return &r->counters[k];
        }
    }
    return NULL;
}

/* Says whether the store knows the charge: then its place has the mark that gives it back. */
static bool tell_place(const struct weir_ask *ask, const struct weir_charge *charge,
                       struct weir_place *place, struct weir_buf *names)
{
    const struct weir_redis_counter *counter =
        counter_of(ask, (uint32_t)(charge - ask->request.charges));
    if (counter == NULL)
        return false;
    struct weir_redis_counter back = *counter;
    weir_ask_make_return(&back);
    if (weir_limit_drips(back.limit))
        back.op = WEIR_OP_GIVE; /* as the table does: who passed may come back any time later */
    place->mark = back.mark;
    weir_desk_put_away(names, (uint8_t)back.op, back.key);
    return true;
}

/* The ticket of one item, all of whose places the store knows; or none. */
static void tell_item(const struct weir_ask *ask, const struct weir_item *item,
                      struct weir_ticket *ticket, struct weir_buf *names)
{
    size_t from = names->len;
    uint32_t place = 0;
    weir_ticket_write(ask->request.published, item, ticket);
    for (uint32_t i = 0; i < item->charge_count && ticket->count > 0; i++) {
        if (!weir_ticket_has_place(&item->charges[i]))
            continue;
        if (!tell_place(ask, &item->charges[i], &ticket->places[place++], names))
            ticket->count = 0;
    }
    if (ticket->count == 0)
        weir_buf_cut(names, from);
    ticket->away.len = names->len - from;
}

void weir_ask_tickets(struct weir_asks *asks, struct weir_decision *decision,
                      struct weir_buf *names)
{
    const struct weir_ask *ask = asks->telling;
    size_t at = 0;
    weir_buf_cut(names, 0);
    for (uint32_t i = 0; i < decision->status_count; i++) {
        if (ask->request.deciders[i] == WEIR_BY_STORE)
            tell_item(ask, &ask->request.items[i], &decision->statuses[i].ticket, names);
    }
    for (uint32_t i = 0; i < decision->status_count; i++) { /* now that they stay where they are */
        struct weir_ticket *ticket = &decision->statuses[i].ticket;
        if (ticket->count == 0 || ask->request.deciders[i] != WEIR_BY_STORE)
            continue;
        if (names->has_failed)
            ticket->count = 0;
        ticket->away.ptr = weir_buf_str(names).ptr + at;
        at += ticket->away.len;
    }
}

/* ---- given back, renewed ---- */

/* A call about one place; its name lies behind it. */
struct about {
    struct weir_ask_return sent; /* first: done() gets this */
    struct weir_limit limit;
    struct weir_redis_counter counter;
};

struct weir_renewal {
    struct about about; /* first, too */
    struct weir_renew_waiter *waiter;
};

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    struct about *about = (struct about *)call; /* its first member */
    weir_redis_put_call(out, how,
                        &(struct weir_redis_call){.counters = &about->counter, .count = 1});
}

/* False: no limit of ours has written this. */
static bool fill(struct about *about, struct weir_asks *asks, const struct weir_desk_place *place,
                 enum weir_op op, char *room, size_t room_len)
{
    if (place->name.len > room_len || !weir_str_starts(place->name, asks->prefix) ||
        !weir_place_limit(&place->place, asks->worker->engine->table, &about->limit))
        return false;
    struct weir_str name = {.ptr = memcpy(room, place->name.ptr, place->name.len),
                            .len = place->name.len};
    about->sent =
        (struct weir_ask_return){.call = {.key = name, .put = put}, .asks = asks, .next = NULL};
    about->counter = (struct weir_redis_counter){
        .key = name,
        .limit = &about->limit,
        .hits = place->hits,
        .mark = place->place.mark,
        .op = op,
        .part = WEIR_REDIS_NO_PART,
        .ends = true,
    };
    return true;
}

static void given(struct weir_ask_return *sent)
{
    weir_ask_block_give(sent->asks, sent);
}

void weir_ask_give(struct weir_asks *asks, const struct weir_desk_place *place)
{
    if (place->op != WEIR_OP_GIVE && place->op != WEIR_OP_RELEASE)
        return;
    struct about *about = weir_ask_block_take(asks);
    if (about == NULL)
        return;
    if (fill(about, asks, place, (enum weir_op)place->op, (char *)(about + 1),
             WEIR_ASK_BLOCK - sizeof(*about)))
        weir_ask_return(&about->sent, given);
    else
        weir_ask_block_give(asks, about);
}

static void renewed(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_renewal *renewal = (struct weir_renewal *)call; /* its first member's */
    struct weir_renew_waiter *waiter = renewal->waiter;
    struct weir_redis_counter *counter = &renewal->about.counter;
    uint64_t decided_ns;
    if (err == 0)
        err = weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count, counter, 1,
                                     &decided_ns);
    if (err == 0 && !counter->is_charged)
        err = WEIR_ERR_NOT_FOUND;
    uint64_t mark = counter->new_mark;
    weir_ask_block_give(renewal->about.sent.asks, renewal);
    if (waiter == NULL)
        return;
    waiter->renewal = NULL;
    waiter->done(waiter, err, mark);
}

int weir_ask_renew(struct weir_asks *asks, const struct weir_desk_place *place,
                   struct weir_renew_waiter *waiter)
{
    struct weir_renewal *renewal = weir_ask_block_take(asks);
    if (renewal == NULL)
        return WEIR_ERR_FULL;
    if (place->place.algorithm != WEIR_CONCURRENCY ||
        !fill(&renewal->about, asks, place, WEIR_OP_RENEW, (char *)(renewal + 1),
              WEIR_ASK_BLOCK - sizeof(*renewal))) {
        weir_ask_block_give(asks, renewal);
        return WEIR_ERR_INVALID;
    }
    renewal->waiter = waiter;
    waiter->renewal = renewal;
    renewal->about.sent.call.done = renewed;
    weir_redis_link_ask(asks->link, &renewal->about.sent.call);
    return 0;
}

void weir_ask_renew_cancel(struct weir_renew_waiter *waiter)
{
    if (waiter->renewal != NULL)
        waiter->renewal->waiter = NULL;
    waiter->renewal = NULL;
}
