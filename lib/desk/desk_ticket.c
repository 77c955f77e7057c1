/* desk_ticket.c - what is given back: the table's by libweir, a store's by the service.
 *
 * What cannot be told, because nobody is there, is lost: hits stay counted, and slots come back
 * when they expire.  So does a slot that is released while it is being renewed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "desk/desk.h"
#include "engine/ticket.h"

/* Of a place that there is nothing left to do for; no limit of 0 has any. */
#define IS_DONE 0

static bool is_away(const struct weir_ticket *ticket)
{
    return ticket->count > 0 && ticket->away.len > 0;
}

/* Renewals of what is gone. */
static void stop_renewing(struct weir_desk *desk, const struct weir_ticket *ticket)
{
    const struct weir_place *places = ticket->places;
    for (struct weir_desk_entry *entry = desk->first; entry != NULL; entry = entry->next) {
        for (uint32_t i = 0; i < WEIR_PLACES_MAX; i++)
            entry->mark = entry->mark == &places[i].mark ? NULL : entry->mark;
    }
}

/* What is done with a ticket, and what comes of one of its places. */
struct doing {
    struct weir_desk *desk;
    enum weir_place_fate (*fate_of)(const struct doing *doing, const struct weir_desk_place *one,
                                    uint64_t *mark);
    uint64_t now_ns; /* to renew */
    int http_status; /* to settle */
};

/* Does it to each place of a ticket; those that do not stay are done with. */
static void do_with(const struct doing *doing, struct weir_ticket *ticket)
{
    struct weir_desk *desk = doing->desk;
    struct weir_str away = ticket->away;
    struct weir_desk_place one = {.hits = ticket->hits};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ticket->count && i < WEIR_PLACES_MAX; i++) {
        struct weir_place *place = &ticket->places[i];
        if (!weir_desk_next_away(&away, &one.op, &one.name))
            break;
        if (place->requests == IS_DONE)
            continue;
        one.place = *place;
        enum weir_place_fate fate = doing->fate_of(doing, &one, &place->mark);
        if (fate == WEIR_PLACE_COMES_BACK && desk->state == WEIR_DESK_OPEN)
            (void)weir_desk_put_place(&desk->out, WEIR_DESK_GIVE, 0, &one);
        if (fate != WEIR_PLACE_STAYS)
            place->requests = IS_DONE;
        kept += fate == WEIR_PLACE_STAYS;
    }
    if (kept == 0)
        ticket->count = 0;
}

static enum weir_place_fate release_place(const struct doing *doing,
                                          const struct weir_desk_place *one, uint64_t *mark)
{
    (void)doing;
    (void)one;
    (void)mark;
    return WEIR_PLACE_COMES_BACK;
}

void weir_desk_release(struct weir_desk *desk, struct weir_ticket *ticket, uint64_t now_ns)
{
    if (!is_away(ticket)) {
        weir_release(desk->session, ticket, now_ns);
        return;
    }
    stop_renewing(desk, ticket);
    do_with(&(struct doing){.desk = desk, .fate_of = release_place}, ticket);
}

void weir_desk_release_all(struct weir_desk *desk, const struct weir_decision *decision,
                           uint64_t now_ns)
{
    for (uint32_t i = 0; i < decision->status_count; i++)
        weir_desk_release(desk, &decision->statuses[i].ticket, now_ns);
}

static enum weir_place_fate settle_place(const struct doing *doing,
                                         const struct weir_desk_place *one, uint64_t *mark)
{
    (void)mark;
    return weir_place_settle(&one->place, doing->http_status);
}

void weir_desk_settle(struct weir_desk *desk, struct weir_ticket *ticket, int http_status,
                      uint64_t now_ns)
{
    if (!is_away(ticket)) {
        weir_settle(desk->session, ticket, http_status, now_ns);
        return;
    }
    do_with(&(struct doing){.desk = desk, .fate_of = settle_place, .http_status = http_status},
            ticket);
}

static enum weir_place_fate renew_place(const struct doing *doing,
                                        const struct weir_desk_place *one, uint64_t *mark)
{
    struct weir_desk *desk = doing->desk;
    if (one->place.algorithm != WEIR_CONCURRENCY)
        return WEIR_PLACE_STAYS; /* a place in a queue has no deadline */
    struct weir_desk_entry *entry = weir_desk_enter(desk, WEIR_DESK_RENEWS, doing->now_ns);
    if (entry == NULL)
        return WEIR_PLACE_STAYS;
    entry->mark = mark;
    if (!weir_desk_put_place(&desk->out, WEIR_DESK_RENEW, weir_desk_id(entry), one))
        weir_desk_leave(entry);
    return WEIR_PLACE_STAYS;
}

int weir_desk_renew(struct weir_desk *desk, struct weir_ticket *ticket, uint64_t now_ns)
{
    if (!is_away(ticket))
        return weir_renew(desk->session, ticket, now_ns);
    if (desk->state != WEIR_DESK_OPEN)
        return WEIR_ERR_STORE_AWAY;
    do_with(&(struct doing){.desk = desk, .fate_of = renew_place, .now_ns = now_ns}, ticket);
    return 0;
}
