/* Memory that runs out, at every place where we ask for some: an error, nothing left behind, and
 * whatever was there before goes on.
 *
 * The program is linked so that our own calls of malloc and its kin come here first
 * (tests/meson.build); libraries of others ask as ever.  A scenario is run again and again: the
 * first time its first allocation fails, then its second, until one run meets no failure at all.
 * Under AddressSanitizer leaks of the runs before are seen, too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/publish.h"
#include "net/alarm.h"
#include "net/outlet.h"
#include "net_rig.h"
#include "rules/rules.h"
#include "serve/redis_link.h"
#include "serve/service.h"

#include <fcntl.h>
#include <stdint.h>
#include <weir/weir.h>

#define RUNS_MAX 20000
#define NEVER UINT64_MAX

static _Atomic uint64_t calls;           /* of this run, by all threads */
static _Atomic uint64_t failing = NEVER; /* which of them fails */
static bool all_after;                   /* and every one after it */

static bool fails(void)
{
    uint64_t call = atomic_fetch_add(&calls, 1);
    return all_after ? call >= failing : call == failing;
}

void *__real_malloc(size_t len);
void *__real_calloc(size_t count, size_t len);
void *__real_realloc(void *ptr, size_t len);
void *__real_aligned_alloc(size_t alignment, size_t len);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t count, size_t len);
void *__wrap_realloc(void *ptr, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t len)
{
    return fails() ? NULL : __real_malloc(len);
}

void *__wrap_calloc(size_t count, size_t len)
{
    return fails() ? NULL : __real_calloc(count, len);
}

void *__wrap_realloc(void *ptr, size_t len)
{
    return fails() ? NULL : __real_realloc(ptr, len);
}

void *__wrap_aligned_alloc(size_t alignment, size_t len)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, len);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* Runs scenario() with every allocation failing in turn. */
static void try_all(void (*scenario)(void))
{
    for (int mode = 0; mode < 2; mode++) {
        for (uint64_t run = 0;; run++) {
            assert_true(run < RUNS_MAX);
            calls = 0;
            all_after = mode == 1;
            failing = run;
            scenario();
            failing = NEVER;
            if (calls <= run) { /* it never came so far: all places have been tried */
                assert_true(run > 5);
                break;
            }
        }
    }
}

/* ---- the engine ---- */

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - key: user\n"
    "    rate_limit: {unit: year, requests_per_unit: 1000000}\n"
    "  - {key: path, value: /a/*, rate_limit: {unit: hour, requests_per_unit: 5, name: p}}\n"
    "  - key: ip\n"
    "    descriptors:\n"
    "      - {key: agent, rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: "
    "2}}\n"
    "    rate_limit: {algorithm: sliding_window_log, unit: minute, requests_per_unit: 3}\n";
static char path[] = "/tmp/weir-alloc-XXXXXX";

static int decide(struct weir_session *session, uint64_t *limit)
{
    const struct weir_entry entry = {.key = {"user", 4}, .value = {"x", 1}};
    const struct weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    const struct weir_request request = {
        .domain = {"t", 1}, .descriptors = &descriptor, .descriptor_count = 1};
    struct weir_status status;
    struct weir_decision decision = {.statuses = &status};
    uint64_t before = calls;
    int err = weir_check(session, &request, UINT64_C(1700000000000000000), &decision);
    assert_int_equal(calls, before); /* deciding asks for no memory at all */
    *limit = status.limit;
    return err;
}

static void open_and_decide(void)
{
    struct weir_options options = {.rules_path = path, .table_bytes = 1 << 20};
    struct weir *weir = NULL;
    struct weir_session *session = NULL;
    uint64_t limit = 0;
    int err = weir_open(&weir, &options);
    if (err != 0) {
        assert_int_equal(err, WEIR_ERR_NOMEM);
        return;
    }
    err = weir_session_open(&session, weir);
    assert_true(err == 0 || err == WEIR_ERR_NOMEM);
    if (err == 0) {
        assert_int_equal(decide(session, &limit), 0);
        assert_int_equal(limit, 1000000);
    }
    weir_session_close(session);
    weir_close(weir);
}

static void an_engine_opens_or_says_that_memory_is_out(void **state)
{
    (void)state;
    try_all(open_and_decide);
}

static struct weir *running;

static void reload(void)
{
    struct weir_rules_options how = {.path = path};
    struct weir_rules *rules = NULL;
    struct weir_session *session = NULL;
    uint64_t limit = 0, failed = failing;
    int err = weir_rules_load(&rules, &how);
    if (err == 0)
        err = weir_publish(running, rules);
    if (err != 0) {
        assert_int_equal(err, WEIR_ERR_NOMEM);
        weir_rules_free(rules);
    }
    failing = NEVER; /* whatever became of that: who asks now gets an answer */
    assert_int_equal(weir_session_open(&session, running), 0);
    assert_int_equal(decide(session, &limit), 0);
    assert_int_equal(limit, 1000000);
    weir_session_close(session);
    failing = failed;
}

static void rules_that_find_no_memory_leave_the_old_ones(void **state)
{
    struct weir_options options = {.rules_path = path, .table_bytes = 1 << 20};
    (void)state;
    assert_int_equal(weir_open(&running, &options), 0);
    try_all(reload);
    weir_close(running);
}

/* ---- what the service starts with ---- */

static void start_loops(void)
{
    struct weir_loop *loops[2] = {NULL, NULL};
    struct weir_listener *listener = NULL;
    struct weir_outlet *outlet = NULL;
    struct weir_listen_options options = {.address = "127.0.0.1:0", .protocol = &rig_echo_protocol};
    char why[256] = "";
    int err = weir_loop_new(&loops[0]);
    if (err == 0)
        err = weir_loop_new(&loops[1]);
    if (err == 0)
        err = weir_loop_reserve_alarms(loops[0], 100);
    if (err == 0)
        err = weir_listener_new(&listener, loops, 2, &options, why, sizeof(why));
    if (err == 0)
        err = weir_outlet_new(&outlet, "127.0.0.1:1", 4096, why, sizeof(why));
    assert_true(err == 0 || err == WEIR_ERR_NOMEM);
    weir_outlet_free(outlet);
    weir_loop_free(loops[0]);
    weir_loop_free(loops[1]);
    weir_listener_free(listener);
}

static void loops_and_listeners_start_or_say_that_memory_is_out(void **state)
{
    (void)state;
    try_all(start_loops);
}

static void start_links(void)
{
    static const char *const urls[] = {"redis://127.0.0.1:1", "redis-cluster://127.0.0.1:1,h:2",
                                       "redis-sentinel://name@h", "redis-shards://h:1,h:2,h:3"};
    struct weir_loop *loop = NULL;
    struct weir_redis_link *links[4] = {NULL};
    char why[256] = "";
    int err = weir_loop_new(&loop);
    for (int i = 0; i < 4 && err == 0; i++) {
        const struct weir_redis_link_options options = {.url = urls[i]};
        err = weir_redis_link_new(&links[i], loop, &options, why, sizeof(why));
    }
    assert_true(err == 0 || err == WEIR_ERR_NOMEM);
    for (int i = 0; i < 4; i++)
        weir_redis_link_free(links[i]);
    weir_loop_free(loop);
}

static void links_start_or_say_that_memory_is_out(void **state)
{
    (void)state;
    try_all(start_links);
}

/* ---- the service ---- */

static void say_nothing(void *ctx, enum weir_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static uint32_t served; /* how often it came as far as that */

/* Started, and told to end at once: the signal is there before it looks. */
static void serve_and_end(void)
{
    static char *no_environment[] = {NULL};
    static const char *flags[WEIR_SETTINGS_COUNT];
    struct weir_settings settings;
    flags[WEIR_SETTING_NUMBER_rules] = path;
    flags[WEIR_SETTING_NUMBER_table] = "none";
    flags[WEIR_SETTING_NUMBER_table_size] = "1m";
    flags[WEIR_SETTING_NUMBER_threads] = "2";
    flags[WEIR_SETTING_NUMBER_grpc] = flags[WEIR_SETTING_NUMBER_http] = "127.0.0.1:0";
    flags[WEIR_SETTING_NUMBER_resp] = flags[WEIR_SETTING_NUMBER_admin] = "127.0.0.1:0";
    flags[WEIR_SETTING_NUMBER_statsd] = "127.0.0.1:1";
    flags[WEIR_SETTING_NUMBER_drain_delay] = "0";
    int err = weir_settings_load(&settings, flags, no_environment, say_nothing, NULL);
    if (err == 0) {
        raise(SIGTERM);
        err = weir_service_run(&settings, flags);
        served += err == 0;
    }
    assert_true(err == 0 || err == WEIR_ERR_NOMEM);
    weir_settings_fini(&settings);
}

static void a_service_starts_or_says_that_memory_is_out(void **state)
{
    sigset_t end;
    int words = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)state;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &end, NULL), 0);
    assert_true(dup2(nowhere, STDERR_FILENO) >= 0); /* it complains, some hundred times */
    try_all(serve_and_end);
    assert_true(dup2(words, STDERR_FILENO) >= 0);
    close(words);
    close(nowhere);
    assert_true(served >= 2); /* the last of each mode */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_opens_or_says_that_memory_is_out),
        cmocka_unit_test(rules_that_find_no_memory_leave_the_old_ones),
        cmocka_unit_test(loops_and_listeners_start_or_say_that_memory_is_out),
        cmocka_unit_test(links_start_or_say_that_memory_is_out),
        cmocka_unit_test(a_service_starts_or_says_that_memory_is_out),
    };
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, RULES, sizeof(RULES) - 1) != (ssize_t)(sizeof(RULES) - 1))
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
