/* reload.c - how long decisions take while rules are loaded again and again.
 *
 *     reload RULES [RELOADS]
 *
 * One thread decides as fast as it can; another loads the rules file anew, RELOADS times (100);
 * then comes a control run of the same length without reloads.  Prints p50, p99 and p99.9 of both,
 * and how many decisions failed: none may.  RULES: domain big, key k, values v0 to v99999.
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
    uint64_t *counts = histogram, n = 0;
    struct weir_session *session;
    if (weir_session_open(&session, engine) != 0)
        exit(3);
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        char value[24];
        int len = snprintf(value, sizeof value, "v%llu", (unsigned long long)(n++ * 7919 % 100000));
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

static uint64_t percentile(const uint64_t *counts, double share)
{
    uint64_t all = 0, seen = 0, at = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        all += counts[i];
    while (at < SLOTS - 1 && (double)(seen += counts[at]) < (double)all * share)
        at++;
    return at;
}

static void show(const char *name, const uint64_t *counts)
{
    printf("%-12s p50 %6llu ns  p99 %6llu ns  p99.9 %6llu ns\n", name,
           (unsigned long long)percentile(counts, 0.5),
           (unsigned long long)percentile(counts, 0.99),
           (unsigned long long)percentile(counts, 0.999));
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
    }
    return done;
}

int main(int argc, char **argv)
{
    int times = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 100, done = 0;
    struct weir_options options = {.rules_path = argc > 1 ? argv[1] : ""};
    uint64_t *quiet = calloc(SLOTS, 8), *busy = calloc(SLOTS, 8), took_ns;
    pthread_t thread;
    if (argc < 2 || quiet == NULL || busy == NULL || weir_open(&engine, &options) != 0) {
        fprintf(stderr, "usage: reload RULES [RELOADS]\n");
        return 2;
    }
    pthread_create(&thread, NULL, decide, busy);
    took_ns = monotonic_ns();
    done = reload(argv[1], times);
    took_ns = monotonic_ns() - took_ns;
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    atomic_store(&is_over, false);
    pthread_create(&thread, NULL, decide, quiet);
    (void)nanosleep(&(struct timespec){.tv_sec = (time_t)(took_ns / 1000000000u)}, NULL);
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    show("no reloads", quiet);
    show("reloads", busy);
    printf("%d reloads in %.1f s, %llu decisions failed\n", done, (double)took_ns / 1e9,
           (unsigned long long)atomic_load(&failed));
    weir_close(engine);
    free(quiet);
    free(busy);
    return atomic_load(&failed) == 0 && done == times ? 0 : 1;
}
