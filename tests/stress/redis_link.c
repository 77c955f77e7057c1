/* redis_link.c - a link to one real Redis, to which all that can happen to a server happens.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "link_rig.h"

#include "../unit/count_allocations.h"

#include <sys/stat.h>

static struct redis_rig redis;
static struct link_rig rig;
static char url[128];

static int start_with(uint32_t deadline_ms)
{
    const struct weir_redis_link_options options = {.url = url, .deadline_ms = deadline_ms};
    redis_rig_start(&redis);
    snprintf(url, sizeof(url), "unix:%s/socket", redis.folder);
    link_rig_start(&rig, &options);
    return 0;
}

static int start(void **state)
{
    (void)state;
    return start_with(LINK_RIG_DEADLINE_MS);
}

static int start_patient(void **state)
{
    (void)state;
    return start_with(LINK_RIG_PATIENT_MS);
}

static int stop(void **state)
{
    (void)state;
    link_rig_stop(&rig);
    redis_rig_stop(&redis);
    return 0;
}

static void ask(const char *words)
{
    redis_rig_do(&redis, words);
}

static uint64_t count(enum weir_redis_count which)
{
    return weir_redis_link_count(rig.link, which);
}

/* What all keys of put_count() say. */
static uint64_t counted(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++) {
        char words[32];
        snprintf(words, sizeof(words), "INCRBY key:%d 0", i);
        ask(words);
        sum += (uint64_t)redis.nodes[0].number;
    }
    return sum;
}

static void every_call_gets_its_own_reply(void **state)
{
    (void)state;
    for (uint32_t round = 1; round <= 6; round++) {
        uint32_t calls = round < 6 ? round * round : 5000;
        assert_int_equal(link_rig_call(&rig, put_echo, calls).good, calls);
        for (uint32_t i = 0; i < calls; i++)
            assert_int_equal(rig.calls[i].value, i);
    }
    assert_int_equal(count(WEIR_REDIS_COUNT_CONNECTS), 1);
    assert_int_equal(count(WEIR_REDIS_COUNT_IN_FLIGHT), 0);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
}

static void more_than_the_queue_holds_are_refused_at_once(void **state)
{
    (void)state;
    link_rig_stop(&rig);
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url, .queue_max = 100});
    (void)link_rig_recover(&rig, put_echo);
    struct link_tally got = link_rig_call(&rig, put_echo, 101);
    assert_int_equal(got.good, 100);
    assert_int_equal(got.away, 1);
    assert_int_equal(rig.calls[100].err, WEIR_ERR_STORE_AWAY);
    assert_int_equal(link_rig_call(&rig, put_echo, 100).good, 100);
}

/* Half before they are sent, or after. */
static void nobody_hears_of_what_was_cancelled(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_echo);
    rig.cancel_every = 3;
    for (int i = 0; i < 50; i++) {
        struct link_tally got = link_rig_call(&rig, put_echo, 300);
        assert_int_equal(got.good, 200);
        for (uint32_t k = 0; k < 300; k++)
            assert_true(rig.calls[k].err == (k % 3 == 0 ? 1 : 0));
    }
    rig.cancel_every = 0;
    assert_int_equal(count(WEIR_REDIS_COUNT_IN_FLIGHT), 0);
}

static void the_script_is_loaded_again_when_it_is_gone(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(link_rig_call(&rig, put_hit, 200).good, 200);
        ask("FUNCTION FLUSH");
    }
    ask("FUNCTION LIST");
    assert_int_equal(redis.nodes[0].number, 0);
    assert_int_equal(link_rig_call(&rig, put_hit, 200).good, 200);
    /* Once at first, and once for each time: not for each call. */
    assert_int_equal(count(WEIR_REDIS_COUNT_LOADS), 6);
    assert_int_equal(rig.all.away + rig.all.late + rig.all.failed, 0);
}

static void scripts_are_the_way_where_functions_are_not_to_be_had(void **state)
{
    (void)state;
    link_rig_stop(&rig);
    ask("FUNCTION FLUSH"); /* the link may have loaded its own before it was stopped */
    ask("ACL SETUSER default -function");
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url});
    assert_int_equal(link_rig_call(&rig, put_hit, 100).good, 100);
    ask("SCRIPT FLUSH");
    assert_int_equal(link_rig_call(&rig, put_hit, 100).good, 100);
    /* Nor these: what is there must do. */
    ask("ACL SETUSER default -script");
    link_rig_stop(&rig);
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url});
    link_rig_lose(&rig, put_hit);
    ask("ACL SETUSER default +function");
    redis_rig_load(&redis);
    (void)link_rig_recover(&rig, put_hit);
}

static void what_redis_says_of_the_command_itself_is_told(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_echo);
    ask("SADD key:3 member");
    struct link_tally got = link_rig_call(&rig, put_count, 16);
    assert_int_equal(got.good, 15);
    assert_int_equal(got.failed, 1);
    assert_int_equal(rig.calls[3].err, WEIR_ERR_STORE);
}

/* Asks while the server refuses, then while it does not; nothing of the first was done. */
static void refuse_and_recover(const char *refuse, const char *accept)
{
    (void)link_rig_recover(&rig, put_hit);
    ask(refuse);
    link_rig_lose(&rig, put_hit);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_AWAY);
    assert_true(count(WEIR_REDIS_COUNT_OPENINGS) > 0);
    /* Left alone: hardly any of these was sent. */
    uint64_t before = count(WEIR_REDIS_COUNT_AWAY);
    for (int i = 0; i < 50; i++)
        (void)link_rig_call(&rig, put_hit, 10);
    assert_int_equal(count(WEIR_REDIS_COUNT_AWAY), before + 500);
    ask(accept);
    printf("# %s: back after %llu ms\n", refuse,
           (unsigned long long)link_rig_recover(&rig, put_hit));
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
    assert_int_equal(rig.all.failed + rig.all.late, 0);
}

static void without_memory_it_is_away_until_there_is_some(void **state)
{
    (void)state;
    refuse_and_recover("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0");
}

static void a_replica_is_away_until_it_is_a_master(void **state)
{
    (void)state;
    refuse_and_recover("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE");
}

static void without_its_replicas_it_is_away(void **state)
{
    (void)state;
    refuse_and_recover("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0");
}

/* It saves into a folder that is gone, fails, and takes no more until it has saved. */
static void with_a_full_disk_it_is_away(void **state)
{
    char folder[96];
    (void)state;
    (void)link_rig_recover(&rig, put_hit);
    snprintf(folder, sizeof(folder), "%s/data", redis.folder);
    link_rig_stop(&rig);
    redis_rig_kill(&redis);
    assert_int_equal(mkdir(folder, 0700), 0);
    redis.args[0] = "--dir";
    redis.args[1] = folder;
    redis.args[2] = "--save";
    redis.args[3] = "3600 1000000";
    redis_rig_launch(&redis);
    assert_int_equal(rmdir(folder), 0);
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url});
    (void)link_rig_recover(&rig, put_hit);
    ask("BGSAVE");
    link_rig_lose(&rig, put_hit);
    ask("CONFIG SET stop-writes-on-bgsave-error no");
    (void)link_rig_recover(&rig, put_hit);
    assert_int_equal(rig.all.failed + rig.all.late, 0);
}

static void while_it_loads_it_is_away(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_hit);
    ask("DEBUG POPULATE 2000 filler 100");
    ask("CONFIG SET loading-process-events-interval-bytes 1024");
    ask("CONFIG SET key-load-delay 1000"); /* microseconds */
    weir_redis_put_command(&redis.out,
                           (const struct weir_str[]){WEIR_STR("DEBUG"), WEIR_STR("RELOAD")}, 2);
    redis_rig_send(&redis);
    link_rig_lose(&rig, put_hit);
    redis_rig_next(&redis);
    (void)link_rig_recover(&rig, put_hit);
}

/* What it was asked for while it was stopped it does when it goes on: all of that becomes known. */
static void stopped_it_is_late_and_what_it_does_later_is_told(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_count);
    kill(redis.server, SIGSTOP);
    uint64_t begun_ns = link_rig_now();
    link_rig_lose(&rig, put_count);
    while (link_rig_now() - begun_ns < UINT64_C(3000000000))
        (void)link_rig_call(&rig, put_count, 100);
    kill(redis.server, SIGCONT);
    printf("# stopped: back after %llu ms, slowest call %llu ms of %d\n",
           (unsigned long long)link_rig_recover(&rig, put_count),
           (unsigned long long)rig.slowest_ns / 1000000, LINK_RIG_DEADLINE_MS);
    assert_true(rig.all.late > 0 && rig.all.away > 0);
    link_rig_await(&rig.late_good, rig.all.late);
    assert_int_equal(rig.late_good, rig.all.late);
    assert_int_equal(count(WEIR_REDIS_COUNT_LATE_REPLIES), rig.all.late);
    assert_int_equal(counted(), rig.all.good + rig.all.late);
}

/* The last come first, though an alarm was set for the others. */
static void who_has_waited_elsewhere_waits_the_less(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_echo);
    kill(redis.server, SIGSTOP);
    rig.waited_ns = LINK_RIG_DEADLINE_MS * UINT64_C(800000);
    struct link_tally got = link_rig_call(&rig, put_echo, 100);
    kill(redis.server, SIGCONT);
    assert_int_equal(got.late, 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_true((rig.calls[i].order < 50) == (i % 2 == 1));
}

/* Answers come, but too late. */
static void slow_it_is_late_and_what_it_did_is_told(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_count);
    weir_redis_put_command(
        &redis.out,
        (const struct weir_str[]){WEIR_STR("DEBUG"), WEIR_STR("SLEEP"), WEIR_STR("0.7")}, 3);
    redis_rig_send(&redis);
    while (rig.all.late == 0)
        (void)link_rig_call(&rig, put_count, 100);
    redis_rig_next(&redis);
    (void)link_rig_recover(&rig, put_count);
    link_rig_await(&rig.late_good, rig.all.late);
    assert_int_equal(counted(), rig.all.good + rig.all.late);
}

static void killed_it_is_away_and_restarted_empty_it_is_back(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_true(link_rig_call(&rig, put_hit, 100).good == 100 ||
                    link_rig_recover(&rig, put_hit) > 0);
        link_rig_begin(&rig, put_hit, 1000);
        redis_rig_kill(&redis);
        (void)link_rig_end(&rig);
        link_rig_lose(&rig, put_hit);
        assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_AWAY);
        redis_rig_launch(&redis);
        printf("# killed: back after %llu ms\n",
               (unsigned long long)link_rig_recover(&rig, put_hit));
    }
    assert_int_equal(rig.all.failed, 0);
}

/* Connections cut under load: what was answered was done, what is away was not, and what is late
 * may have been. */
static void away_and_late_mean_what_they_say(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_count);
    for (uint64_t round = 0; round < 40; round++) {
        (void)link_rig_recover(&rig, put_count);
        link_rig_begin(&rig, put_count, LINK_RIG_CALLS_MAX);
        link_rig_await(&rig.over, 25 * round);
        ask("CLIENT KILL TYPE normal SKIPME yes");
        (void)link_rig_end(&rig);
    }
    (void)link_rig_recover(&rig, put_count);
    uint64_t done = counted();
    printf("# %llu answered, %llu late, %llu away; %llu done\n", (unsigned long long)rig.all.good,
           (unsigned long long)rig.all.late, (unsigned long long)rig.all.away,
           (unsigned long long)done);
    assert_in_range(done, rig.all.good, rig.all.good + rig.all.late - rig.late_away);
    assert_int_equal(rig.late_good + rig.late_away + rig.late_unknown, rig.all.late);
    assert_true(count(WEIR_REDIS_COUNT_CONNECTS) > 1);
}

static void a_worker_may_leave_with_calls_under_way(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_echo);
    kill(redis.server, SIGSTOP);
    link_rig_begin(&rig, put_echo, 1000);
    kill(redis.server, SIGCONT);
}

static void a_link_may_leave_before_its_loop(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_echo);
    kill(redis.server, SIGSTOP);
    link_rig_begin(&rig, put_echo, 1000);
    weir_loop_post(rig.loop, &rig.free_post);
    link_rig_await(&rig.is_freed, 1);
    kill(redis.server, SIGCONT);
}

static void calls_ask_for_no_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(link_rig_call(&rig, put_hit, 2000).good, 2000);
    unsigned long before = allocations;
    for (int i = 0; i < 20; i++)
        assert_int_equal(link_rig_call(&rig, put_hit, 2000).good, 2000);
    if (IS_COUNTED)
        assert_int_equal(allocations - before, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
#define TEST_PATIENTLY(name) cmocka_unit_test_setup_teardown(name, start_patient, stop)
    const struct CMUnitTest tests[] = {
        TEST_PATIENTLY(every_call_gets_its_own_reply),
        TEST(more_than_the_queue_holds_are_refused_at_once),
        TEST_PATIENTLY(nobody_hears_of_what_was_cancelled),
        TEST_PATIENTLY(the_script_is_loaded_again_when_it_is_gone),
        TEST_PATIENTLY(scripts_are_the_way_where_functions_are_not_to_be_had),
        TEST_PATIENTLY(what_redis_says_of_the_command_itself_is_told),
        TEST(without_memory_it_is_away_until_there_is_some),
        TEST(a_replica_is_away_until_it_is_a_master),
        TEST(without_its_replicas_it_is_away),
        TEST(with_a_full_disk_it_is_away),
        TEST(while_it_loads_it_is_away),
        TEST(stopped_it_is_late_and_what_it_does_later_is_told),
        TEST(who_has_waited_elsewhere_waits_the_less),
        TEST(slow_it_is_late_and_what_it_did_is_told),
        TEST(killed_it_is_away_and_restarted_empty_it_is_back),
        TEST(away_and_late_mean_what_they_say),
        TEST(a_worker_may_leave_with_calls_under_way),
        TEST(a_link_may_leave_before_its_loop),
        TEST_PATIENTLY(calls_ask_for_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
