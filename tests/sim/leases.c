/* leases.c - many nodes lease from one Redis, in virtual time, and a checker judges what passed.
 *
 * The nodes run the real tables, leases and paces (lib/store); Redis is lib/algo with leases
 * (lease_model.h), which the scripts are held to elsewhere.  Between them are messages that take
 * their time, overtake each other, and get lost; clocks that show anything and drift; nodes that
 * die with leases in hand; demand that comes and goes.
 *
 * The checker replays what passed, in the order of its instants, through the strict algorithm: each
 * hit must be allowed.  So leases admit nothing that one machine would not have.  That it finds
 * what is wrong is shown with three bugs, planted: leases that are counted from the reply, buckets
 * that are refilled while their tokens are leased, and logs with entries of the grant's instant.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"
#include "lease_model.h"

#include "store/lease.h"
#include "store/lease_pace.h"
#include "table/internal.h"

#define NODES_MAX 5u
#define EVENTS_MAX 4096u
#define PASSED_MAX (1u << 21)
#define PARKED_MAX 4096u
#define MS UINT64_C(1000000)
#define SECOND WEIR_NS_PER_S
#define DEADLINE_NS (25 * MS)
#define IDLE_NS (100 * MS)
#define START_NS RIG_START_NS /* by Redis's clock */
#define BOOT_NS (UINT64_C(1000000) * SECOND)

struct plan {
    struct weir_limit_spec spec;
    uint32_t nodes;
    uint64_t rate; /* requests a second, of each node */
    uint64_t run_ns;
    uint64_t latency_ns;   /* on average, one way */
    uint32_t lost_of_1000; /* replies */
    uint32_t deaths;
    uint64_t period_ns;    /* in which demand comes and goes; 0: it is always the same */
    uint32_t calm_percent; /* of what may pass, while it is low */
    uint32_t hits_most;
    bool counts_from_reply, is_careless; /* planted */
};

enum what { ARRIVE, AT_REDIS, REPLY, DEADLINE, LOOK, DIE, RELEASED };

/* Something that will happen.  What a message carries, it carries here. */
struct event {
    uint64_t at_ns;
    enum what what;
    uint32_t node, life; /* of the node: who died hears nothing */
    uint64_t flight;
    uint64_t sent_ns; /* of the node's boot */
    uint64_t hits, mark;
    struct weir_lease_wish wish;
    struct weir_verdict verdict;
    uint32_t granted;
    uint64_t lasts_ns, decided_ns;
};

struct node {
    struct weir_table *table;
    struct weir_lease_paces *paces;
    uint64_t boot_ns; /* at START_NS */
    int64_t drift_ppm;
    uint32_t life;
    uint64_t flight; /* under way; 0: none */
    uint64_t parked[PARKED_MAX];
    uint32_t parked_from, parked_to;
    uint32_t seen;
    uint64_t seen_ns, mark;
};

struct passed {
    uint64_t at_ns, hits;
};

struct sim {
    struct plan plan;
    uint64_t random;
    struct lease_model redis;
    struct node nodes[NODES_MAX];
    struct event events[EVENTS_MAX]; /* a heap */
    uint32_t event_count;
    uint64_t flights;
    struct passed *passed;   /* what was let through, at its instant */
    struct passed *demanded; /* all that was asked for */
    uint64_t passed_count, demanded_count;
    uint64_t commands, by_lease;
};

static uint64_t below(struct sim *s, uint64_t n)
{
    return rig_random(&s->random) % n;
}

/* ---- what will happen ---- */

static void swap(struct event *a, struct event *b)
{
    struct event t = *a;
    *a = *b;
    *b = t;
}

static void schedule(struct sim *s, struct event e)
{
    assert_true(s->event_count < EVENTS_MAX);
    uint32_t i = s->event_count++;
    s->events[i] = e;
    for (; i > 0 && s->events[i].at_ns < s->events[(i - 1) / 2].at_ns; i = (i - 1) / 2)
        swap(&s->events[i], &s->events[(i - 1) / 2]);
}

static struct event next_event(struct sim *s)
{
    struct event first = s->events[0];
    s->events[0] = s->events[--s->event_count];
    for (uint32_t i = 0;;) {
        uint32_t least = i;
        for (uint32_t k = 2 * i + 1; k <= 2 * i + 2 && k < s->event_count; k++)
            least = s->events[k].at_ns < s->events[least].at_ns ? k : least;
        if (least == i)
            return first;
        swap(&s->events[i], &s->events[least]);
        i = least;
    }
}

/* Mostly about as long as planned; one in a hundred takes very long. */
static uint64_t latency(struct sim *s)
{
    uint64_t usual = s->plan.latency_ns / 2 + below(s, s->plan.latency_ns + 1);
    return below(s, 100) == 0 && s->plan.lost_of_1000 > 0 ? usual * (1 + below(s, 50)) : usual;
}

/* ---- a node ---- */

static uint64_t boot_of(const struct node *n, uint64_t now_ns)
{
    int64_t passed = (int64_t)(now_ns - START_NS);
    return n->boot_ns + (uint64_t)(passed + passed / 1000000 * n->drift_ppm);
}

static struct weir_lease_at lease_at(const struct sim *s, uint32_t i, uint64_t now_ns)
{
    const struct node *n = &s->nodes[i];
    return (struct weir_lease_at){.table = n->table,
                                  .key = rig_key(5, n->life), /* what the dead held is lost */
                                  .boot_ns = boot_of(n, now_ns),
                                  .is_dated = weir_lease_is_dated(&s->redis.limit)};
}

static void let_pass(struct sim *s, uint64_t now_ns, uint64_t hits)
{
    assert_true(s->passed_count < PASSED_MAX);
    s->passed[s->passed_count++] = (struct passed){now_ns, hits};
}

static void ask(struct sim *s, uint32_t i, uint64_t now_ns, uint64_t hits, uint64_t sure)
{
    struct node *n = &s->nodes[i];
    uint32_t ttl_ns = weir_lease_ttl_ns(&s->redis.limit);
    struct weir_lease_pace *pace = weir_lease_pace_of(n->paces, 1);
    struct event e = {.at_ns = now_ns + latency(s),
                      .what = AT_REDIS,
                      .node = i,
                      .life = n->life,
                      .flight = n->flight = ++s->flights,
                      .sent_ns = boot_of(n, now_ns),
                      .hits = hits};
    e.wish = (struct weir_lease_wish){
        .tokens = weir_lease_pace_ask(pace, e.sent_ns, ttl_ns),
        .sure = (uint32_t)sure + weir_lease_pace_sure(pace),
        .shares = 2 * s->plan.nodes,
        .ttl_ns = ttl_ns,
    };
    e.wish.tokens = (uint32_t)weir_max(e.wish.tokens, e.wish.sure);
    schedule(s, e);
    e.what = DEADLINE;
    e.at_ns = now_ns + DEADLINE_NS;
    schedule(s, e);
}

/* True: decided. */
static bool decide(struct sim *s, uint32_t i, uint64_t now_ns, uint64_t hits)
{
    struct weir_lease_at at = lease_at(s, i, now_ns);
    struct weir_lease_taken taken = weir_lease_take(&at, hits);
    if (taken.said == WEIR_LEASE_SPENT) {
        let_pass(s, now_ns, hits);
        s->by_lease++;
        if (taken.is_low && s->nodes[i].flight == 0)
            ask(s, i, now_ns, 0, 0);
    }
    return taken.said != WEIR_LEASE_NONE;
}

/* Where demand comes and goes: for a while some of what may pass, then for a third of that all that
 * there is. */
static bool is_calm(struct sim *s, uint64_t now_ns)
{
    uint64_t all = s->plan.rate * s->plan.nodes * s->plan.spec.window_s;
    bool is_gust = now_ns % s->plan.period_ns >= s->plan.period_ns / 4 * 3;
    uint64_t some = (uint64_t)s->plan.spec.requests_per_unit * s->plan.calm_percent / 100;
    return !is_gust && below(s, all) > some;
}

static void arrive(struct sim *s, const struct event *e)
{
    struct node *n = &s->nodes[e->node];
    uint64_t hits = 1 + below(s, s->plan.hits_most);
    struct event next = *e;
    next.at_ns += 1 + below(s, 2 * SECOND / s->plan.rate);
    schedule(s, next);
    if (s->plan.period_ns > 0 && is_calm(s, e->at_ns))
        return;
    assert_true(s->demanded_count < PASSED_MAX);
    s->demanded[s->demanded_count++] = (struct passed){e->at_ns, hits};
    if (decide(s, e->node, e->at_ns, hits))
        return;
    if (n->flight == 0)
        ask(s, e->node, e->at_ns, hits, 0);
    else if (n->parked_to < PARKED_MAX)
        n->parked[n->parked_to++] = hits;
}

/* A call has ended: who waited is decided, or asks for all. */
static void land(struct sim *s, uint32_t i, uint64_t now_ns, bool is_answered)
{
    struct node *n = &s->nodes[i];
    n->flight = 0;
    while (n->parked_from < n->parked_to && n->flight == 0) {
        uint64_t hits = n->parked[n->parked_from++], sure = 0;
        if (!is_answered || decide(s, i, now_ns, hits))
            continue;
        for (uint32_t k = n->parked_from; k < n->parked_to; k++)
            sure += n->parked[k];
        ask(s, i, now_ns, hits, sure);
    }
    if (n->parked_from == n->parked_to)
        n->parked_from = n->parked_to = 0;
}

/* ---- Redis ---- */

static void at_redis(struct sim *s, struct event *e)
{
    s->commands++;
    e->granted = model_lease(&s->redis, e->at_ns, e->hits, &e->wish, &e->verdict, &e->lasts_ns);
    e->mark = model_mark(&s->redis);
    e->decided_ns = e->at_ns;
    if (below(s, 1000) < s->plan.lost_of_1000)
        return;
    e->what = REPLY;
    e->at_ns += latency(s);
    schedule(s, *e);
}

static void give_back(struct sim *s, const struct event *e, uint32_t tokens, uint64_t mark)
{
    struct event back = *e;
    back.what = RELEASED;
    back.at_ns = e->at_ns + latency(s);
    back.hits = tokens;
    back.mark = mark;
    schedule(s, back);
}

static void reply(struct sim *s, const struct event *e)
{
    struct node *n = &s->nodes[e->node];
    struct weir_lease_at at = lease_at(s, e->node, e->at_ns);
    struct weir_lease_pace *pace = weir_lease_pace_of(n->paces, 1);
    uint64_t from_ns = s->plan.counts_from_reply ? at.boot_ns : e->sent_ns;
    bool is_late = n->flight != e->flight;
    uint64_t table_ns = weir_clock_at_boot(n->table, at.boot_ns);
    weir_lease_pace_granted(pace, e->granted);
    if (e->granted > 0 && weir_lease_add(&at, e->granted, from_ns + e->lasts_ns, table_ns)) {
        n->mark = e->mark;
        n->seen = 0;
    } else if (e->granted > 0) {
        give_back(s, e, e->granted, e->mark);
    }
    if (!e->verdict.allowed && e->verdict.retry_after_ns != WEIR_NEVER) {
        at.boot_ns = e->sent_ns;
        uint64_t wait_ns = weir_lease_pace_refused(pace, e->sent_ns, e->verdict.retry_after_ns,
                                                   weir_lease_ttl_ns(&s->redis.limit));
        weir_lease_refuse(&at, e->hits, wait_ns, table_ns);
    }
    if (is_late)
        return; /* its client was told something else */
    if (e->verdict.allowed && e->hits > 0)
        let_pass(s, e->decided_ns, e->hits);
    land(s, e->node, e->at_ns, true);
}

/* ---- giving back ---- */

static void look(struct sim *s, const struct event *e)
{
    struct node *n = &s->nodes[e->node];
    struct weir_lease_at at = lease_at(s, e->node, e->at_ns);
    uint32_t tokens = weir_lease_count(&at);
    struct event next = *e;
    next.at_ns += 50 * MS;
    schedule(s, next);
    if (tokens != n->seen) {
        n->seen = tokens;
        n->seen_ns = at.boot_ns;
    } else if (tokens > 0 && !at.is_dated && at.boot_ns - n->seen_ns >= IDLE_NS &&
               weir_lease_collect(&at, tokens) > 0) {
        give_back(s, e, tokens, n->mark);
    }
}

static void die(struct sim *s, uint32_t i)
{
    struct node *n = &s->nodes[i];
    n->life += NODES_MAX;
    n->flight = 0;
    n->seen = n->parked_from = n->parked_to = 0;
}

static void happen(struct sim *s, struct event *e)
{
    struct node *n = &s->nodes[e->node];
    bool is_gone = n->life != e->life;
    switch (e->what) {
    case ARRIVE:
        arrive(s, e);
        break;
    case AT_REDIS:
        at_redis(s, e);
        break;
    case REPLY:
        if (!is_gone)
            reply(s, e);
        break;
    case DEADLINE:
        if (!is_gone && n->flight == e->flight)
            land(s, e->node, e->at_ns, false);
        break;
    case LOOK:
        look(s, e);
        break;
    case RELEASED:
        s->commands++;
        (void)model_release(&s->redis, e->at_ns, e->hits, e->mark);
        break;
    case DIE:
        die(s, e->node);
        break;
    }
}

/* ---- running ---- */

static void start_nodes(struct sim *s)
{
    const struct weir_table_geometry geometry = {.file_bytes = WEIR_TABLE_BYTES_MIN};
    for (uint32_t i = 0; i < s->plan.nodes; i++) {
        struct node *n = &s->nodes[i];
        n->table = rig_open(NULL, &geometry);
        assert_int_equal(weir_lease_paces_new(&n->paces, 16), 0);
        n->boot_ns = (n->table->header->clock.lo >> 1) + below(s, 1000 * SECOND);
        n->drift_ppm = (int64_t)below(s, 401) - 200;
        n->life = i;
        schedule(s, (struct event){.at_ns = START_NS + below(s, MS), .what = ARRIVE, .node = i});
        schedule(s, (struct event){.at_ns = START_NS + below(s, 50 * MS), .what = LOOK, .node = i});
    }
    for (uint32_t i = 0; i < s->plan.deaths; i++)
        schedule(s, (struct event){.at_ns = START_NS + below(s, s->plan.run_ns),
                                   .what = DIE,
                                   .node = (uint32_t)below(s, s->plan.nodes)});
}

static struct sim *run(const struct plan *plan, uint64_t seed)
{
    char why[128];
    struct weir_limit limit;
    struct sim *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->plan = *plan;
    s->random = seed;
    s->passed = calloc(PASSED_MAX, sizeof(*s->passed));
    s->demanded = calloc(PASSED_MAX, sizeof(*s->demanded));
    assert_true(s->passed != NULL && s->demanded != NULL);
    assert_int_equal(weir_limit_init(&limit, &plan->spec, why, sizeof(why)), 0);
    assert_true(weir_lease_suits(&limit));
    model_init(&s->redis, &limit);
    s->redis.is_careless = plan->is_careless;
    start_nodes(s);
    while (s->events[0].at_ns < START_NS + plan->run_ns) {
        struct event e = next_event(s);
        happen(s, &e);
    }
    for (uint32_t i = 0; i < plan->nodes; i++) {
        weir_table_close(s->nodes[i].table);
        weir_lease_paces_free(s->nodes[i].paces);
    }
    return s;
}

static void done(struct sim *s)
{
    free(s->passed);
    free(s->demanded);
    free(s);
}

/* ---- judging ---- */

static int by_time(const void *a, const void *b)
{
    const struct passed *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* Replays hits through the strict algorithm; returns how many are allowed. */
static uint64_t replay(const struct sim *s, struct passed *list, uint64_t count)
{
    struct lease_model strict;
    uint64_t allowed = 0;
    model_init(&strict, &s->redis.limit);
    qsort(list, count, sizeof(*list), by_time);
    for (uint64_t i = 0; i < count; i++) {
        struct weir_verdict v;
        model_take(&strict, list[i].at_ns, list[i].hits, &v);
        allowed += v.allowed;
    }
    return allowed;
}

/* How many passed that should not have. */
static uint64_t excess(struct sim *s)
{
    return s->passed_count - replay(s, s->passed, s->passed_count);
}

static const struct weir_limit_spec specs[] = {
    {WEIR_FIXED_WINDOW, .requests_per_unit = 700, .window_s = 1, .buckets = 1},
    {WEIR_FIXED_WINDOW, 3000, .window_s = 7, .buckets = 1, .count_rejected = true},
    {WEIR_SLIDING_WINDOW_COUNTER, .requests_per_unit = 900, .window_s = 1, .buckets = 1},
    {WEIR_SLIDING_WINDOW_COUNTER, 1300, .window_s = 3, .buckets = 1, .round_up = true},
    {WEIR_SLIDING_WINDOW_COUNTER, .requests_per_unit = 800, .window_s = 1, .buckets = 5},
    {WEIR_TOKEN_BUCKET, .requests_per_unit = 800, .burst = 800, .window_s = 1, .buckets = 1},
    {WEIR_TOKEN_BUCKET, .requests_per_unit = 997, .burst = 120, .window_s = 1, .buckets = 1},
    {WEIR_TOKEN_BUCKET, 500, 900, .window_s = 1, .buckets = 1, .refill_interval = true},
    {WEIR_SLIDING_WINDOW_LOG, .requests_per_unit = 900, .window_s = 3, .buckets = 1},
    {WEIR_SLIDING_WINDOW_LOG, .requests_per_unit = 1000, .window_s = 7, .buckets = 1},
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

/* A node of a fleet in which everything goes wrong. */
static struct plan hard_plan(uint32_t which, uint64_t seed)
{
    return (struct plan){.spec = specs[which],
                         .nodes = 2 + (uint32_t)(seed % (NODES_MAX - 1)),
                         .rate = 200 + seed % 7 * 400,
                         .run_ns = 12 * SECOND,
                         .latency_ns = 200000 + seed % 5 * 3 * MS,
                         .lost_of_1000 = 30,
                         .deaths = 6,
                         .period_ns = seed % 2 * 2 * SECOND,
                         .calm_percent = 60,
                         .hits_most = 1 + (uint32_t)(seed % 3)};
}

static void no_more_passes_than_on_one_machine(void **state)
{
    (void)state;
    uint64_t seed = rig_seed(), runs = rig_scaled(30, 3), by_lease = 0;
    for (uint64_t r = 0; r < runs; r++) {
        for (uint32_t k = 0; k < SPECS; k++) {
            struct plan plan = hard_plan(k, seed + r);
            struct sim *s = run(&plan, seed + r * 31 + k);
            assert_true(s->passed_count > 0);
            by_lease += s->by_lease;
            if (excess(s) > 0)
                fail_msg("limit %u, run %" PRIu64 ": %" PRIu64 " of %" PRIu64 " too many", k, r,
                         excess(s), s->passed_count);
            done(s);
        }
    }
    assert_true(by_lease > runs * 1000);
}

/* A key that is asked for far more often than it may be, on a network that works. */
static void a_hot_key_is_used_to_the_full(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < SPECS; k++) {
        struct plan plan = {.spec = specs[k],
                            .nodes = 3,
                            .rate = 20000,
                            .run_ns = 10 * SECOND,
                            .latency_ns = 150000,
                            .hits_most = 1};
        struct sim *s = run(&plan, k);
        uint64_t possible = replay(s, s->demanded, s->demanded_count);
        assert_int_equal(excess(s), 0);
        printf("# limit %u: %.2f%% used, %.3f%% commands\n", k,
               100.0 * (double)s->passed_count / (double)possible,
               100.0 * (double)s->commands / (double)s->demanded_count);
        assert_true(s->passed_count * 100 >= possible * 99);
        done(s);
    }
}

/* How many of some runs the checker finds fault with. */
static uint32_t found_in(struct plan plan)
{
    uint32_t found = 0;
    plan.nodes = 2;
    plan.rate = plan.rate > 0 ? plan.rate : 3000;
    plan.run_ns = plan.run_ns > 0 ? plan.run_ns : 12 * SECOND;
    plan.latency_ns = plan.latency_ns > 0 ? plan.latency_ns : 8 * MS;
    plan.hits_most = 1;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sim *s = run(&plan, seed);
        found += excess(s) > 0;
        done(s);
    }
    return found;
}

static void a_lease_that_counts_from_the_reply_is_found(void **state)
{
    (void)state;
    const uint32_t which[] = {0, 7};
    for (uint32_t i = 0; i < 2; i++) {
        struct plan plan = {.spec = specs[which[i]], .period_ns = 2 * SECOND, .calm_percent = 60};
        assert_int_equal(found_in(plan), 0);
        plan.counts_from_reply = true;
        assert_true(found_in(plan) > 4);
    }
}

static void a_bucket_that_refills_what_is_leased_is_found(void **state)
{
    (void)state;
    /* Large enough that leases last; it is full when everybody comes at once. */
    struct plan plan = {.spec = specs[5], .period_ns = 8 * SECOND, .calm_percent = 60};
    plan.spec.burst = 6400;
    assert_int_equal(found_in(plan), 0);
    plan.is_careless = true;
    assert_true(found_in(plan) > 4);
}

static void a_log_with_entries_of_the_grant_is_found(void **state)
{
    (void)state;
    /* Everybody comes a little before what was leased the last time leaves the log. */
    struct plan plan = {.spec = specs[9],
                        .period_ns = 19800 * MS,
                        .calm_percent = 20,
                        .run_ns = 300 * SECOND,
                        .rate = 600,
                        .latency_ns = MS / 2};
    plan.spec.window_s = 20;
    assert_int_equal(found_in(plan), 0);
    plan.is_careless = true;
    assert_true(found_in(plan) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_passes_than_on_one_machine),
        cmocka_unit_test(a_hot_key_is_used_to_the_full),
        cmocka_unit_test(a_lease_that_counts_from_the_reply_is_found),
        cmocka_unit_test(a_bucket_that_refills_what_is_leased_is_found),
        cmocka_unit_test(a_log_with_entries_of_the_grant_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
