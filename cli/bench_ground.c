/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include "store/local.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DAY_NS (UINT64_C(86400) * WEIR_NS_PER_S)
#define LOG_LIMIT 16u        /* entries of each key's log */
#define LOG_EXTENT_BYTES 192 /* of such a log, with its share of what rounding wastes */

/* Limits that nobody reaches, on windows that do not end: every decision is an admission that
 * changes its slot, and every slot stays live. */
static struct weir_limit_spec spec_of(enum weir_algorithm algorithm)
{
    struct weir_limit_spec spec = {
        .algorithm = algorithm,
        .requests_per_unit = 100000,
        .burst = UINT32_MAX,
        .window_s = 86400,
        .buckets = 1,
    };
    switch (algorithm) {
    case WEIR_FIXED_WINDOW:
        spec.requests_per_unit = UINT32_MAX;
        spec.count_rejected = true;
        break;
    case WEIR_SLIDING_WINDOW_COUNTER:
        spec.requests_per_unit = WEIR_SLIDE_INLINE_MAX;
        break;
    case WEIR_SLIDING_WINDOW_LOG: /* a log must empty, or all is refused: see tick_ns */
        spec.requests_per_unit = LOG_LIMIT;
        spec.window_s = 1;
        break;
    case WEIR_CONCURRENCY:
        spec.requests_per_unit = 10000;
        break;
    case WEIR_TOKEN_BUCKET:
    case WEIR_LEAKY_BUCKET:
        break;
    }
    return spec;
}

static struct weir_table_geometry geometry_of(const struct bench_plan *plan)
{
    struct weir_table_geometry geometry = {
        .slots = plan->keys + plan->keys / 4, /* 80% load */
        .sketch_cells = 4096,                 /* the least: nothing is meant to overflow */
        .extent_bytes = 1u << 16,
        .records = 64,
    };
    if (plan->algorithm == WEIR_SLIDING_WINDOW_LOG)
        geometry.extent_bytes += plan->keys * LOG_EXTENT_BYTES;
    return geometry;
}

static int open_table(struct bench_ground *g, char *why, size_t why_len)
{
    struct weir_table_geometry geometry = geometry_of(&g->plan), layout;
    struct weir_limit_spec spec = spec_of(g->plan.algorithm);
    struct weir_table_stats stats;
    int err = weir_table_open(&g->table, NULL, &geometry, why, why_len);
    if (err == 0)
        err = weir_limit_init(&g->limit, &spec, why, why_len);
    if (err != 0)
        return err;
    g->limit.tag = 1;
    err = weir_local_bind(g->table, &g->limit);
    if (err != 0) {
        snprintf(why, why_len, "%s", weir_strerror(err));
        return err;
    }
    weir_table_layout(g->table, &layout);
    g->slots = layout.slots;
    g->hash_key = *weir_table_hash_key(g->table);
    if (g->plan.fixed)
        g->hash_key = (struct weir_hash_key){1, 2};
    g->start_ns = weir_table_now(g->table) / DAY_NS * DAY_NS + DAY_NS / 2;
    g->tick_ns = 1;
    /* A key's log is half full on average: LOG_LIMIT / 2 decisions a window and key. */
    if (g->plan.algorithm == WEIR_SLIDING_WINDOW_LOG)
        g->tick_ns = 1 + g->limit.window_ns / (g->plan.keys * LOG_LIMIT / 2);
    weir_table_stats(g->table, g->start_ns, &stats);
    g->table_bytes = stats.file_bytes;
    return 0;
}

/* The same kind of memory as the table's: shared, of ordinary pages, all there before the start. */
static int open_floor(struct bench_ground *g, char *why, size_t why_len)
{
    size_t bytes = g->slots * 16;
    void *floor =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (floor == MAP_FAILED) {
        snprintf(why, why_len, "%zu bytes for the floor: %s", bytes, strerror(errno));
        return WEIR_ERR_NOMEM;
    }
    g->floor = floor;
    g->floor_len = g->slots;
    return 0;
}

/* ---- the full path: rules and a table of its own ---- */

static void path_in(const struct bench_ground *g, const char *name, char *out, size_t out_len)
{
    snprintf(out, out_len, "%s/%s", g->folder, name);
}

static int write_rules(const struct bench_ground *g, const char *path)
{
    struct weir_limit_spec spec = spec_of(g->plan.algorithm);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return WEIR_ERR_IO;
    fputs("domain: bench\ndescriptors:\n", file);
    for (uint64_t i = 0; i < g->plan.rules; i++) {
        /* The value is the number as make_request() spells it: digits, lowest first. */
        char digits[24], value[24] = "";
        int len = snprintf(digits, sizeof(digits), "%" PRIu64, i);
        for (int at = 0; at < len; at++)
            value[at] = digits[len - 1 - at];
        fprintf(file,
                "- {key: route, value: \"%s\", descriptors: [{key: user, rate_limit: ", value);
        fprintf(file, "{algorithm: %s, unit: %s, requests_per_unit: %" PRIu32,
                weir_algorithm_name(spec.algorithm), spec.window_s == 1 ? "second" : "day",
                spec.requests_per_unit);
        if (spec.algorithm == WEIR_TOKEN_BUCKET || spec.algorithm == WEIR_LEAKY_BUCKET)
            fprintf(file, ", burst: %" PRIu32, spec.burst);
        fputs("}}]}\n", file);
    }
    return fclose(file) == 0 ? 0 : WEIR_ERR_IO;
}

/* The engine takes a size, not a geometry: so the table is made first, and the engine attaches. */
static int make_table(const struct bench_ground *g, const char *path, char *why, size_t why_len)
{
    struct weir_table_geometry geometry = geometry_of(&g->plan);
    struct weir_table *table;
    geometry.records += 2 * g->plan.rules;
    int err = weir_table_open(&table, path, &geometry, why, why_len);
    if (err == 0)
        weir_table_close(table);
    return err;
}

static int open_engine(struct bench_ground *g, char *why, size_t why_len)
{
    char rules_path[96], table_path[96];
    snprintf(g->folder, sizeof(g->folder), "%s/weir-bench-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(g->folder) == NULL) {
        snprintf(why, why_len, "%s: %s", g->folder, strerror(errno));
        g->folder[0] = '\0';
        return WEIR_ERR_IO;
    }
    path_in(g, "rules.yaml", rules_path, sizeof(rules_path));
    path_in(g, "table", table_path, sizeof(table_path));
    struct weir_options options = {.rules_path = rules_path, .table_path = table_path};
    int err = write_rules(g, rules_path);
    if (err != 0)
        snprintf(why, why_len, "%s: %s", rules_path, strerror(errno));
    if (err == 0)
        err = make_table(g, table_path, why, why_len);
    if (err != 0)
        return err;
    err = weir_open(&g->engine, &options);
    if (err != 0)
        snprintf(why, why_len, "%s", weir_strerror(err));
    return err;
}

int bench_ground_init(struct bench_ground *g, const struct bench_plan *plan, char *why,
                      size_t why_len)
{
    *g = (struct bench_ground){.plan = *plan};
    int err = open_table(g, why, why_len);
    if (err == 0)
        err = open_floor(g, why, why_len);
    if (err == 0 && plan->is_full)
        err = open_engine(g, why, why_len);
    return err;
}

void bench_ground_fini(struct bench_ground *g)
{
    static const char *const names[] = {"rules.yaml", "table"};
    weir_close(g->engine);
    for (size_t i = 0; i < 2 && g->folder[0] != '\0'; i++) {
        char path[96];
        path_in(g, names[i], path, sizeof(path));
        unlink(path);
    }
    if (g->folder[0] != '\0')
        rmdir(g->folder);
    if (g->floor != NULL)
        munmap(g->floor, g->floor_len * 16);
    weir_table_close(g->table);
}
