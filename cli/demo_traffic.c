/* SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "algo/limit.h"
#include "base/hash.h"
#include "base/str.h"

#define MS UINT64_C(1000000)
#define REPORT_TAKES_NS (2500 * MS)

/* How somebody sends: `burst` requests `gap_ms` apart, then a pause; both vary by half. */
struct habit {
    const char *name;
    const char *key;   /* of the descriptor beside generic_key */
    const char *value; /* NULL: the name */
    uint32_t burst;
    uint32_t gap_ms;
    uint32_t pause_ms;
};

static const struct habit habits[DEMO_USERS] = {
    {.name = "alice", .key = "search", .burst = 1, .pause_ms = 350},
    {.name = "bob", .key = "search", .burst = 12, .gap_ms = 60, .pause_ms = 3000},
    {.name = "carol", .key = "upload", .burst = 7, .gap_ms = 150, .pause_ms = 2500},
    {.name = "dave", .key = "report", .burst = 3, .gap_ms = 300, .pause_ms = 2200},
    {.name = "erin", .key = "message", .burst = 4, .gap_ms = 200, .pause_ms = 1500},
    {.name = "frank", .key = "coupon", .burst = 1, .pause_ms = 900},
    {.name = "mallory", .key = "login", .burst = 1, .pause_ms = 450},
    {.name = "crawler",
     .key = "remote_address",
     .value = "203.0.113.9",
     .burst = 120,
     .gap_ms = 16,
     .pause_ms = 4000},
};

static uint64_t random_below(struct demo_traffic *t, uint64_t below)
{
    t->random += UINT64_C(0x9e3779b97f4a7c15);
    return weir_mix64(t->random) % below;
}

static uint64_t about_ns(struct demo_traffic *t, uint32_t ms)
{
    uint64_t ns = ms * MS;
    return ns / 2 + random_below(t, ns + 1);
}

void demo_traffic_init(struct demo_traffic *t, struct weir_session *session, uint64_t start_ns)
{
    *t = (struct demo_traffic){.session = session, .start_ns = start_ns, .random = start_ns};
    for (uint32_t user = 0; user < DEMO_USERS; user++) {
        t->next_ns[user] = random_below(t, 800 * MS);
        t->burst_left[user] = habits[user].burst;
    }
}

static uint32_t next_user(const struct demo_traffic *t)
{
    uint32_t first = 0;
    for (uint32_t user = 1; user < DEMO_USERS; user++)
        if (t->next_ns[user] < t->next_ns[first])
            first = user;
    return first;
}

uint64_t demo_traffic_next(const struct demo_traffic *t)
{
    return t->next_ns[next_user(t)];
}

static void plan_next(struct demo_traffic *t, uint32_t user)
{
    const struct habit *habit = &habits[user];
    if (--t->burst_left[user] > 0) {
        t->next_ns[user] += about_ns(t, habit->gap_ms);
    } else {
        t->burst_left[user] = habit->burst;
        t->next_ns[user] += about_ns(t, habit->pause_ms);
    }
}

/* A report that was admitted holds its slot while it runs. */
static void hold(struct demo_traffic *t, const struct weir_ticket *ticket, uint64_t elapsed_ns)
{
    for (uint32_t i = 0; i < DEMO_HELD_MAX; i++) {
        if (t->held_until_ns[i] != 0)
            continue;
        t->held[i] = *ticket;
        t->held_until_ns[i] = elapsed_ns + about_ns(t, REPORT_TAKES_NS / MS);
        return;
    }
}

static void release_finished(struct demo_traffic *t, uint64_t now_ns)
{
    for (uint32_t i = 0; i < DEMO_HELD_MAX; i++) {
        if (t->held_until_ns[i] == 0 || t->held_until_ns[i] > now_ns - t->start_ns)
            continue;
        weir_release(t->session, &t->held[i], now_ns);
        t->held_until_ns[i] = 0;
    }
}

int demo_traffic_send(struct demo_traffic *t, uint64_t now_ns, struct demo_event *out)
{
    uint32_t user = next_user(t);
    const struct habit *habit = &habits[user];
    const char *value = habit->value != NULL ? habit->value : habit->name;
    const struct weir_entry entries[] = {
        {WEIR_STR("generic_key"), WEIR_STR("all")},
        {weir_str_of(habit->key), weir_str_of(value)},
    };
    const struct weir_descriptor descriptors[] = {
        {.entries = &entries[0], .entry_count = 1},
        {.entries = &entries[1], .entry_count = 1},
    };
    const struct weir_request request = {
        .domain = WEIR_STR("demo"),
        .descriptors = descriptors,
        .descriptor_count = 2,
    };
    struct weir_status statuses[2];
    struct weir_decision decision = {.statuses = statuses};
    release_finished(t, now_ns);
    int err = weir_check(t->session, &request, now_ns, &decision);
    if (err != 0)
        return err;

    bool own_allowed = statuses[1].code == WEIR_CODE_OK;
    *out = (struct demo_event){
        .at_ns = now_ns - t->start_ns,
        .user = user,
        .user_name = habit->name,
        .what = habit->key,
        .is_by_everyone = own_allowed && decision.overall != WEIR_CODE_OK,
        .status = statuses[own_allowed && decision.overall != WEIR_CODE_OK ? 0 : 1],
    };
    if (own_allowed && statuses[1].ticket.count > 0 && statuses[1].delay_ns == 0)
        hold(t, &statuses[1].ticket, out->at_ns);
    t->requests++;
    t->refused += decision.overall != WEIR_CODE_OK;
    t->delayed += decision.overall == WEIR_CODE_OK && statuses[1].delay_ns > 0;
    plan_next(t, user);
    return 0;
}
