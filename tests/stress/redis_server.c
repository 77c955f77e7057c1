/* redis_server.c - what only a real Redis can show: its errors, its clock, its expiry.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "redis_rig.h"

#include "algo/math.h"
#include "store/redis/script.h"

static struct redis_rig rig;
static struct weir_table *table;

static int start(void **state)
{
    (void)state;
    redis_rig_start(&rig);
    table = rig_open(NULL, &(const struct weir_table_geometry){.file_bytes = 64u << 20});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    weir_table_close(table);
    redis_rig_stop(&rig);
    return 0;
}

static struct weir_redis_counter counter_of(const struct weir_limit *limit, const char *key)
{
    return (struct weir_redis_counter){
        .key = weir_str_of(key), .limit = limit, .hits = 1, .ends = true};
}

static void call(struct weir_redis_counter *counters, uint32_t count)
{
    struct weir_redis_call what = {.counters = counters, .count = count};
    weir_redis_put_call(&rig.out, rig.how, &what);
    redis_rig_send(&rig);
    redis_rig_next(&rig);
}

/* Calls, and reads the answer; returns the time that the server told. */
static uint64_t answer(struct weir_redis_counter *counters, uint32_t count)
{
    uint64_t now_ns = 0;
    call(counters, count);
    if (rig.nodes[0].type == WEIR_REDIS_ERROR)
        fail_msg("%.*s", WEIR_STR_ARG(redis_rig_text(&rig)));
    assert_int_equal(
        weir_redis_answer_read(rig.reader, rig.nodes, rig.count, counters, count, &now_ns), 0);
    return now_ns;
}

static enum weir_redis_error error(void)
{
    assert_int_equal(rig.nodes[0].type, WEIR_REDIS_ERROR);
    return weir_redis_error_of(redis_rig_text(&rig));
}

static struct weir_limit any_limit(void)
{
    return rig_limit(table,
                     (struct weir_limit_spec){
                         .algorithm = WEIR_TOKEN_BUCKET, .requests_per_unit = 5, .window_s = 60},
                     1);
}

static void what_is_not_loaded_says_so_and_is_loaded(void **state)
{
    (void)state;
    struct weir_limit limit = any_limit();
    struct weir_redis_counter one = counter_of(&limit, "k");
    for (int how = WEIR_REDIS_FCALL; how <= WEIR_REDIS_EVALSHA; how++) {
        rig.how = (enum weir_redis_how)how;
        for (int round = 0; round < 2; round++) {
            call(&one, 1);
            assert_int_equal(error(), how == WEIR_REDIS_FCALL ? WEIR_REDIS_ERROR_NO_FUNCTION
                                                              : WEIR_REDIS_ERROR_NO_SCRIPT);
            assert_int_equal(weir_redis_cure_of(error()), WEIR_REDIS_CURE_LOAD);
            redis_rig_load(&rig);
            (void)answer(&one, 1);
            assert_true(one.verdict.allowed);
            redis_rig_ask(&rig, how == WEIR_REDIS_FCALL ? "FUNCTION FLUSH" : "SCRIPT FLUSH");
        }
    }
}

static void two_nodes_may_load_the_same_library(void **state)
{
    (void)state;
    redis_rig_load(&rig);
    weir_redis_put_load(&rig.out, WEIR_REDIS_FCALL);
    redis_rig_send(&rig);
    redis_rig_next(&rig);
    assert_int_equal(error(), WEIR_REDIS_ERROR_LIBRARY_EXISTS);
    assert_int_equal(weir_redis_cure_of(error()), WEIR_REDIS_CURE_NONE);
}

static void the_scripts_name_is_what_redis_calls_it(void **state)
{
    (void)state;
    rig.how = WEIR_REDIS_EVALSHA;
    redis_rig_load(&rig);
    assert_true(weir_str_eq(redis_rig_text(&rig), weir_str_of(weir_redis_script_sha1)));
}

/* Each as the server itself puts it. */
static void errors_are_told_apart(void **state)
{
    (void)state;
    struct weir_limit limit = any_limit();
    struct weir_redis_counter one = counter_of(&limit, "k");
    redis_rig_load(&rig);
    redis_rig_ask(&rig, "SADD k member");
    call(&one, 1);
    assert_int_equal(error(), WEIR_REDIS_ERROR_WRONG_TYPE);
    redis_rig_ask(&rig, "DEL k");
    redis_rig_ask(&rig, "CONFIG SET maxmemory 1");
    call(&one, 1);
    assert_int_equal(error(), WEIR_REDIS_ERROR_OUT_OF_MEMORY);
    redis_rig_ask(&rig, "CONFIG SET maxmemory 0");
    redis_rig_ask(&rig, "REPLICAOF 127.0.0.1 1");
    call(&one, 1);
    assert_int_equal(error(), WEIR_REDIS_ERROR_READ_ONLY);
    redis_rig_ask(&rig, "CONFIG SET replica-serve-stale-data no");
    redis_rig_ask(&rig, "GET k");
    assert_int_equal(error(), WEIR_REDIS_ERROR_MASTER_DOWN);
    redis_rig_ask(&rig, "REPLICAOF NO ONE");
    redis_rig_ask(&rig, "CONFIG SET min-replicas-to-write 1");
    call(&one, 1);
    assert_int_equal(error(), WEIR_REDIS_ERROR_NO_REPLICAS);
    redis_rig_ask(&rig, "CONFIG SET min-replicas-to-write 0");
    redis_rig_ask(&rig, "NOSUCH command");
    assert_int_equal(error(), WEIR_REDIS_ERROR_NO_COMMAND);
    redis_rig_ask(&rig, "ACL SETUSER default -fcall");
    call(&one, 1);
    assert_int_equal(error(), WEIR_REDIS_ERROR_NO_PERM);
    redis_rig_ask(&rig, "AUTH nobody wrong");
    assert_int_equal(error(), WEIR_REDIS_ERROR_WRONG_PASS);
}

static const struct weir_limit_spec kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .requests_per_unit = 10, .window_s = 60},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .requests_per_unit = 10, .window_s = 60},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
     .requests_per_unit = 10,
     .window_s = 60,
     .buckets = 6},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .requests_per_unit = 10, .window_s = 60},
    {.algorithm = WEIR_TOKEN_BUCKET, .requests_per_unit = 10, .window_s = 600},
    {.algorithm = WEIR_TOKEN_BUCKET,
     .requests_per_unit = 10,
     .window_s = 60,
     .refill_interval = true},
    {.algorithm = WEIR_LEAKY_BUCKET, .requests_per_unit = 10, .window_s = 600},
    {.algorithm = WEIR_CONCURRENCY, .requests_per_unit = 10, .window_s = 60},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* reset_after is when a counter is as if unused: then it may go, and soon after it is gone. */
static void no_counter_outlives_its_use(void **state)
{
    (void)state;
    redis_rig_load(&rig);
    for (size_t i = 0; i < KINDS; i++) {
        struct weir_limit limit = rig_limit(table, kinds[i], i + 1);
        char key[16], ask[32];
        snprintf(key, sizeof(key), "kind:%zu", i);
        struct weir_redis_counter one = counter_of(&limit, key);
        uint64_t first_ns = answer(&one, 1);
        uint64_t reset_ms = one.verdict.reset_after_ns / 1000000;
        snprintf(ask, sizeof(ask), "PTTL %s", key);
        redis_rig_ask(&rig, ask);
        uint64_t left_ms = (uint64_t)rig.nodes[0].number;
        /* However late we ask, the end is the same. */
        struct weir_redis_counter look = counter_of(&limit, key);
        look.op = WEIR_OP_LOOK;
        look.hits = 0;
        uint64_t later_ms = (answer(&look, 1) - first_ns) / 1000000 + 1;
        assert_in_range(left_ms, reset_ms > later_ms ? reset_ms - later_ms : 0, reset_ms + 3000);
    }
}

static void the_time_is_the_servers_own(void **state)
{
    (void)state;
    struct weir_limit limit = any_limit();
    struct weir_redis_counter one = counter_of(&limit, "k");
    redis_rig_load(&rig);
    uint64_t before = answer(&one, 1), after = answer(&one, 1);
    assert_true(before > RIG_START_NS && after >= before && after % 1000 == 0);
    assert_int_equal(one.verdict.before, 1);
}

/* A rule's limits and a request's rules in one call: what one refuses, none has taken. */
static void all_or_nothing(void **state)
{
    (void)state;
    redis_rig_load(&rig);
    struct weir_limit limits[KINDS];
    struct weir_redis_counter counters[KINDS + 1];
    struct weir_limit closed = rig_limit(
        table,
        (struct weir_limit_spec){
            .algorithm = WEIR_FIXED_WINDOW, .requests_per_unit = 0, .window_s = 1, .burst = 1},
        99);
    char keys[KINDS][16];
    for (size_t i = 0; i < KINDS; i++) {
        limits[i] = rig_limit(table, kinds[i], i + 1);
        snprintf(keys[i], sizeof(keys[i]), "all:%zu", i);
        counters[i] = counter_of(&limits[i], keys[i]);
        counters[i].ends = false;
    }
    counters[KINDS] = counter_of(&closed, "closed");
    (void)answer(counters, KINDS + 1);
    redis_rig_ask(&rig, "DBSIZE");
    assert_int_equal(rig.nodes[0].number, 0);
    counters[KINDS].hits = 0;
    (void)answer(counters, KINDS + 1);
    for (size_t i = 0; i < KINDS; i++)
        assert_true(counters[i].is_charged && counters[i].verdict.allowed);
    redis_rig_ask(&rig, "DBSIZE");
    assert_int_equal(rig.nodes[0].number, KINDS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_loaded_says_so_and_is_loaded),
        TEST(two_nodes_may_load_the_same_library),
        TEST(the_scripts_name_is_what_redis_calls_it),
        TEST(errors_are_told_apart),
        TEST(no_counter_outlives_its_use),
        TEST(the_time_is_the_servers_own),
        TEST(all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
