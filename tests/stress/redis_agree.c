/* redis_agree.c - the scripts in a real Redis and the table decide alike, to the nanosecond.
 *
 * For each kind of counter: random limits, random requests at random times - at the edges of
 * windows more often than not, and now and then back in time - sent to both.  Every field of every
 * answer must be the same.  20,000 requests of each kind by default; WEIR_TEST_SCALE=50 makes that
 * the million of `make agree`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "agree_random.h"

#include "algo/math.h"

#define LIMITS 24u
#define KEYS 6u /* of each limit */
#define MARKS 16u
#define BATCH 200u
#define REQUESTS 20000u

/* One limit, its own clock, and what was taken of it and not released. */
struct subject {
    struct weir_limit limit;
    uint64_t now_ns;
    struct {
        uint64_t mark, hits;
        uint32_t key;
    } marks[MARKS];
    uint32_t mark_count;
    uint32_t round; /* of its clock, each with keys of its own: random steps reach far */
};

/* One request, and the table's answer to it. */
struct asked {
    struct weir_redis_counter counter;
    char name[40];
    uint64_t now_ns;
    uint64_t mark;
    struct weir_verdict verdict;
    bool did;
    int err; /* Redis's answer was none */
};

struct agreement {
    uint64_t random;
    struct weir_table *table;
    struct subject subjects[LIMITS];
    struct asked asked[BATCH];
    uint64_t refused, backwards;
};

static uint64_t below(struct agreement *a, uint64_t n)
{
    return agree_below(&a->random, n);
}

static void choose_op(struct agreement *a, struct subject *s, struct weir_redis_counter *c,
                      uint32_t *key)
{
    uint64_t chance = below(a, 100);
    bool has_marks =
        s->limit.algorithm == WEIR_CONCURRENCY || s->limit.algorithm == WEIR_LEAKY_BUCKET;
    c->op = chance < 78 || (chance < 84 && s->limit.count_rejected) ? WEIR_OP_TAKE
            : chance < 84                                           ? WEIR_OP_LOOK
                                                                    : WEIR_OP_GIVE;
    if (!has_marks || chance < 60 || s->mark_count == 0)
        return;
    uint32_t at = (uint32_t)below(a, s->mark_count);
    c->op =
        s->limit.algorithm == WEIR_CONCURRENCY && chance >= 90 ? WEIR_OP_RENEW : WEIR_OP_RELEASE;
    c->mark = s->marks[at].mark;
    c->hits = s->marks[at].hits;
    *key = s->marks[at].key;
    s->marks[at] = s->marks[--s->mark_count];
}

/* ---- the table's answer ---- */

static void ask_table(struct agreement *a, struct asked *q, uint64_t key)
{
    struct weir_redis_counter *c = &q->counter;
    switch (c->op) {
    case WEIR_OP_TAKE:
    case WEIR_OP_LEASE: /* tests/stress/redis_leases.c */
        weir_local_take(a->table, c->limit, key, q->now_ns, c->hits, &q->verdict, &q->mark);
        break;
    case WEIR_OP_LOOK:
        weir_local_look(a->table, c->limit, key, q->now_ns, c->hits, &q->verdict);
        break;
    case WEIR_OP_GIVE:
        weir_local_give(a->table, c->limit, key, q->now_ns, c->hits, &q->verdict);
        break;
    case WEIR_OP_RELEASE:
        weir_local_release(a->table, c->limit, key, q->now_ns, c->hits, c->mark);
        break;
    case WEIR_OP_RENEW:
        q->mark = c->mark;
        q->did = weir_local_renew(a->table, c->limit, key, q->now_ns, c->hits, &q->mark) == 0;
        break;
    case WEIR_OP_ADD:
        weir_local_add(a->table, c->limit, key, c->mark * c->limit->window_ns, c->hits);
        break;
    }
}

static void keep_mark(struct subject *s, const struct asked *q, uint32_t key)
{
    if (q->mark == 0 || s->mark_count == MARKS)
        return;
    s->marks[s->mark_count].mark = q->mark;
    s->marks[s->mark_count].hits = q->counter.hits;
    s->marks[s->mark_count++].key = key;
}

static void step_clock(struct agreement *a, struct subject *s)
{
    s->now_ns = agree_time(&a->random, &s->limit, s->now_ns, &a->backwards);
    if (s->now_ns < AGREE_LATEST_NS)
        return;
    s->now_ns = RIG_START_NS;
    s->mark_count = 0;
    s->round++;
}

static void make_request(struct agreement *a, struct asked *q)
{
    uint32_t at = (uint32_t)below(a, LIMITS), key = (uint32_t)below(a, KEYS);
    struct subject *s = &a->subjects[at];
    *q = (struct asked){.counter = {.limit = &s->limit, .ends = true}};
    step_clock(a, s);
    q->now_ns = s->now_ns;
    q->counter.hits = agree_hits(&a->random, &s->limit);
    choose_op(a, s, &q->counter, &key);
    int len = snprintf(q->name, sizeof(q->name), "%u:%u:%u", at, key, s->round);
    q->counter.key = (struct weir_str){.ptr = q->name, .len = (size_t)len};
    ask_table(a, q, rig_key(s->limit.tag, (uint64_t)s->round << 32 | key));
    keep_mark(s, q, key);
    struct weir_redis_call call = {
        .counters = &q->counter, .count = 1, .is_timed = true, .now_ns = q->now_ns};
    weir_redis_put_call(&rig.out, rig.how, &call);
}

/* ---- are they the same? ---- */

static void show(const struct asked *q, const struct weir_verdict *v, const char *who)
{
    printf("# %s: allowed %d remaining %" PRIu64 " reset %" PRIu64 " retry %" PRIu64
           " delay %" PRIu64 " before %" PRIu64 " (%s op %d hits %" PRIu64 " at %" PRIu64
           " L %u W %" PRIu64 " B %u N %u)\n",
           who, v->allowed, v->remaining, v->reset_after_ns, v->retry_after_ns, v->delay_ns,
           v->before, q->name, (int)q->counter.op, q->counter.hits, q->now_ns,
           q->counter.limit->requests, q->counter.limit->window_ns, q->counter.limit->burst,
           q->counter.limit->buckets);
}

static bool is_same(const struct weir_verdict *a, const struct weir_verdict *b)
{
    return a->allowed == b->allowed && a->limit == b->limit && a->remaining == b->remaining &&
           a->reset_after_ns == b->reset_after_ns && a->retry_after_ns == b->retry_after_ns &&
           a->delay_ns == b->delay_ns && a->before == b->before;
}

/* Reads Redis's answer; says whether it is that it wants to be asked again. */
static bool is_asked_again(struct asked *q)
{
    uint64_t now_ns = 0;
    redis_rig_next(&rig);
    if (rig.nodes[0].type == WEIR_REDIS_ERROR)
        fail_msg("%.*s", WEIR_STR_ARG(redis_rig_text(&rig)));
    q->err = weir_redis_answer_read(rig.reader, rig.nodes, rig.count, &q->counter, 1, &now_ns);
    if (q->err == 0)
        assert_int_equal(now_ns, q->now_ns);
    return q->err == 0 && q->counter.is_stale;
}

static void judge(struct agreement *a, const struct asked *q)
{
    const struct weir_redis_counter *c = &q->counter;
    bool has_verdict = c->op != WEIR_OP_RELEASE && c->op != WEIR_OP_RENEW;
    bool agrees = q->err == 0;
    if (has_verdict)
        agrees = agrees && is_same(&c->verdict, &q->verdict) && c->new_mark == q->mark;
    else if (c->op == WEIR_OP_RENEW)
        agrees = agrees && c->is_charged == q->did && (!q->did || c->new_mark == q->mark);
    if (!agrees) {
        show(q, &q->verdict, "table");
        show(q, &c->verdict, "redis");
        fail_msg("error %d; marks %" PRIx64 ", %" PRIx64, q->err, q->mark, c->new_mark);
    }
    a->refused += has_verdict && !c->verdict.allowed;
}

/* Or nothing was tried. */
static bool is_tried(const struct agreement *a, uint64_t done)
{
    return a->refused > done / 200 && a->backwards > 0;
}

static void agree_on(void **state)
{
    struct weir_limit_spec spec = *(const struct weir_limit_spec *)*state;
    static struct agreement a;
    static uint64_t tag;
    const struct weir_table_geometry geometry = {.file_bytes = UINT64_C(256) << 20};
    a = (struct agreement){.random = rig_seed() ^ (tag << 32)};
    a.table = rig_open(NULL, &geometry);
    weir_table_trust_callers(a.table);
    for (uint32_t i = 0; i < LIMITS; i++) {
        spec.round_up = i % 2;
        spec.count_rejected = i % 4 >= 2 && spec.algorithm != WEIR_TOKEN_BUCKET &&
                              spec.algorithm != WEIR_LEAKY_BUCKET &&
                              spec.algorithm != WEIR_CONCURRENCY;
        a.subjects[i].limit = agree_limit(&a.random, a.table, spec, ++tag);
        a.subjects[i].now_ns = RIG_START_NS + below(&a, a.subjects[i].limit.window_ns);
    }
    uint64_t requests = rig_scaled(REQUESTS, BATCH), done = 0;
    while (done < requests || (!is_tried(&a, done) && done < requests + REQUESTS)) {
        for (uint32_t i = 0; i < BATCH; i++)
            make_request(&a, &a.asked[i]);
        redis_rig_send(&rig);
        for (uint32_t i = 0; i < BATCH; i++) {
            assert_false(is_asked_again(&a.asked[i]));
            judge(&a, &a.asked[i]);
        }
        done += BATCH;
    }
    weir_table_close(a.table);
    assert_true(is_tried(&a, done));
}

/* A bucket whose limit is changed live, five rates in turn: what is used stays used.  The script
 * leaves such a bucket alone, and is asked again with what lib/algo makes of it. */
static void changed_rates_agree(void **state)
{
    (void)state;
    static const uint32_t rates[] = {5, 7, 10, 97, 1000};
    const struct weir_table_geometry geometry = {.file_bytes = UINT64_C(64) << 20};
    struct agreement *a = calloc(1, sizeof(*a));
    uint32_t stale = 0;
    assert_non_null(a);
    a->random = rig_seed();
    a->table = rig_open(NULL, &geometry);
    weir_table_trust_callers(a->table);
    struct subject *s = &a->subjects[0];
    s->now_ns = RIG_START_NS;
    for (uint32_t i = 0; i < rig_scaled(3000, 300); i++) {
        struct weir_limit_spec spec = {.algorithm = i % 2 ? WEIR_TOKEN_BUCKET : WEIR_LEAKY_BUCKET,
                                       .requests_per_unit = rates[i / 20 % 5],
                                       .burst = 20,
                                       .window_s = 60};
        s->limit = rig_limit(a->table, spec, 1000 + i % 2);
        struct asked q = {.counter = {.limit = &s->limit, .ends = true}};
        q.now_ns = s->now_ns += below(a, 1500000000);
        q.counter.op = below(a, 8) == 0 ? WEIR_OP_GIVE : WEIR_OP_TAKE;
        q.counter.hits = below(a, 4);
        snprintf(q.name, sizeof(q.name), "rate:%u", i % 2);
        q.counter.key = weir_str_of(q.name);
        ask_table(a, &q, rig_key(5, i % 2));
        do {
            struct weir_redis_call call = {
                .counters = &q.counter, .count = 1, .is_timed = true, .now_ns = q.now_ns};
            weir_redis_put_call(&rig.out, rig.how, &call);
            redis_rig_send(&rig);
            stale += q.counter.is_stale;
        } while (is_asked_again(&q));
        judge(a, &q);
    }
    assert_true(stale > 10);
    weir_table_close(a->table);
    free(a);
}

/* Hits that were admitted while Redis was away, added to the window that they are of: this one, the
 * one before, or one that counts no more.  The clock goes on: what is added changes no other. */
static void additions_agree(void **state)
{
    (void)state;
    const struct weir_table_geometry geometry = {.file_bytes = UINT64_C(64) << 20};
    const struct weir_limit_spec spec = {
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .requests_per_unit = 20, .window_s = 10};
    static struct agreement a;
    uint32_t added[3] = {0};
    a = (struct agreement){.random = rig_seed(), .table = rig_open(NULL, &geometry)};
    weir_table_trust_callers(a.table);
    struct subject *s = &a.subjects[0];
    s->limit = rig_limit(a.table, spec, 3000);
    s->now_ns = RIG_START_NS;
    for (uint32_t i = 0; i < rig_scaled(5000, 500); i++) {
        uint64_t age = below(&a, 3);
        struct asked q = {.name = "added", .counter = {.limit = &s->limit, .ends = true}};
        q.now_ns = s->now_ns += below(&a, below(&a, 20) == 0 ? 30000000000 : 3000000000);
        q.counter.op = below(&a, 3) == 0 ? WEIR_OP_ADD : WEIR_OP_TAKE;
        q.counter.hits = 1 + below(&a, 9);
        q.counter.key = weir_str_of(q.name);
        q.counter.mark = q.now_ns / s->limit.window_ns - age;
        ask_table(&a, &q, rig_key(6, 1));
        struct weir_redis_call call = {
            .counters = &q.counter, .count = 1, .is_timed = true, .now_ns = q.now_ns};
        weir_redis_put_call(&rig.out, rig.how, &call);
        redis_rig_send(&rig);
        assert_false(is_asked_again(&q));
        if (q.counter.op == WEIR_OP_TAKE) {
            judge(&a, &q);
            continue;
        }
        assert_int_equal(q.err, 0);
        assert_int_equal(q.counter.is_charged, age < 2);
        added[age]++;
    }
    assert_true(added[0] > 10 && added[1] > 10 && added[2] > 10 && a.refused > 10);
    weir_table_close(a.table);
}

/* ---- where doubles are too short ---- */

/* Puts {index, previous, 0} where the sliding counter keeps its state. */
static void put_slide(struct weir_str key, uint64_t index, uint64_t previous)
{
    uint8_t value[17] = {0};
    weir_redis_put(weir_redis_put(value, index, 5), previous, 6);
    const struct weir_str args[] = {
        WEIR_STR("SET"), key, {.ptr = (const char *)value, .len = sizeof(value)}};
    weir_redis_put_command(&rig.out, args, 3);
    redis_rig_send(&rig);
    redis_rig_next(&rig);
}

/* A window, what was counted in the one before, and how much of it is left, so that
 * previous * left / W is whole, with products of 64 bits and more. */
struct tie {
    uint64_t window_s, previous, left_ns, whole;
};

/* So many hits for each second that is left, or for each part of the window that is not whole
 * seconds long. */
static struct tie random_tie(struct agreement *a)
{
    static const uint64_t parts[] = {1000000000, 500000000, 200000000, 8000000, 1953125};
    const uint64_t count_max = (UINT64_C(1) << 40) - 1;
    uint64_t window_s = 1000000 + below(a, WEIR_WINDOW_S_MAX - 1000000);
    uint64_t part = below(a, 2) ? window_s : parts[below(a, 5)];
    uint64_t times = 1 + below(a, count_max / part);
    uint64_t left = 1 + below(a, weir_min(part - 1, UINT32_MAX / times - 1));
    return (struct tie){.window_s = window_s,
                        .previous = part * times,
                        .left_ns = (uint64_t)((weir_u128)window_s * WEIR_NS_PER_S / part * left),
                        .whole = times * left};
}

/* On the tie, or a nanosecond beside it. */
static void products_beyond_2_53_agree(void **state)
{
    (void)state;
    struct agreement *a = calloc(1, sizeof(*a));
    assert_non_null(a);
    a->random = rig_seed();
    uint64_t allowed = 0, times = rig_scaled(2000, 200);
    for (uint64_t i = 0; i < times; i++) {
        char why[64];
        struct tie tie = random_tie(a);
        struct weir_limit_spec spec = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                                       .requests_per_unit = (uint32_t)(tie.whole + below(a, 2)),
                                       .window_s = tie.window_s,
                                       .buckets = 1,
                                       .round_up = i % 2};
        struct weir_limit limit;
        assert_int_equal(weir_limit_init(&limit, &spec, why, sizeof(why)), 0);
        uint64_t index = RIG_START_NS / limit.window_ns + 1;
        struct asked q = {.now_ns = (index + 1) * limit.window_ns - tie.left_ns + below(a, 3) - 1};
        q.counter = (struct weir_redis_counter){.key = WEIR_STR("product"),
                                                .limit = &limit,
                                                .op = WEIR_OP_LOOK,
                                                .hits = below(a, 2),
                                                .ends = true};
        put_slide(q.counter.key, index, tie.previous);
        struct weir_redis_call call = {
            .counters = &q.counter, .count = 1, .is_timed = true, .now_ns = q.now_ns};
        weir_redis_put_call(&rig.out, rig.how, &call);
        redis_rig_send(&rig);
        assert_false(is_asked_again(&q));
        assert_int_equal(q.err, 0); /* script and lib/algo came to the same decision */
        allowed += q.counter.verdict.allowed;
    }
    assert_in_range(allowed, times / 10, times - times / 10);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGREE_TEST(fixed_window_agrees, .algorithm = WEIR_FIXED_WINDOW),
        AGREE_TEST(sliding_counter_agrees, .algorithm = WEIR_SLIDING_WINDOW_COUNTER),
        AGREE_TEST(sub_windows_agree, .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 2),
        AGREE_TEST(sliding_log_agrees, .algorithm = WEIR_SLIDING_WINDOW_LOG),
        AGREE_TEST(token_bucket_agrees, .algorithm = WEIR_TOKEN_BUCKET),
        AGREE_TEST(token_bucket_at_intervals_agrees, .algorithm = WEIR_TOKEN_BUCKET,
                   .refill_interval = true),
        AGREE_TEST(leaky_bucket_agrees, .algorithm = WEIR_LEAKY_BUCKET),
        AGREE_TEST(concurrency_agrees, .algorithm = WEIR_CONCURRENCY),
        cmocka_unit_test_setup_teardown(changed_rates_agree, start, stop),
        cmocka_unit_test_setup_teardown(additions_agree, start, stop),
        cmocka_unit_test_setup_teardown(products_beyond_2_53_agree, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
