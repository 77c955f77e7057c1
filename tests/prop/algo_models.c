/* algo_models.c - sub-windows and leases against lists; changed rates against fractions.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/concurrency.h"
#include "algo_subject.h"

#include <string.h>

__extension__ typedef unsigned __int128 big;

#define ENTRIES 256

/* ---- sub-windows: every hit with the sub-window that it came in ---- */

struct hits_of {
    uint64_t sub, hits;
};

struct hit_list {
    struct hits_of entries[ENTRIES]; /* oldest first */
    uint32_t len;
    uint64_t newest; /* the newest sub-window that was ever opened */
};

static uint64_t sub_of(const struct weir_limit *l, uint64_t now_ns)
{
    return now_ns / (l->window_ns / l->buckets);
}

static uint64_t first_sub(const struct hit_list *list, uint64_t sub, uint64_t parts)
{
    uint64_t current = sub > list->newest ? sub : list->newest;
    return current > parts ? current - parts : 0;
}

static uint64_t hits_from(const struct hit_list *list, uint64_t first)
{
    uint64_t in_all = 0;
    for (uint32_t i = 0; i < list->len; i++)
        in_all += list->entries[i].sub >= first ? list->entries[i].hits : 0;
    return in_all;
}

/* All that counts, N sub-windows ahead. */
static void pull_back(struct hit_list *list, uint64_t sub, uint64_t parts)
{
    if (list->newest <= sub + parts)
        return;
    uint64_t in_all = hits_from(list, list->newest - parts);
    list->newest = sub + parts;
    list->entries[0] = (struct hits_of){list->newest, in_all};
    list->len = 1;
}

/* The first nanosecond from now on when no more than room are in use, by trying each edge. */
static uint64_t wait_until(const struct hit_list *list, const struct weir_limit *l, uint64_t now_ns,
                           uint64_t room)
{
    uint64_t width_ns = l->window_ns / l->buckets;
    uint64_t sub = sub_of(l, now_ns);
    while (hits_from(list, first_sub(list, sub, l->buckets)) > room)
        sub++;
    return sub * width_ns > now_ns ? sub * width_ns - now_ns : 0;
}

static void add_hits(struct hit_list *list, uint64_t sub, uint64_t hits)
{
    list->newest = sub > list->newest ? sub : list->newest;
    list->entries[list->len++] = (struct hits_of){list->newest, hits};
}

static void remove_newest(struct hit_list *list, uint64_t first, uint64_t hits)
{
    for (uint32_t i = list->len; i-- > 0 && list->entries[i].sub >= first;) {
        uint64_t gone = hits < list->entries[i].hits ? hits : list->entries[i].hits;
        list->entries[i].hits -= gone;
        hits -= gone;
    }
}

/* What a list of hits says to a request, or to hits given back. */
static struct weir_verdict ask_list(struct hit_list *list, const struct weir_limit *l,
                                    uint64_t now_ns, uint64_t hits, bool gives)
{
    uint64_t sub = sub_of(l, now_ns);
    pull_back(list, sub, l->buckets);
    uint64_t first = first_sub(list, sub, l->buckets);
    struct weir_verdict v = {.limit = l->requests, .before = hits_from(list, first)};
    v.allowed = gives || v.before + hits <= l->requests;
    if (gives)
        remove_newest(list, first, hits);
    else if (hits > 0 && (v.allowed || l->count_rejected))
        add_hits(list, sub, hits);
    uint64_t used = hits_from(list, first_sub(list, sub, l->buckets));
    v.remaining = used > l->requests ? 0 : l->requests - used;
    v.reset_after_ns = used > 0 ? wait_until(list, l, now_ns, 0) : 0;
    if (!v.allowed)
        v.retry_after_ns =
            hits > l->requests ? WEIR_NEVER : wait_until(list, l, now_ns, l->requests - hits);
    return v;
}

static void sub_windows_decide_as_a_list_of_hits_does(void **state)
{
    (void)state;
    struct luck luck = luck_of("sub-windows");
    uint64_t rounds = scaled(20000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, SUB, one_in(&luck, 2) ? 20 : SUB_HITS_MAX);
        if (s.limit.requests == 0)
            continue;
        struct hit_list list = {0};
        uint64_t now_ns = random_start(&luck);
        for (luck.step = 0; luck.step < 60; luck.step++) {
            now_ns = random_time(&luck, &s.limit, now_ns, 0);
            uint64_t hits = random_hits(&luck, &s);
            bool gives = one_in(&luck, 6);
            struct weir_verdict v = ask_list(&list, &s.limit, now_ns, hits, gives);
            struct weir_verdict w = gives ? give(&s, now_ns, hits) : take(&s, now_ns, hits);
            CHECK_ALL(&luck, is_same(&v, &w));
            flush(&s);
            CHECK_ALL(&luck, weir_sub_windows_used(&s.limit, &s.state.sub, s.cells, now_ns) ==
                                 hits_from(&list, first_sub(&list, sub_of(&s.limit, now_ns),
                                                            s.limit.buckets)));
        }
    }
}

/* However large the totals grow, only their differences count. */
static void totals_that_wrap_change_nothing(void **state)
{
    (void)state;
    struct luck luck = luck_of("totals that wrap");
    uint64_t rounds = scaled(5000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, SUB, 1000), twin = s;
        twin.state.sub.base = twin.state.sub.total = UINT32_MAX - (uint32_t)roll_to(&luck, 2000);
        uint64_t now_ns = UINT64_C(1700000000) * WEIR_NS_PER_S;
        for (luck.step = 0; luck.step < 60; luck.step++) {
            now_ns += roll_any(&luck, s.limit.window_ns);
            uint64_t hits = roll_to(&luck, 100);
            struct weir_verdict v = take(&s, now_ns, hits), w = take(&twin, now_ns, hits);
            CHECK_ALL(&luck, is_same(&v, &w));
        }
    }
}

/* ---- concurrency: every lease with its deadline ---- */

struct lease {
    uint64_t mark, hits;
};

struct lease_list {
    struct lease leases[ENTRIES];
    uint32_t len;
};

static void drop_ended(struct lease_list *list, uint64_t grid_ns, uint64_t now_ns)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->len; i++)
        if ((big)list->leases[i].mark * grid_ns > now_ns)
            list->leases[n++] = list->leases[i];
    list->len = n;
}

static uint64_t held(const struct lease_list *list)
{
    uint64_t in_all = 0;
    for (uint32_t i = 0; i < list->len; i++)
        in_all += list->leases[i].hits;
    return in_all;
}

static uint64_t wait_until_held(struct lease_list list, uint64_t grid_ns, uint64_t now_ns,
                                uint64_t room)
{
    uint64_t then_ns = now_ns;
    while (held(&list) > room) {
        then_ns += grid_ns - then_ns % grid_ns;
        drop_ended(&list, grid_ns, then_ns);
    }
    return then_ns - now_ns;
}

static void take_lease(struct luck *luck, const struct weir_limit *l, struct weir_leases *leases,
                       struct lease_list *list, uint64_t now_ns)
{
    uint64_t grid_ns = l->window_ns / 2, hits = roll_to(luck, 3), mark;
    uint64_t before = held(list);
    bool allowed = hits == 0 || before + hits <= l->requests;
    struct weir_verdict v;
    weir_concurrency_take(l, leases, now_ns, hits, &v, &mark);
    CHECK_ALL(luck, v.allowed == allowed && v.before == before);
    CHECK_ALL(luck, (mark == 0) == (!allowed || hits == 0));
    if (mark != 0) {
        uint64_t ends_ns = mark * grid_ns - now_ns;
        CHECK_ALL(luck, ends_ns >= l->window_ns && ends_ns <= l->window_ns / 2 * 3);
        list->leases[list->len++] = (struct lease){mark, hits};
    }
    CHECK_ALL(luck, v.remaining == l->requests - held(list));
    CHECK_ALL(luck, v.reset_after_ns == wait_until_held(*list, grid_ns, now_ns, 0));
    uint64_t retry_ns = allowed ? 0 : WEIR_NEVER;
    if (!allowed && hits <= l->requests)
        retry_ns = wait_until_held(*list, grid_ns, now_ns, l->requests - hits);
    CHECK_ALL(luck, v.retry_after_ns == retry_ns);
}

static void end_or_renew_lease(struct luck *luck, const struct weir_limit *l,
                               struct weir_leases *leases, struct lease_list *list, uint64_t now_ns)
{
    if (list->len == 0)
        return;
    struct lease *one = &list->leases[roll_to(luck, list->len - 1)];
    if (one_in(luck, 2)) {
        CHECK_ALL(luck, weir_concurrency_renew(l, leases, now_ns, one->hits, &one->mark));
        CHECK_ALL(luck, one->mark == now_ns / (l->window_ns / 2) + 3);
        return;
    }
    CHECK_ALL(luck, weir_concurrency_release(l, leases, now_ns, one->hits, one->mark));
    *one = list->leases[--list->len];
}

static struct weir_limit random_concurrency(struct luck *luck)
{
    struct weir_limit l;
    struct weir_limit_spec spec = {.algorithm = WEIR_CONCURRENCY,
                                   .requests_per_unit = 1 + (uint32_t)roll_to(luck, 20),
                                   .window_s = 1 + roll_any(luck, WEIR_WINDOW_S_MAX - 1)};
    assert_int_equal(weir_limit_init(&l, &spec, NULL, 0), 0);
    return l;
}

static void leases_are_held_as_a_list_of_them_says(void **state)
{
    (void)state;
    struct luck luck = luck_of("leases");
    uint64_t rounds = scaled(20000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct weir_limit l = random_concurrency(&luck);
        struct weir_leases leases = {0};
        struct lease_list list = {0};
        uint64_t now_ns = random_start(&luck);
        for (luck.step = 0; luck.step < 60; luck.step++) {
            uint64_t on = one_in(&luck, 2) ? 0 : roll_any(&luck, l.window_ns);
            now_ns = on > NOW_MAX - now_ns ? NOW_MAX : now_ns + on;
            drop_ended(&list, l.window_ns / 2, now_ns);
            if (one_in(&luck, 3))
                end_or_renew_lease(&luck, &l, &leases, &list, now_ns);
            else
                take_lease(&luck, &l, &leases, &list, now_ns);
        }
    }
}

/* No slot is lent twice, whatever the clock does, and every lease ends. */
static void leases_stay_within_the_limit_on_any_clock(void **state)
{
    (void)state;
    struct luck luck = luck_of("leases on any clock");
    uint64_t rounds = scaled(20000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct weir_limit l = random_concurrency(&luck);
        struct weir_leases leases = {0};
        uint64_t now_ns = random_start(&luck), in_all = 0, mark;
        struct weir_verdict v;
        for (luck.step = 0; luck.step < 60; luck.step++) {
            uint64_t back = roll_any(&luck, l.window_ns * 2);
            now_ns = now_ns > back ? now_ns - back : 0;
            weir_concurrency_take(&l, &leases, now_ns, 1, &v, &mark);
            in_all += v.allowed ? 1 : 0;
            CHECK_ALL(&luck, in_all <= l.requests);
            CHECK_ALL(&luck, v.reset_after_ns <= l.window_ns * 2);
        }
        weir_concurrency_take(&l, &leases, now_ns + v.reset_after_ns, 0, &v, &mark);
        CHECK_ALL(&luck, v.before == 0);
    }
}

/* ---- changed rates ---- */

static void a_changed_rate_keeps_what_is_used(void **state)
{
    (void)state;
    struct luck luck = luck_of("changed rates");
    uint64_t rounds = scaled(200000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, one_in(&luck, 2) ? TOKEN : LEAKY, UINT32_MAX);
        struct weir_limit to;
        uint32_t requests = (uint32_t)roll_any(&luck, UINT32_MAX);
        if (s.limit.requests == 0 || requests == 0 ||
            weir_limit_with(&to, &s.limit, requests, s.limit.burst, NULL, 0) != 0)
            continue;
        uint64_t now_ns = random_start(&luck);
        take(&s, now_ns, roll_any(&luck, s.limit.burst));
        now_ns += roll_to(&luck, s.limit.step_ns);
        struct weir_verdict before = take(&s, now_ns, 0);
        struct weir_tat tat = s.state.tat;
        tat = weir_tat_rescale(tat, now_ns, &to, s.limit.requests);
        struct subject changed = {.kind = s.kind, .limit = to, .state.tat = tat};
        struct weir_verdict after = take(&changed, now_ns, 0);
        /* In whole tokens: the same, or one more where rounding up passed a whole number. */
        CHECK_ALL(&luck, after.before == before.before || after.before == before.before + 1);
        CHECK_ALL(&luck, after.limit == before.limit);
        /* And back again: never less than it was. */
        changed.state.tat = weir_tat_rescale(changed.state.tat, now_ns, &s.limit, to.requests);
        CHECK_ALL(&luck, changed.state.tat.ns > s.state.tat.ns ||
                             (changed.state.tat.ns == s.state.tat.ns &&
                              changed.state.tat.num >= s.state.tat.num) ||
                             before.before == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sub_windows_decide_as_a_list_of_hits_does),
        cmocka_unit_test(totals_that_wrap_change_nothing),
        cmocka_unit_test(leases_are_held_as_a_list_of_them_says),
        cmocka_unit_test(leases_stay_within_the_limit_on_any_clock),
        cmocka_unit_test(a_changed_rate_keeps_what_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
