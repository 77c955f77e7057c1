/* reload.c - how long decisions take while rules are loaded again and again.
 *
 *     reload RULES COUNT RELOADS
 *
 * One thread decides as fast as it can; another loads the rules file anew, RELOADS times; then
 * comes a control run of the same length without reloads.  Prints an object: p50, p99 and p99.9 of
 * both, and how many decisions failed: none may.  RULES: domain big, key k, COUNT values v0, v1 and
 * so on.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <weir/weir.h>

#define SLOTS 4000000u /* of the histogram, a nanosecond each; the last: longer */

static struct weir *engine;
static unsigned long long rules;
static atomic_bool is_over;
static atomic_ullong failed;

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *decide(void *histogram)
{
    uint64_t *counts = histogram;
    unsigned long long n = 0;
    struct weir_session *session;
    if (weir_session_open(&session, engine) != 0)
        exit(3);
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        char value[24];
        int len = snprintf(value, sizeof value, "v%llu", n++ * 7919 % rules);
        struct weir_entry entry = {{"k", 1}, {value, (size_t)len}};
        struct weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
        struct weir_request request = {{"big", 3}, &descriptor, 1, 1};
        struct weir_status status;
        struct weir_decision decision = {.statuses = &status};
        uint64_t now_ns = weir_now(engine), began_ns = monotonic_ns();
        int err = weir_check(session, &request, now_ns, &decision);
        uint64_t took_ns = monotonic_ns() - began_ns;
        counts[took_ns < SLOTS ? took_ns : SLOTS - 1]++;
        if (err != 0 || !status.is_limited)
            atomic_fetch_add(&failed, 1);
    }
    weir_session_close(session);
    return NULL;
}

static unsigned long long total(const uint64_t *counts)
{
    unsigned long long all = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        all += counts[i];
    return all;
}

static unsigned percentile(const uint64_t *counts, double share)
{
    uint64_t seen = 0;
    unsigned at = 0;
    double wanted = (double)total(counts) * share;
    while (at < SLOTS - 1 && (double)(seen += counts[at]) < wanted)
        at++;
    return at;
}

static void print_shares(const char *name, const uint64_t *counts)
{
    printf(", \"%s\": {\"p50\": %u, \"p99\": %u, \"p99.9\": %u}", name, percentile(counts, 0.5),
           percentile(counts, 0.99), percentile(counts, 0.999));
}

/* Touches the file and steps the watch until new rules are out.  Returns how often. */
static int reload(const char *path, int times)
{
    int done = 0, timeout_ms;
    for (int i = 0; i < times; i++) {
        struct timespec stamp[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000 + i}};
        if (utimensat(AT_FDCWD, path, stamp, 0) != 0)
            return done;
        for (int k = 0; k < 5000; k++) {
            int step = weir_watch_step(engine, &timeout_ms);
            if (step == 1 && ++done)
                break;
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        if ((i + 1) % 10 == 0)
            fprintf(stderr, "%d of %d reloads\n", i + 1, times);
    }
    return done;
}

/* Decides in another thread while `meanwhile` runs, which takes a path and a number. */
static int decide_while(uint64_t *counts, int (*meanwhile)(const char *, int), const char *path,
                        int number)
{
    pthread_t thread;
    atomic_store(&is_over, false);
    if (pthread_create(&thread, NULL, decide, counts) != 0)
        exit(3);
    int result = meanwhile(path, number);
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    return result;
}

static int rest(const char *path, int ms)
{
    (void)path;
    return nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

int main(int argc, char **argv)
{
    int times = argc == 4 ? (int)strtol(argv[3], NULL, 10) : 0;
    struct weir_options options = {.rules_path = argc == 4 ? argv[1] : ""};
    uint64_t *quiet = calloc(SLOTS, 8), *busy = calloc(SLOTS, 8);
    rules = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    if (times <= 0 || rules == 0 || quiet == NULL || busy == NULL) {
        fprintf(stderr, "usage: reload RULES COUNT RELOADS\n");
        return 2;
    }
    uint64_t began_ns = monotonic_ns();
    if (weir_open(&engine, &options) != 0) {
        fprintf(stderr, "reload: %s does not open\n", argv[1]);
        return 3;
    }
    uint64_t open_ns = monotonic_ns() - began_ns;
    began_ns = monotonic_ns();
    int done = decide_while(busy, reload, argv[1], times);
    uint64_t took_ns = monotonic_ns() - began_ns;
    fprintf(stderr, "and as long without\n");
    (void)decide_while(quiet, rest, "", (int)(took_ns / 1000000));
    printf("{\"open_s\": %.3f, \"reloads\": %d, \"seconds\": %.1f, \"decisions\": %llu, "
           "\"failed\": %llu",
           (double)open_ns / 1e9, done, (double)took_ns / 1e9, total(busy) + total(quiet),
           (unsigned long long)atomic_load(&failed));
    print_shares("busy_ns", busy);
    print_shares("quiet_ns", quiet);
    printf("}\n");
    weir_close(engine);
    free(quiet);
    free(busy);
    return atomic_load(&failed) == 0 && done == times ? 0 : 1;
}
