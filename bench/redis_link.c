/* redis_link.c - how many calls of the script a second a worker's link to Redis makes.
 *
 *     redis_link URL CALLS DEPTH
 *     redis_link library             for FUNCTION LOAD, before
 *     redis_link record              the last argument of its function, for others to call it with
 *
 * As redis-benchmark does it with one connection: DEPTH calls in one turn, and when all are
 * answered, the next.  One counter a call, strict, of a window that nothing exhausts, on one of
 * 1000 keys.  Prints calls a second, and the processor time that a call took here, in microseconds.
 *
 * redis-benchmark cannot send a zero, and our records have some.  So both call a function of the
 * same library that takes 128 for 0, and else does what weir's does.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link.h"

#include "algo/limit.h"
#include "base/str.h"
#include "store/redis/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTION "weir_bench"
#define ZERO ((char)128)
#define KEYS 1000u
#define DEPTH_MAX 4096u
#define DEADLINE_MS 10000 /* a late answer is no reason to stop measuring */

struct call {
    struct weir_redis_ask ask;
    char key[40];
};

static struct {
    struct weir_loop *loop;
    struct weir_redis_link *link;
    struct weir_limit limit;
    struct call calls[DEPTH_MAX];
    uint32_t depth, open;
    uint64_t next, wanted;
    bool is_warm; /* connected, and the script is loaded: now it counts */
    double began_s, began_cpu_s;
} run;

static double seconds(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void give_up(const char *why)
{
    fprintf(stderr, "redis_link: %s\n", why);
    exit(3);
}

/* The record of a call, without zeroes. */
static struct weir_str record_of(struct weir_str key, char out[static WEIR_REDIS_RECORD_MAX])
{
    const struct weir_redis_counter counter = {
        .key = key, .limit = &run.limit, .hits = 1, .ends = true};
    size_t len = weir_redis_record_write(&counter, (uint8_t *)out);
    for (size_t i = 0; i < len; i++)
        out[i] = out[i] == 0 ? ZERO : out[i];
    return (struct weir_str){.ptr = out, .len = len};
}

static void put(struct weir_redis_ask *ask, struct weir_buf *out, enum weir_redis_how how)
{
    char record[WEIR_REDIS_RECORD_MAX];
    const char head = ZERO; /* not atomic */
    const struct weir_str args[] = {
        WEIR_STR("FCALL"), WEIR_STR(FUNCTION),       WEIR_STR("1"),
        ask->key,          {.ptr = &head, .len = 1}, record_of(ask->key, record)};
    (void)how;
    weir_redis_put_command(out, args, sizeof(args) / sizeof(args[0]));
}

static void ask_all(void)
{
    for (uint32_t i = 0; i < run.depth; i++) {
        struct call *call = &run.calls[i];
        int len = snprintf(call->key, sizeof(call->key), "link:{key:%012u}",
                           (unsigned)(run.next++ % KEYS));
        call->ask.key = (struct weir_str){.ptr = call->key, .len = (size_t)len};
        weir_redis_link_ask(run.link, &call->ask);
    }
    run.open = run.depth;
}

static void done(struct weir_redis_ask *ask, int err, const struct weir_redis_answer *answer)
{
    struct weir_redis_counter counter = {
        .key = ask->key, .limit = &run.limit, .hits = 1, .ends = true};
    uint64_t now_ns;
    if (err == 0)
        err = weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count, &counter, 1,
                                     &now_ns);
    if (err != 0 || !counter.verdict.allowed)
        give_up(err != 0 ? weir_strerror(err) : "a call was refused");
    if (--run.open > 0)
        return;
    if (!run.is_warm) {
        run.is_warm = true;
        run.next = 0;
        run.began_s = seconds(CLOCK_MONOTONIC);
        run.began_cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID);
    }
    if (run.next < run.wanted)
        ask_all();
    else
        weir_loop_stop(run.loop, 0);
}

static uint64_t read_clock(void *ctx)
{
    (void)ctx;
    return (uint64_t)(seconds(CLOCK_MONOTONIC) * 1e9);
}

static void make_limit(void)
{
    const struct weir_limit_spec spec = {.algorithm = WEIR_FIXED_WINDOW,
                                         .requests_per_unit = 1000000000,
                                         .burst = 1000000000,
                                         .window_s = 3600,
                                         .buckets = 1};
    char why[256];
    if (weir_limit_init(&run.limit, &spec, why, sizeof(why)) != 0)
        give_up(why);
}

static void prepare(const char *url)
{
    const struct weir_redis_link_options options = {.url = url, .deadline_ms = DEADLINE_MS};
    char why[256] = "out of memory";
    if (weir_loop_new(&run.loop) != 0 ||
        weir_redis_link_new(&run.link, run.loop, &options, why, sizeof(why)) != 0)
        give_up(why);
    for (uint32_t i = 0; i < DEPTH_MAX; i++)
        run.calls[i].ask = (struct weir_redis_ask){.put = put, .done = done};
}

/* The library under another name, with another function. */
static int print_library(void)
{
    const char *body = strchr(weir_redis_library, '\n');
    const char *end = strstr(body, "redis.register_function");
    return printf("#!lua name=%s%.*s"
                  "redis.register_function('%s', function(keys, args)\n"
                  "for i = 1, #args do args[i] = string.gsub(args[i], '\\128', '\\0') end\n"
                  "return run(keys, args)\nend)\n",
                  FUNCTION, (int)(end - body), body, FUNCTION) < 0;
}

static int print_record(void)
{
    char bytes[WEIR_REDIS_RECORD_MAX];
    struct weir_str record = record_of(WEIR_STR("key"), bytes);
    return fwrite(record.ptr, 1, record.len, stdout) != record.len;
}

int main(int argc, char **argv)
{
    make_limit();
    if (argc == 2)
        return strcmp(argv[1], "library") == 0 ? print_library() : print_record();
    if (argc != 4)
        give_up("redis_link URL CALLS DEPTH");
    run.wanted = strtoull(argv[2], NULL, 10);
    run.depth = (uint32_t)strtoul(argv[3], NULL, 10);
    if (run.wanted == 0 || run.depth == 0 || run.depth > DEPTH_MAX)
        give_up("CALLS is at least 1, DEPTH 1 to 4096");
    prepare(argv[1]);
    ask_all();
    weir_loop_run(run.loop, read_clock, NULL);
    double took_s = seconds(CLOCK_MONOTONIC) - run.began_s;
    double cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - run.began_cpu_s;
    printf("%.0f %.3f\n", (double)run.next / took_s, cpu_s / (double)run.next * 1e6);
    weir_redis_link_free(run.link);
    weir_loop_free(run.loop);
    return 0;
}
