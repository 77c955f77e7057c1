/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/ticket.h"

#include "table/layout.h"

_Static_assert(WEIR_PLACES_MAX == WEIR_LIMITS_MAX, "a ticket must hold a place for every limit");

static bool has_places(enum weir_algorithm algorithm)
{
    return algorithm == WEIR_CONCURRENCY || algorithm == WEIR_LEAKY_BUCKET;
}

static void write_place(const struct weir_published *published, const struct weir_charge *c,
                        struct weir_place *out)
{
    const struct weir_limit *limit = c->limit;
    *out = (struct weir_place){
        .key = c->key,
        .mark = c->mark,
        .requests = limit->requests,
        .burst = limit->burst,
        .window_s = (uint32_t)weir_limit_window_s(limit),
        .buckets = limit->buckets,
        .record = weir_limit_record(limit),
        .lag_ms = limit->lag_ms,
        .algorithm = limit->algorithm,
        .window_class = limit->window_class,
        .window_shift = limit->window_shift,
        .generation = limit->generation,
        .round_up = limit->round_up,
        .refill_interval = limit->refill_interval,
    };
    if (limit->count_if)
        out->count_if = *weir_rules_count_if(published->rules, limit);
}

void weir_ticket_write(const struct weir_published *published, const struct weir_item *item,
                       struct weir_ticket *out)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        const struct weir_charge *c = &item->charges[i];
        if (!weir_ticket_has_place(c))
            continue;
        if (out->count == 0) {
            out->renew_ns = 0;
            out->away = (struct weir_str){.ptr = NULL};
        }
        out->hits = c->hits;
        if (c->limit->algorithm == WEIR_CONCURRENCY &&
            (out->renew_ns == 0 || c->limit->window_ns / 2 < out->renew_ns))
            out->renew_ns = c->limit->window_ns / 2;
        write_place(published, c, &out->places[out->count++]);
    }
}

/* Whether the numbers by which the table knows a limit are numbers of this table. */
static bool is_of_table(const struct weir_place *place, const struct weir_table *table)
{
    struct weir_table_geometry geometry;
    weir_table_layout(table, &geometry);
    return place->window_class < WEIR_WINDOWS_MAX && place->generation <= WEIR_GENERATION_MAX &&
           (place->record == WEIR_NO_RECORD || place->record < geometry.records);
}

bool weir_place_limit(const struct weir_place *place, const struct weir_table *table,
                      struct weir_limit *out)
{
    char why[8];
    struct weir_limit_spec spec = {
        .algorithm = (enum weir_algorithm)place->algorithm,
        .requests_per_unit = place->requests,
        .burst = place->burst,
        .window_s = place->window_s,
        .buckets = place->buckets,
        .round_up = place->round_up != 0,
        .refill_interval = place->refill_interval != 0,
    };
    if (place->algorithm > WEIR_CONCURRENCY || place->window_s == 0 || place->window_shift > 31 ||
        place->buckets == 0 || place->buckets > WEIR_BUCKETS_MAX || !is_of_table(place, table) ||
        weir_limit_init(out, &spec, why, sizeof(why)))
        return false;
    out->record = place->record;
    out->lag_ms = place->lag_ms;
    out->window_class = place->window_class;
    out->window_shift = place->window_shift;
    out->generation = place->generation;
    return true;
}

/* Who leaves before the answer has not shown that it does not count. */
static bool counts(const struct weir_status_set *set, int http_status)
{
    if (http_status == 0)
        return set->count > 0;
    for (uint32_t i = 0; i < set->count && i < WEIR_STATUSES_MAX; i++)
        if (set->statuses[i] == http_status || set->statuses[i] == http_status / 100)
            return true;
    return false;
}

enum weir_place_fate weir_place_settle(const struct weir_place *place, int http_status)
{
    if (place->algorithm == WEIR_CONCURRENCY)
        return WEIR_PLACE_STAYS;
    if (place->algorithm == WEIR_LEAKY_BUCKET || counts(&place->count_if, http_status))
        return WEIR_PLACE_IS_USED;
    return WEIR_PLACE_COMES_BACK;
}

static void give_back(struct weir_session *s, const struct weir_ticket *ticket,
                      const struct weir_place *place, uint64_t now_ns)
{
    struct weir_table *table = s->engine->table;
    struct weir_limit limit;
    struct weir_verdict unused;
    if (!weir_place_limit(place, table, &limit))
        return;
    if (has_places(limit.algorithm))
        weir_local_release(table, &limit, place->key, now_ns, ticket->hits, place->mark);
    else
        weir_local_give(table, &limit, place->key, now_ns, ticket->hits, &unused);
}

void weir_release(struct weir_session *s, struct weir_ticket *ticket, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ticket->count && i < WEIR_PLACES_MAX; i++)
        give_back(s, ticket, &ticket->places[i], now_ns);
    ticket->count = 0;
}

void weir_settle(struct weir_session *s, struct weir_ticket *ticket, int http_status,
                 uint64_t now_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ticket->count && i < WEIR_PLACES_MAX; i++) {
        const struct weir_place *place = &ticket->places[i];
        enum weir_place_fate fate = weir_place_settle(place, http_status);
        if (fate == WEIR_PLACE_STAYS)
            ticket->places[kept++] = *place;
        else if (fate == WEIR_PLACE_COMES_BACK)
            give_back(s, ticket, place, now_ns);
    }
    ticket->count = kept;
}

int weir_renew(struct weir_session *s, struct weir_ticket *ticket, uint64_t now_ns)
{
    int result = ticket->count > 0 ? 0 : WEIR_ERR_NOT_FOUND;
    for (uint32_t i = 0; i < ticket->count && i < WEIR_PLACES_MAX; i++) {
        struct weir_place *place = &ticket->places[i];
        struct weir_limit limit;
        if (place->algorithm != WEIR_CONCURRENCY)
            continue; /* a place in a queue has no deadline */
        if (!weir_place_limit(place, s->engine->table, &limit) ||
            weir_local_renew(s->engine->table, &limit, place->key, now_ns, ticket->hits,
                             &place->mark))
            result = WEIR_ERR_NOT_FOUND;
    }
    return result;
}
