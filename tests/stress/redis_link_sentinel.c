/* redis_link_sentinel.c - a link to what three real Sentinels watch over: a master that dies, a
 * replica that takes over, Sentinels that stop.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "link_rig.h"

#define SENTINELS 3

static struct redis_rig servers[2];
static char ports[2][8];
static struct {
    char port[8], folder[64];
    pid_t pid;
} sentinels[SENTINELS];
static struct link_rig rig;

static void launch_sentinel(int i)
{
    char path[96];
    snprintf(sentinels[i].folder, sizeof(sentinels[i].folder), "/tmp/weir-sentinel-XXXXXX");
    assert_non_null(mkdtemp(sentinels[i].folder));
    snprintf(path, sizeof(path), "%.60s/conf", sentinels[i].folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "port %s\nbind 127.0.0.1\ndir %s\nlogfile %s/log\n"
            "sentinel monitor main 127.0.0.1 %s 2\n"
            "sentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 3000\n",
            redis_rig_port(sentinels[i].port), sentinels[i].folder, sentinels[i].folder, ports[0]);
    fclose(file);
    fflush(stdout);
    sentinels[i].pid = fork();
    assert_true(sentinels[i].pid >= 0);
    if (sentinels[i].pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("redis-server", "redis-server", path, "--sentinel", (char *)NULL);
        _exit(127);
    }
}

static void end_sentinel(int i)
{
    int status;
    kill(sentinels[i].pid, SIGKILL);
    assert_int_equal(waitpid(sentinels[i].pid, &status, 0), sentinels[i].pid);
    redis_rig_remove(sentinels[i].folder);
}

static int start(void **state)
{
    static char url[160];
    char words[64];
    (void)state;
    for (int i = 0; i < 2; i++)
        redis_rig_start_with(&servers[i],
                             (const char *const[]){"--port", redis_rig_port(ports[i]), "--bind",
                                                   "127.0.0.1", "--repl-diskless-sync-delay", "0",
                                                   NULL});
    snprintf(words, sizeof(words), "REPLICAOF 127.0.0.1 %s", ports[0]);
    redis_rig_do(&servers[1], words);
    redis_rig_await(&servers[1], "INFO replication", "master_link_status:up");
    for (int i = 0; i < SENTINELS; i++)
        launch_sentinel(i);
    snprintf(url, sizeof(url), "redis-sentinel://main@127.0.0.1:%s,127.0.0.1:%s,127.0.0.1:%s",
             sentinels[0].port, sentinels[1].port, sentinels[2].port);
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    link_rig_stop(&rig);
    for (int i = 0; i < SENTINELS; i++)
        end_sentinel(i);
    redis_rig_stop(&servers[0]);
    redis_rig_stop(&servers[1]);
    return 0;
}

static uint64_t count(enum weir_redis_count which)
{
    return weir_redis_link_count(rig.link, which);
}

/* A conversation with the first Sentinel, once it listens: the link is content with any of them. */
static void open_talk(struct redis_rig *talk)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)strtoul(sentinels[0].port, NULL, 10))};
    *talk = (struct redis_rig){.socket = socket(AF_INET, SOCK_STREAM, 0)};
    weir_buf_init(&talk->out, REDIS_RIG_OUT_MAX);
    assert_int_equal(weir_redis_reader_new(&talk->reader), 0);
    int tries = 0;
    while (connect(talk->socket, (struct sockaddr *)&to, sizeof(to)) < 0) {
        assert_true(tries++ < 3000);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void close_talk(struct redis_rig *talk)
{
    close(talk->socket);
    weir_redis_reader_free(talk->reader);
    weir_buf_fini(&talk->out);
}

/* Until it names the server with this port. */
static void await_master(struct redis_rig *talk, const char *port)
{
    for (int tries = 0; tries < 6000; tries++) {
        redis_rig_do(talk, "SENTINEL GET-MASTER-ADDR-BY-NAME main");
        struct weir_str told = weir_redis_node_str(talk->reader, &talk->nodes[2]);
        if (weir_str_eq(told, weir_str_of(port)))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    fail_msg("no Sentinel ever names the new master");
}

static void the_master_is_found_and_followed(void **state)
{
    struct redis_rig talk;
    (void)state;
    (void)link_rig_recover(&rig, put_hit);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
    assert_int_equal(count(WEIR_REDIS_COUNT_SERVERS), 1);
    assert_int_equal(count(WEIR_REDIS_COUNT_FAILOVERS), 0);
    open_talk(&talk);
    /* Only those that know of each other and of the replica can agree on anything. */
    redis_rig_await(&talk, "INFO sentinel", "slaves=1,sentinels=3");
    redis_rig_kill(&servers[0]);
    link_rig_lose(&rig, put_hit);
    await_master(&talk, ports[1]);
    close_talk(&talk);
    printf("# another is master; back after %llu ms\n",
           (unsigned long long)link_rig_recover(&rig, put_hit));
    assert_int_equal(count(WEIR_REDIS_COUNT_FAILOVERS), 1);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
    redis_rig_launch(&servers[0]);
}

/* They are asked for the master, not for its keys. */
static void without_sentinels_the_master_goes_on(void **state)
{
    (void)state;
    (void)link_rig_recover(&rig, put_hit);
    for (int i = 0; i < SENTINELS; i++)
        kill(sentinels[i].pid, SIGSTOP);
    uint64_t begun_ns = link_rig_now();
    while (link_rig_now() - begun_ns < UINT64_C(3000000000))
        assert_int_equal(link_rig_call(&rig, put_hit, 100).good, 100);
    for (int i = 0; i < SENTINELS; i++)
        kill(sentinels[i].pid, SIGCONT);
}

static void any_one_of_the_sentinels_is_enough(void **state)
{
    (void)state;
    kill(sentinels[0].pid, SIGSTOP);
    kill(sentinels[1].pid, SIGSTOP);
    (void)link_rig_recover(&rig, put_hit);
    kill(sentinels[0].pid, SIGCONT);
    kill(sentinels[1].pid, SIGCONT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(the_master_is_found_and_followed),
        TEST(without_sentinels_the_master_goes_on),
        TEST(any_one_of_the_sentinels_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
