/* redis_link_cluster.c - a link to a real Cluster of three masters with a replica each, whose slots
 * move, and whose servers die, while calls run.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "link_rig.h"

#include "store/redis/key.h"
#include "store/redis/route.h"

#define MASTERS 3
#define SERVERS (2 * MASTERS)
#define KEYS 300

static struct redis_rig servers[SERVERS]; /* the replica of server i is i + MASTERS */
static struct {
    char port[8], bus[8];
} at[SERVERS];
static struct link_rig rig;
static char ids[SERVERS][48];

/* ---- the Cluster ---- */

static void ask(int server, const char *words)
{
    redis_rig_do(&servers[server], words);
}

static void launch(int i)
{
    redis_rig_start_with(&servers[i], (const char *const[]){
                                          "--port",
                                          redis_rig_port(at[i].port),
                                          "--cluster-port",
                                          redis_rig_port(at[i].bus),
                                          "--bind",
                                          "127.0.0.1",
                                          "--cluster-enabled",
                                          "yes",
                                          "--cluster-node-timeout",
                                          "1000",
                                          "--cluster-replica-validity-factor",
                                          "0",
                                          "--repl-diskless-sync-delay",
                                          "0",
                                          NULL,
                                      });
}

static void tell_id(int i)
{
    ask(i, "CLUSTER MYID");
    snprintf(ids[i], sizeof(ids[i]), "%.*s", WEIR_STR_ARG(redis_rig_text(&servers[i])));
}

/* Until it knows who is whose replica: a master votes for nobody whom it takes for a master. */
static void await_roles(int server)
{
    char words[64];
    for (int tries = 0, known = 0; known < MASTERS; tries++) {
        assert_true(tries < 6000);
        known = 0;
        for (int i = 0; i < MASTERS; i++) {
            snprintf(words, sizeof(words), "CLUSTER REPLICAS %.40s", ids[i]);
            ask(server, words);
            known += servers[server].nodes[0].number == 1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void join_all(void)
{
    char words[128];
    for (int i = 0; i < MASTERS; i++) {
        int from = i * WEIR_REDIS_SLOTS / MASTERS, to = (i + 1) * WEIR_REDIS_SLOTS / MASTERS - 1;
        snprintf(words, sizeof(words), "CLUSTER ADDSLOTSRANGE %d %d", from, to);
        ask(i, words);
        snprintf(words, sizeof(words), "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        ask(i, words);
    }
    for (int i = 1; i < SERVERS; i++) {
        snprintf(words, sizeof(words), "CLUSTER MEET 127.0.0.1 %s %s", at[i].port, at[i].bus);
        ask(0, words);
    }
    for (int i = 0; i < SERVERS; i++)
        redis_rig_await(&servers[i], "CLUSTER INFO", "cluster_known_nodes:6");
    for (int i = 0; i < MASTERS; i++) {
        snprintf(words, sizeof(words), "CLUSTER REPLICATE %.40s", ids[i]);
        ask(i + MASTERS, words);
    }
    for (int i = 0; i < SERVERS; i++)
        redis_rig_await(&servers[i], "CLUSTER INFO", "cluster_state:ok");
    for (int i = 0; i < MASTERS; i++)
        redis_rig_await(&servers[i + MASTERS], "INFO replication", "master_link_status:up");
    for (int i = 0; i < SERVERS; i++)
        await_roles(i);
}

static int start_servers(void **state)
{
    (void)state;
    for (int i = 0; i < SERVERS; i++) {
        launch(i);
        tell_id(i);
    }
    join_all();
    return 0;
}

static int start(void **state)
{
    char url[64];
    int err = start_servers(state);
    snprintf(url, sizeof(url), "redis-cluster://127.0.0.1:%s", at[1].port); /* one is enough */
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url});
    rig.keys = KEYS;
    return err;
}

static int stop(void **state)
{
    (void)state;
    link_rig_stop(&rig);
    for (int i = 0; i < SERVERS; i++)
        redis_rig_stop(&servers[i]);
    return 0;
}

static uint64_t count(enum weir_redis_count which)
{
    return weir_redis_link_count(rig.link, which);
}

static void await_count(enum weir_redis_count which, uint64_t wanted)
{
    uint64_t begun_ns = link_rig_now();
    while (count(which) < wanted) {
        assert_true(link_rig_now() - begun_ns < LINK_RIG_PATIENCE_S * UINT64_C(1000000000));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* The slot of put_count()'s n-th key, and which master has it at first. */
static int slot_of(int n)
{
    char key[32];
    snprintf(key, sizeof(key), "key:%d", n);
    return weir_redis_slot_of(weir_str_of(key));
}

static int master_of(int slot)
{
    int i = 0;
    while (slot >= (i + 1) * WEIR_REDIS_SLOTS / MASTERS)
        i++;
    return i;
}

/* A replica is in the map when it has heard of something to replicate. */
static void await_listed(int server, int replica)
{
    char words[64];
    int n = 0;
    int64_t is_listed = 0;
    while (master_of(slot_of(n)) != replica - MASTERS)
        n++;
    snprintf(words, sizeof(words), "SET key:%d 0", n);
    ask(replica - MASTERS, words);
    for (int tries = 0; is_listed == 0; tries++) {
        assert_true(tries < 6000);
        ask(server, "CLUSTER SLOTS");
        for (uint32_t i = 0; i < servers[server].count; i++)
            is_listed += servers[server].nodes[i].number == strtoll(at[replica].port, NULL, 10);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* ---- what is to be shown ---- */

static void every_key_is_found(void **state)
{
    (void)state;
    (void)link_rig_until(&rig, put_hit, KEYS, KEYS);
    for (int round = 0; round < 5; round++)
        assert_int_equal(link_rig_call(&rig, put_hit, KEYS).good, KEYS);
    assert_int_equal(count(WEIR_REDIS_COUNT_SERVERS), MASTERS);
    assert_int_equal(count(WEIR_REDIS_COUNT_SLOTS_UNSERVED), 0);
    assert_int_equal(count(WEIR_REDIS_COUNT_REDIRECTS), 0);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
}

/* A round of calls: each that is answered was done, once, and each that is away was not. */
static void count_all(uint64_t counted[static KEYS])
{
    struct link_tally got = link_rig_call(&rig, put_count, KEYS);
    assert_int_equal(got.late + got.failed, 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        if (rig.calls[i].err == 0)
            assert_int_equal(rig.calls[i].value, ++counted[i]);
    }
}

static void slots_move_while_calls_run(void **state)
{
    static uint64_t counted[KEYS];
    char words[160];
    (void)state;
    (void)link_rig_until(&rig, put_echo, KEYS, KEYS);
    /* All to one: who is given slots takes a new number of its own, without asking, and two that do
     * so at once may contradict each other for good. */
    for (int n = 0; n < 18; n++) {
        int slot = slot_of(n), from = master_of(slot), to = MASTERS - 1;
        if (from == to)
            continue;
        count_all(counted);
        snprintf(words, sizeof(words), "CLUSTER SETSLOT %d IMPORTING %.40s", slot, ids[from]);
        ask(to, words);
        snprintf(words, sizeof(words), "CLUSTER SETSLOT %d MIGRATING %.40s", slot, ids[to]);
        ask(from, words);
        count_all(counted);
        snprintf(words, sizeof(words), "MIGRATE 127.0.0.1 %s key:%d 0 10000", at[to].port, n);
        ask(from, words);
        count_all(counted); /* by ASK */
        snprintf(words, sizeof(words), "CLUSTER SETSLOT %d NODE %.40s", slot, ids[to]);
        for (int i = 0; i < MASTERS; i++)
            ask((to + i) % MASTERS, words); /* itself first */
        count_all(counted);                 /* by MOVED */
    }
    assert_true(count(WEIR_REDIS_COUNT_REDIRECTS) >= 10);
    printf("# %llu answered, %llu away while servers disagreed\n", (unsigned long long)rig.all.good,
           (unsigned long long)rig.all.away);
    assert_true(rig.all.away < KEYS);
    (void)link_rig_until(&rig, put_count, KEYS, KEYS);
}

/* Two keys of one slot, of which one has moved already: Redis says to try again. */
static void put_pair(struct weir_redis_ask *a, struct weir_buf *out, enum weir_redis_how how)
{
    (void)a;
    (void)how;
    put_words(out, (const char *const[]){"MGET", "{key:0}a", "{key:0}b"}, 3);
}

static void what_is_torn_apart_waits_until_it_is_whole(void **state)
{
    char words[160];
    int slot = slot_of(0), from = master_of(slot), to = (from + 1) % MASTERS;
    (void)state;
    (void)link_rig_until(&rig, put_count, KEYS, KEYS);
    rig.all = (struct link_tally){0}; /* who has just started may have been late */
    rig.keys = 1;
    ask(from, "MSET {key:0}a 1 {key:0}b 2");
    snprintf(words, sizeof(words), "CLUSTER SETSLOT %d IMPORTING %.40s", slot, ids[from]);
    ask(to, words);
    snprintf(words, sizeof(words), "CLUSTER SETSLOT %d MIGRATING %.40s", slot, ids[to]);
    ask(from, words);
    snprintf(words, sizeof(words), "MIGRATE 127.0.0.1 %s {key:0}a 0 10000", at[to].port);
    ask(from, words);
    /* Not whole until the deadline: it was not done, and that is known. */
    assert_int_equal(link_rig_call(&rig, put_pair, 10).away, 10);
    link_rig_begin(&rig, put_pair, 10);
    snprintf(words, sizeof(words), "MIGRATE 127.0.0.1 %s  0 10000 KEYS {key:0}b key:0",
             at[to].port);
    ask(from, words);
    (void)link_rig_end(&rig);
    (void)link_rig_recover(&rig, put_pair);
    assert_int_equal(rig.all.late, 0);
}

static void a_dead_masters_replica_takes_over(void **state)
{
    (void)state;
    (void)link_rig_until(&rig, put_hit, KEYS, KEYS);
    redis_rig_kill(&servers[0]);
    struct link_tally got;
    do { /* what the others have goes on meanwhile */
        got = link_rig_call(&rig, put_hit, KEYS);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    } while (got.away == 0);
    redis_rig_await(&servers[3], "CLUSTER INFO", "cluster_state:ok");
    redis_rig_await(&servers[3], "INFO replication", "role:master");
    printf("# the replica is master; all keys back after %llu ms\n",
           (unsigned long long)link_rig_until(&rig, put_hit, KEYS, KEYS));
    assert_int_equal(count(WEIR_REDIS_COUNT_SERVERS), MASTERS);
    assert_int_equal(count(WEIR_REDIS_COUNT_SLOTS_UNSERVED), 0);
    redis_rig_launch(&servers[0]);
}

/* A failover that an operator asks for loses no call, and none is done twice. */
static void masters_change_while_calls_run(void **state)
{
    static uint64_t counted[KEYS];
    (void)state;
    (void)link_rig_until(&rig, put_echo, KEYS, KEYS);
    ask(MASTERS + 1, "CLUSTER FAILOVER");
    for (int i = 0; i < 300; i++) {
        count_all(counted);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    redis_rig_await(&servers[MASTERS + 1], "INFO replication", "role:master");
    (void)link_rig_until(&rig, put_echo, KEYS, KEYS);
    count_all(counted);
    printf("# %llu answered, %llu away\n", (unsigned long long)rig.all.good,
           (unsigned long long)rig.all.away);
    assert_true(count(WEIR_REDIS_COUNT_REDIRECTS) > 0);
}

/* Who is tried for as long as a call may wait is tried as long the second time, whatever became of
 * the first, when nobody waited for it but who asks what lies where. */
static void a_replica_asked_in_vain_is_waited_for_when_it_leads(void **state)
{
    const int master = 0, replica = MASTERS;
    char url[64];
    (void)state;
    await_listed(1, replica);
    for (int i = 0; i < SERVERS; i++)
        ask(i, "CONFIG SET cluster-node-timeout 60000"); /* from now on nobody is missed */
    kill(servers[replica].server, SIGSTOP);
    snprintf(url, sizeof(url), "redis-cluster://127.0.0.1:%s,127.0.0.1:%s", at[replica].port,
             at[1].port);
    uint64_t begun_ns = link_rig_now();
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url, .deadline_ms = 5000});
    rig.keys = KEYS;
    await_count(WEIR_REDIS_COUNT_BREAKS, 1); /* it does not let us in */
    kill(servers[replica].server, SIGCONT);
    ask(replica, "CLUSTER FAILOVER");
    redis_rig_await(&servers[master], "INFO replication", "role:slave");
    kill(servers[replica].server, SIGSTOP);
    /* Another 2 s of connecting, and the first time would be longer ago than a call may wait. */
    while (link_rig_now() - begun_ns < UINT64_C(3500000000))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    link_rig_begin(&rig, put_count, KEYS);
    await_count(WEIR_REDIS_COUNT_BREAKS, 2);
    kill(servers[replica].server, SIGCONT);
    assert_int_equal(link_rig_end(&rig).good, KEYS);
    assert_int_equal(count(WEIR_REDIS_COUNT_OPENINGS), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(every_key_is_found),
        TEST(slots_move_while_calls_run),
        TEST(what_is_torn_apart_waits_until_it_is_whole),
        TEST(a_dead_masters_replica_takes_over),
        TEST(masters_change_while_calls_run),
        cmocka_unit_test_setup_teardown(a_replica_asked_in_vain_is_waited_for_when_it_leads,
                                        start_servers, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
