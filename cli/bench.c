/* bench.c - `weir bench`: how long a decision takes, beside what the machine allows.
 *
 * The loops take turns, round after round, so that a noisy neighbour meets all of them; what is
 * told is the median of the rounds, with the least and the greatest.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include "cli.h"

#include "base/maxima.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 9

struct settings {
    const char *algorithm;
    uint64_t keys, threads, batch, rules, fixed;
    bool dependent, full, uniform, json;
    double seconds;
};

struct spread {
    double median, least, most;
};

struct result {
    struct spread ns[BENCH_LOOPS];
    struct spread per_s;    /* decisions, in all threads */
    struct spread to_floor; /* ratios, round by round */
    struct spread full_to_table;
    struct weir_table_stats stats;
};

static int by_value(const void *a, const void *b)
{
    const double *one = a, *other = b;
    return (*one > *other) - (*one < *other);
}

static struct spread spread_of(const double values[ROUNDS])
{
    double sorted[ROUNDS];
    memcpy(sorted, values, sizeof(sorted));
    qsort(sorted, ROUNDS, sizeof(sorted[0]), by_value);
    return (struct spread){
        .median = sorted[ROUNDS / 2], .least = sorted[0], .most = sorted[ROUNDS - 1]};
}

static int measure_rounds(struct bench_ground *ground, double seconds, struct result *out)
{
    enum bench_loop last = ground->plan.is_full ? BENCH_FULL : BENCH_TABLE;
    double ns[BENCH_LOOPS][ROUNDS], per_s[ROUNDS], to_floor[ROUNDS], to_table[ROUNDS];
    uint64_t duration_ns = (uint64_t)(seconds * 1e9 / ROUNDS / (last + 1));
    for (size_t round = 0; round < ROUNDS; round++) {
        for (enum bench_loop loop = BENCH_FLOOR; loop <= last; loop++) {
            struct bench_time time;
            int err = bench_measure(ground, loop, duration_ns, &time);
            if (err != 0)
                return err;
            ns[loop][round] = time.ns_per_op;
            per_s[round] = time.ops_per_s; /* the last loop's stays */
        }
        to_floor[round] = ns[last][round] / ns[BENCH_FLOOR][round];
        to_table[round] = ns[last][round] / ns[BENCH_TABLE][round];
    }
    for (enum bench_loop loop = BENCH_FLOOR; loop <= last; loop++)
        out->ns[loop] = spread_of(ns[loop]);
    out->per_s = spread_of(per_s);
    out->to_floor = spread_of(to_floor);
    out->full_to_table = spread_of(to_table);
    weir_table_stats(ground->table, ground->start_ns, &out->stats);
    return 0;
}

/* ---- telling ---- */

static void set_spread(json_t *root, const char *name, struct spread spread)
{
    char key[64];
    json_object_set_new(root, name, json_real(spread.median));
    snprintf(key, sizeof(key), "%s_min", name);
    json_object_set_new(root, key, json_real(spread.least));
    snprintf(key, sizeof(key), "%s_max", name);
    json_object_set_new(root, key, json_real(spread.most));
}

static void print_json(const struct bench_ground *g, const struct result *r)
{
    enum bench_loop last = g->plan.is_full ? BENCH_FULL : BENCH_TABLE;
    json_int_t slot_bytes = 16 * (json_int_t)g->slots;
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:b, s:b, s:I}", "algorithm",
                             weir_algorithm_name(g->plan.algorithm), "keys",
                             (json_int_t)g->plan.keys, "threads", (json_int_t)g->plan.threads,
                             "batch", (json_int_t)g->plan.batch, "dependent", g->plan.is_dependent,
                             "full", g->plan.is_full, "rounds", (json_int_t)ROUNDS);
    set_spread(root, "ns_per_decision", r->ns[last]);
    set_spread(root, "decisions_per_s", r->per_s);
    set_spread(root, "floor_ns", r->ns[BENCH_FLOOR]);
    set_spread(root, "floor_hash_ns", r->ns[BENCH_HASH]);
    set_spread(root, "ratio_to_floor", r->to_floor);
    if (g->plan.is_full) {
        json_object_set_new(root, "rules", json_integer((json_int_t)g->plan.rules));
        json_object_set_new(root, "uniform", json_boolean(g->plan.is_uniform));
        set_spread(root, "table_ns", r->ns[BENCH_TABLE]);
        set_spread(root, "ratio_to_table", r->full_to_table);
    }
    json_object_set_new(root, "table_bytes", json_integer((json_int_t)g->table_bytes));
    json_object_set_new(root, "slot_bytes", json_integer(slot_bytes));
    json_object_set_new(root, "bytes_per_key",
                        json_real((double)g->table_bytes / (double)g->plan.keys));
    json_object_set_new(root, "load", json_real((double)r->stats.slots_live / (double)g->slots));
    json_object_set_new(root, "evictions", json_integer((json_int_t)r->stats.evictions));
    json_dumpf(root, stdout, JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

static void print_line(const char *name, struct spread spread, const char *unit)
{
    printf("  %-28s %9.1f %-3s (%.1f to %.1f)\n", name, spread.median, unit, spread.least,
           spread.most);
}

static void print_text(const struct bench_ground *g, const struct result *r)
{
    struct cli_words a, b, c;
    enum bench_loop last = g->plan.is_full ? BENCH_FULL : BENCH_TABLE;
    printf("%s, %s keys, %s thread%s", weir_algorithm_name(g->plan.algorithm),
           cli_words_count(&a, g->plan.keys), cli_words_count(&b, g->plan.threads),
           g->plan.threads == 1 ? "" : "s");
    if (g->plan.batch > 1)
        printf(", batches of %s", cli_words_count(&a, g->plan.batch));
    printf("%s\n", g->plan.is_dependent ? ", each key from the last result" : "");
    printf("table of %s, %.0f%% full, %.1f bytes a key\n\n", cli_words_bytes(&c, g->table_bytes),
           100.0 * (double)r->stats.slots_live / (double)g->slots,
           (double)g->table_bytes / (double)g->plan.keys);
    print_line("read-modify-write (floor)", r->ns[BENCH_FLOOR], "ns");
    print_line("hash alone", r->ns[BENCH_HASH], "ns");
    print_line("decision on the table", r->ns[BENCH_TABLE], "ns");
    if (g->plan.is_full)
        print_line("decision through the rules", r->ns[BENCH_FULL], "ns");
    printf("\n%s decisions a second; a decision is %.2f floors (%.2f to %.2f)\n",
           cli_words_count(&a, (uint64_t)r->per_s.median), r->to_floor.median, r->to_floor.least,
           r->to_floor.most);
    if (last == BENCH_FULL)
        printf("with %s rules it is %.2f decisions on the table (%.2f to %.2f)\n",
               cli_words_count(&a, g->plan.rules), r->full_to_table.median, r->full_to_table.least,
               r->full_to_table.most);
}

/* ---- the command ---- */

static enum cli_exit plan_of(const struct settings *set, struct bench_plan *out)
{
    const char *names[WEIR_CONCURRENCY + 2] = {NULL};
    for (int i = 0; i <= WEIR_CONCURRENCY; i++) {
        names[i] = weir_algorithm_name((enum weir_algorithm)i);
        if (strcmp(set->algorithm, names[i]) != 0)
            continue;
        *out = (struct bench_plan){
            .algorithm = (enum weir_algorithm)i,
            .keys = set->keys,
            .threads = set->threads,
            .batch = set->batch,
            .rules = set->rules,
            .fixed = set->fixed,
            .is_dependent = set->dependent,
            .is_full = set->full,
            .is_uniform = set->uniform,
        };
        return CLI_DONE;
    }
    const char *nearest = cli_nearest(set->algorithm, names);
    cli_complain("bench: '%s' is not an algorithm; did you mean %s?", set->algorithm,
                 nearest != NULL ? nearest : "token_bucket");
    return CLI_USAGE;
}

static void print_fixed(const struct bench_plan *plan, bool is_json)
{
    struct cli_words words;
    if (is_json)
        printf("{\"decisions\": %llu}\n", (unsigned long long)plan->fixed);
    else
        printf("%s decisions, not timed\n", cli_words_count(&words, plan->fixed));
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    const struct settings *set = settings;
    struct bench_ground ground;
    struct bench_plan plan;
    struct result result;
    char why[256] = "";
    (void)operands;
    enum cli_exit status = plan_of(set, &plan);
    if (status != CLI_DONE)
        return status;
    bool shows_progress = isatty(STDERR_FILENO) == 1;
    if (shows_progress && set->fixed == 0)
        fprintf(stderr, "filling the table, then measuring for %.3g s ...\r", set->seconds);
    int err = bench_ground_init(&ground, &plan, why, sizeof(why));
    if (err == 0)
        err = bench_fill(&ground);
    if (err == 0)
        err = set->fixed ? bench_fixed(&ground) : measure_rounds(&ground, set->seconds, &result);
    if (shows_progress)
        fprintf(stderr, "%*s\r", 60, "");
    if (err != 0)
        cli_complain("bench: %s", why[0] != '\0' ? why : weir_strerror(err));
    else if (set->fixed)
        print_fixed(&plan, set->json);
    else if (set->json)
        print_json(&ground, &result);
    else
        print_text(&ground, &result);
    bench_ground_fini(&ground);
    return err == 0 ? CLI_DONE : CLI_WORLD;
}

static const struct cli_option options[] = {
    CLI_OPTION(CLI_TEXT, algorithm, "NAME",
               "token_bucket if not given; leaky_bucket, fixed_window, sliding_window_counter, "
               "sliding_window_log, concurrency"),
    CLI_OPTION(CLI_COUNT, keys, "N", "distinct keys: 1000000 if not given", .least = 1,
               .most = UINT64_C(1) << 32),
    CLI_OPTION(CLI_COUNT, threads, "N", "each on a processor of its own: 1 if not given",
               .least = 1, .most = BENCH_THREADS_MAX),
    CLI_OPTION(CLI_COUNT, batch, "N", "decide so many at once, their memory fetched ahead",
               .least = 1, .most = BENCH_BATCH_MAX),
    CLI_OPTION(CLI_FLAG, dependent, NULL, "each key follows from the last result: latency"),
    CLI_OPTION(CLI_FLAG, full, NULL, "from descriptors through rules, not the table alone"),
    CLI_OPTION(CLI_COUNT, rules, "N", "full: so many rules, of which one is hot: 10 if not given",
               .least = 1, .most = WEIR_RULES_MAX),
    CLI_OPTION(CLI_FLAG, uniform, NULL, "full: all rules are equally hot"),
    CLI_OPTION(CLI_SECONDS, seconds, "S", "how long to measure, all together: 4 if not given"),
    CLI_OPTION(CLI_COUNT, fixed, "N",
               "time nothing: N decisions, always the same, for tools that count instructions",
               .least = 1, .most = UINT64_C(1) << 40),
    CLI_OPTION(CLI_FLAG, json, NULL, "one object instead of text"),
};

const struct cli_command cli_command_bench = {
    .name = "bench",
    .operands = "",
    .summary = "how long a decision takes, beside what the machine allows",
    .about = "Fills a table to 80%, then times decisions on random keys; hashing the key's\n"
             "24 bytes is part of each.  Beside it: the floor, a bare read-modify-write of a\n"
             "random word in as much memory.  Medians of 9 interleaved rounds, with the least\n"
             "and the greatest.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .defaults = &(const struct settings){.algorithm = "token_bucket",
                                         .keys = 1000000,
                                         .threads = 1,
                                         .batch = 1,
                                         .rules = 10,
                                         .seconds = 4},
    .settings_len = sizeof(struct settings),
    .run = run,
};
