/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/ticket.h"

#include "table/layout.h"

_Static_assert(WEIR_PLACES_MAX == WEIR_LIMITS_MAX, "a ticket must hold a place for every limit");

void weir_ticket_write(struct weir_ticket *out, const struct weir_item *item)
{
    out->count = 0;
    for (uint32_t i = 0; i < item->charge_count; i++) {
        const struct weir_charge *c = &item->charges[i];
        /* An approximate limit has no places: its cells are many keys'. */
        if (!c->is_taken || c->mark == 0 || c->limit->approx)
            continue;
        out->hits = c->hits;
        out->places[out->count++] = (struct weir_place){
            .key = c->key,
            .mark = c->mark,
            .requests = c->limit->requests,
            .burst = c->limit->burst,
            .window_s = c->limit->window_s,
            .record = c->limit->record,
            .algorithm = c->limit->algorithm,
            .window_class = c->limit->window_class,
            .generation = c->limit->generation,
        };
    }
}

/* Whether the numbers by which the table knows a limit are numbers of this table. */
static bool is_of_table(const struct weir_place *place, const struct weir_table *table)
{
    struct weir_table_geometry geometry;
    weir_table_layout(table, &geometry);
    return place->window_class < WEIR_WINDOWS_MAX && place->generation < 2 * WEIR_GENERATIONS &&
           (place->record == WEIR_NO_RECORD || place->record < geometry.records);
}

/* The limit that the place was taken from, as far as giving back needs it.  A ticket comes from the
 * caller, so nothing in it is believed: false where no limit could have written it. */
static bool limit_of(const struct weir_place *place, const struct weir_table *table,
                     struct weir_limit *out)
{
    char why[8];
    struct weir_limit_spec spec = {
        .algorithm = (enum weir_algorithm)place->algorithm,
        .requests_per_unit = place->requests,
        .burst = place->burst,
        .window_s = place->window_s,
        .buckets = 1,
    };
    bool has_places = spec.algorithm == WEIR_CONCURRENCY || spec.algorithm == WEIR_LEAKY_BUCKET;
    if (!has_places || place->window_s == 0 || !is_of_table(place, table) ||
        weir_limit_init(out, &spec, why, sizeof(why)))
        return false;
    out->record = place->record;
    out->window_class = place->window_class;
    out->generation = place->generation;
    return true;
}

void weir_release(struct weir_session *s, struct weir_ticket *ticket, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ticket->count && i < WEIR_PLACES_MAX; i++) {
        const struct weir_place *place = &ticket->places[i];
        struct weir_limit limit;
        if (limit_of(place, s->engine->table, &limit))
            weir_local_release(s->engine->table, &limit, place->key, now_ns, ticket->hits,
                               place->mark);
    }
    ticket->count = 0;
}

int weir_renew(struct weir_session *s, struct weir_ticket *ticket, uint64_t now_ns)
{
    int result = ticket->count > 0 ? 0 : WEIR_ERR_NOT_FOUND;
    for (uint32_t i = 0; i < ticket->count && i < WEIR_PLACES_MAX; i++) {
        struct weir_place *place = &ticket->places[i];
        struct weir_limit limit;
        if (place->algorithm != WEIR_CONCURRENCY)
            continue; /* a place in a queue has no deadline */
        if (!limit_of(place, s->engine->table, &limit) ||
            weir_local_renew(s->engine->table, &limit, place->key, now_ns, ticket->hits,
                             &place->mark))
            result = WEIR_ERR_NOT_FOUND;
    }
    return result;
}
