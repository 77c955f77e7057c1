/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/ask_lease_held.h"

#include "base/err.h"
#include "base/hash.h"
#include "net/alarm.h"
#include "store/lease.h"
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#define PLACES 512u /* a power of 2 */
#define PROBES 8u   /* places where a lease may be */
#define NAME_MAX 320u
#define IDLE_NS (WEIR_NS_PER_S / 10)
#define LOOK_EVERY_NS (WEIR_NS_PER_S / 20)

struct place {
    uint64_t key; /* 0: nothing */
    uint64_t mark;
    uint64_t since_ns; /* of the boot: when its tokens were seen to change */
    uint32_t seen;     /* so many were there then */
    uint32_t name_len;
    struct weir_limit limit;
    char name[NAME_MAX];
};

struct weir_ask_held {
    struct weir_asks *asks;
    struct weir_alarm alarm; /* set while anything is held */
    uint32_t count;
    struct place places[PLACES];
};

static void set_alarm(struct weir_ask_held *held)
{
    bool is_set = weir_alarm_set(held->asks->worker->loop, &held->alarm, LOOK_EVERY_NS);
    WEIR_ASSERT(is_set); /* there is room for this one */
}

/* ---- holding ---- */

/* NULL: as many as there is room for are held. */
static struct place *place_of(struct weir_ask_held *held, uint64_t key)
{
    struct place *empty = NULL;
    for (uint32_t i = 0; i < PROBES; i++) {
        struct place *place = &held->places[(weir_mix64(key) + i) & (PLACES - 1)];
        if (place->key == key)
            return place;
        if (place->key == 0)
            empty = place;
    }
    return empty;
}

void weir_ask_hold(struct weir_ask_held *held, uint64_t key,
                   const struct weir_redis_counter *counter, uint64_t boot_ns)
{
    struct place *place = place_of(held, key);
    if (place == NULL || counter->key.len > NAME_MAX)
        return;
    bool is_new = place->key == 0;
    place->mark = counter->new_mark;
    place->limit = *counter->limit;
    if (!is_new)
        return;
    place->key = key;
    place->seen = 0;
    place->since_ns = boot_ns;
    place->name_len = (uint32_t)counter->key.len;
    memcpy(place->name, counter->key.ptr, counter->key.len);
    if (held->count++ == 0)
        set_alarm(held);
}

static void let_go(struct weir_ask_held *held, struct place *place)
{
    place->key = 0;
    held->count--;
}

/* ---- giving back ---- */

static void give_back(struct weir_ask_held *held, const struct place *place, uint32_t tokens)
{
    const struct weir_str name = {.ptr = place->name, .len = place->name_len};
    if (tokens > 0)
        weir_ask_lease_give_back(held->asks->leases, place->key, &place->limit, name, place->mark,
                                 tokens);
}

static void look_at(struct weir_ask_held *held, struct place *place, uint64_t boot_ns)
{
    struct weir_ask_leases *leases = held->asks->leases;
    struct weir_lease_at at = weir_ask_lease_at(leases, place->key, &place->limit, boot_ns);
    uint32_t tokens = weir_lease_count(&at);
    if (tokens == 0) {
        let_go(held, place);
    } else if (tokens != place->seen) {
        place->seen = tokens;
        place->since_ns = boot_ns;
    } else if (boot_ns - place->since_ns >= IDLE_NS) {
        weir_ask_lease_unused(leases, place->key);
        give_back(held, place, weir_lease_collect(&at, tokens));
        let_go(held, place);
    }
}

static void look_at_all(void *ctx)
{
    struct weir_ask_held *held = ctx;
    uint64_t boot_ns = weir_table_boot_ns();
    for (uint32_t i = 0; i < PLACES; i++) {
        if (held->places[i].key != 0)
            look_at(held, &held->places[i], boot_ns);
    }
    if (held->count > 0)
        set_alarm(held);
}

void weir_ask_held_end(struct weir_ask_held *held)
{
    for (struct place *place = held->places; place < held->places + PLACES; place++) {
        if (place->key == 0)
            continue;
        struct weir_lease_at at =
            weir_ask_lease_at(held->asks->leases, place->key, &place->limit, weir_table_boot_ns());
        give_back(held, place, weir_lease_recall(&at));
        let_go(held, place);
    }
}

/* ---- life ---- */

int weir_ask_held_new(struct weir_ask_held **out, struct weir_asks *asks)
{
    struct weir_ask_held *held = calloc(1, sizeof(*held));
    if (held == NULL || weir_loop_reserve_alarms(asks->worker->loop, 1) != 0) {
        free(held);
        return WEIR_ERR_NOMEM;
    }
    held->asks = asks;
    held->alarm = (struct weir_alarm){.ring = look_at_all, .ctx = held};
    *out = held;
    return 0;
}

void weir_ask_held_free(struct weir_ask_held *held)
{
    if (held == NULL)
        return;
    weir_alarm_cancel(held->asks->worker->loop, &held->alarm);
    free(held);
}
