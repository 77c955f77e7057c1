/* redis_leases.c - the scripts in a real Redis lease as lib/algo/lease.h says, to the nanosecond.
 *
 * Random limits; at random times leases, takes, gifts, and releases of what was leased, sent to
 * Redis and done to a model (tests/sim/lease_model.h).  Every field of every answer must be the
 * same, how much was leased among them; and what is stored shows in the next answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../sim/lease_model.h"
#include "agree_random.h"

#define LIMITS 24u
#define BATCH 200u
#define REQUESTS 20000u

struct subject {
    struct lease_model model;
    char name[24];
    uint64_t now_ns;
    uint64_t mark; /* of its last lease, or of the last hits */
    uint32_t leased;
    uint32_t round;
};

/* One request, and the model's answer to it. */
struct asked {
    struct weir_redis_counter counter;
    char name[24];
    uint64_t now_ns;
    uint64_t mark, hits_mark;
    struct weir_verdict verdict;
    bool did;
    uint32_t granted;
    uint64_t lasts_ns;
};

struct agreement {
    uint64_t random, tag;
    struct weir_table *table;
    struct subject subjects[LIMITS];
    struct asked asked[BATCH];
    uint64_t leased, refused, released, backwards;
};

static uint64_t below(struct agreement *a, uint64_t n)
{
    return agree_below(&a->random, n);
}

static void choose_op(struct agreement *a, const struct subject *s, struct weir_redis_counter *c)
{
    const uint64_t wishes[] = {1, 3, 100, 5000, WEIR_LEASE_TOKENS_MAX};
    uint64_t chance = below(a, 100);
    c->op = chance < 50 ? WEIR_OP_LEASE : chance < 75 ? WEIR_OP_TAKE : WEIR_OP_GIVE;
    c->wish = (struct weir_lease_wish){.tokens = (uint32_t)wishes[below(a, 5)],
                                       .shares = 2 * (1 + (uint32_t)below(a, 5)),
                                       .ttl_ns = weir_lease_ttl_ns(&s->model.limit)};
    if (below(a, 4) == 0)
        c->wish.sure = 1 + (uint32_t)below(a, c->wish.tokens);
    if (s->leased == 0 || chance < 85)
        return;
    c->op = WEIR_OP_RELEASE;
    c->mark = s->mark;
    c->hits = 1 + below(a, s->leased);
}

static void ask_model(struct agreement *a, struct subject *s, struct asked *q)
{
    const struct weir_redis_counter *c = &q->counter;
    if (c->op == WEIR_OP_TAKE) {
        model_take(&s->model, q->now_ns, c->hits, &q->verdict);
    } else if (c->op == WEIR_OP_GIVE) {
        model_give(&s->model, q->now_ns, c->hits, &q->verdict);
    } else if (c->op == WEIR_OP_RELEASE) {
        q->did = model_release(&s->model, q->now_ns, c->hits, c->mark);
        a->released += q->did;
        s->leased = 0;
    } else {
        q->granted =
            model_lease(&s->model, q->now_ns, c->hits, &c->wish, &q->verdict, &q->lasts_ns);
        q->mark = q->granted > 0 ? model_mark(&s->model) : 0;
    }
    if (q->granted > 0) {
        s->mark = q->mark;
        s->leased = q->granted;
        a->leased++;
    } else if (c->op == WEIR_OP_TAKE && c->hits > 0 && q->verdict.allowed) {
        q->hits_mark = s->mark = model_mark(&s->model);
        s->leased = (uint32_t)weir_min(c->hits, UINT32_MAX);
    }
}

/* A counter of its own for each round of the clock. */
static void start_clock(struct agreement *a, struct subject *s)
{
    struct weir_limit limit = s->model.limit;
    model_init(&s->model, &limit);
    snprintf(s->name, sizeof(s->name), "%u:%u", (unsigned)(s - a->subjects), s->round++);
    s->now_ns = RIG_START_NS + below(a, limit.window_ns);
    s->leased = 0;
}

static void make_request(struct agreement *a, struct asked *q)
{
    struct subject *s = &a->subjects[below(a, LIMITS)];
    *q = (struct asked){.counter = {.limit = &s->model.limit, .ends = true}};
    s->now_ns = agree_time(&a->random, &s->model.limit, s->now_ns, &a->backwards);
    if (s->now_ns > AGREE_LATEST_NS)
        start_clock(a, s);
    q->now_ns = s->now_ns;
    snprintf(q->name, sizeof(q->name), "%s", s->name);
    q->counter.key = weir_str_of(q->name);
    q->counter.hits = agree_hits(&a->random, &s->model.limit);
    choose_op(a, s, &q->counter);
    ask_model(a, s, q);
    struct weir_redis_call call = {
        .counters = &q->counter, .count = 1, .is_timed = true, .now_ns = q->now_ns};
    weir_redis_put_call(&rig.out, rig.how, &call);
}

static bool is_same(const struct weir_verdict *a, const struct weir_verdict *b)
{
    return a->allowed == b->allowed && a->limit == b->limit && a->remaining == b->remaining &&
           a->reset_after_ns == b->reset_after_ns && a->retry_after_ns == b->retry_after_ns &&
           a->before == b->before;
}

static void judge(struct agreement *a, struct asked *q)
{
    struct weir_redis_counter *c = &q->counter;
    uint64_t now_ns = 0;
    redis_rig_next(&rig);
    if (rig.nodes[0].type == WEIR_REDIS_ERROR)
        fail_msg("%.*s", WEIR_STR_ARG(redis_rig_text(&rig)));
    int err = weir_redis_answer_read(rig.reader, rig.nodes, rig.count, c, 1, &now_ns);
    bool agrees = err == 0 && now_ns == q->now_ns && c->granted == q->granted;
    if (c->op == WEIR_OP_RELEASE)
        agrees = agrees && c->is_charged == q->did;
    else
        agrees = agrees && is_same(&c->verdict, &q->verdict);
    if (q->hits_mark != 0)
        agrees = agrees && c->hits_mark == q->hits_mark;
    if (c->op == WEIR_OP_LEASE)
        agrees =
            agrees && c->new_mark == q->mark && (c->granted == 0 || c->lasts_ns == q->lasts_ns);
    if (!agrees)
        fail_msg("%.*s op %d hits %" PRIu64 " at %" PRIu64 " wish %u/%u: error %d, granted %u, not "
                 "%u; before %" PRIu64 ", not %" PRIu64 "; did %d, not %d (L %u W %" PRIu64
                 " B %u N %u)",
                 WEIR_STR_ARG(c->key), (int)c->op, c->hits, q->now_ns, c->wish.tokens,
                 c->wish.shares, err, c->granted, q->granted, c->verdict.before, q->verdict.before,
                 c->is_charged, q->did, c->limit->requests, c->limit->window_ns, c->limit->burst,
                 c->limit->buckets);
    a->refused += c->op != WEIR_OP_RELEASE && !c->verdict.allowed;
}

/* Or nothing was tried. */
static bool is_tried(const struct agreement *a, uint64_t done)
{
    return a->leased > done / 20 && a->refused > done / 50 && a->released > 0 && a->backwards > 0;
}

static void agree_on(void **state)
{
    struct weir_limit_spec spec = *(const struct weir_limit_spec *)*state;
    static struct agreement a;
    const struct weir_table_geometry geometry = {.file_bytes = UINT64_C(4) << 20};
    a = (struct agreement){.random = rig_seed(), .tag = a.tag};
    a.table = rig_open(NULL, &geometry);
    for (uint32_t i = 0; i < LIMITS; i++) {
        struct subject *s = &a.subjects[i];
        spec.round_up = i % 2;
        spec.count_rejected = i % 4 >= 2 && spec.algorithm == WEIR_FIXED_WINDOW;
        s->model.limit = agree_limit(&a.random, a.table, spec, ++a.tag);
        start_clock(&a, s);
    }
    uint64_t requests = rig_scaled(REQUESTS, BATCH), done = 0;
    while (done < requests || (!is_tried(&a, done) && done < requests + REQUESTS)) {
        for (uint32_t i = 0; i < BATCH; i++)
            make_request(&a, &a.asked[i]);
        redis_rig_send(&rig);
        for (uint32_t i = 0; i < BATCH; i++)
            judge(&a, &a.asked[i]);
        done += BATCH;
    }
    weir_table_close(a.table);
    assert_true(is_tried(&a, done));
}

/* A call may end within a lease.  The script stays in the server between calls, and must not take
 * the next one for a lease, too. */
static void an_error_ends_the_lease(void **state)
{
    (void)state;
    char why[64];
    uint64_t now_ns;
    struct weir_limit limit;
    struct weir_limit_spec spec = {
        .algorithm = WEIR_FIXED_WINDOW, .requests_per_unit = 100, .window_s = 60, .buckets = 1};
    assert_int_equal(weir_limit_init(&limit, &spec, why, sizeof(why)), 0);
    struct weir_redis_counter c = {.key = WEIR_STR("list"),
                                   .limit = &limit,
                                   .hits = 1,
                                   .op = WEIR_OP_LEASE,
                                   .wish = {.tokens = 10, .shares = 2, .ttl_ns = 1},
                                   .ends = true};
    struct weir_redis_call call = {
        .counters = &c, .count = 1, .is_timed = true, .now_ns = RIG_START_NS};
    redis_rig_ask(&rig, "LPUSH list element");
    weir_redis_put_call(&rig.out, rig.how, &call);
    redis_rig_send(&rig);
    redis_rig_next(&rig);
    assert_int_equal(rig.nodes[0].type, WEIR_REDIS_ERROR);
    c.key = WEIR_STR("fine");
    c.op = WEIR_OP_TAKE;
    for (int i = 0; i < 2; i++) {
        weir_redis_put_call(&rig.out, rig.how, &call);
        redis_rig_send(&rig);
        redis_rig_next(&rig);
        assert_int_equal(weir_redis_answer_read(rig.reader, rig.nodes, rig.count, &c, 1, &now_ns),
                         0);
        assert_int_equal(c.verdict.before, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGREE_TEST(fixed_windows_are_leased_alike, .algorithm = WEIR_FIXED_WINDOW),
        AGREE_TEST(sliding_counters_are_leased_alike, .algorithm = WEIR_SLIDING_WINDOW_COUNTER),
        AGREE_TEST(sub_windows_are_leased_alike, .algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                   .buckets = 2),
        AGREE_TEST(token_buckets_are_leased_alike, .algorithm = WEIR_TOKEN_BUCKET),
        AGREE_TEST(token_buckets_at_intervals_are_leased_alike, .algorithm = WEIR_TOKEN_BUCKET,
                   .refill_interval = true),
        AGREE_TEST(logs_are_leased_alike, .algorithm = WEIR_SLIDING_WINDOW_LOG),
        cmocka_unit_test_setup_teardown(an_error_ends_the_lease, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
