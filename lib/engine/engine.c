/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"
#include "algo/sketch.h"

#include "base/err.h"
#include "base/hot.h"
#include "engine/identity.h"
#include "engine/publish.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEAR_RATIO_DEFAULT 0.8f
#define PAGE_LEN 4096 /* of most systems: what a session reads most lies in one */

const char *weir_version(void)
{
    return WEIR_VERSION;
}

void weir_engine_log(const struct weir *w, enum weir_level level, const char *text, ...)
{
    char line[512];
    va_list args;
    if (!w->options.log)
        return;
    va_start(args, text);
    vsnprintf(line, sizeof(line), text, args);
    va_end(args);
    w->options.log(w->options.log_ctx, level, line);
}

/* What a new table should be good at: regions of the sketch for what these rules would spill (one
 * for each window length, and one for each power of 16 that a bucket's size in time reaches), and
 * room for the sketches of approximate limits.  A table has one geometry for all rules that it will
 * ever see. */
static void hint_geometry(struct weir_table_geometry *out, const struct weir_rules *rules)
{
    uint64_t windows[WEIR_WINDOWS_MAX];
    uint32_t window_count = 0, horizons = 0;
    uint32_t count = weir_rules_limit_count(rules);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_limit *l = weir_rules_limit_at(rules, i);
        bool is_bucket = l->algorithm == WEIR_TOKEN_BUCKET || l->algorithm == WEIR_LEAKY_BUCKET;
        if (l->approx) {
            uint64_t bytes = weir_approx_bytes(l, l->approx) + WEIR_TABLE_GRAIN - 1;
            out->approx_bytes += bytes / WEIR_TABLE_GRAIN * WEIR_TABLE_GRAIN;
            continue;
        }
        if (is_bucket && !l->refill_interval) {
            horizons |= 1u << ((63 - __builtin_clzll(l->cap_ns | 1)) / 4);
            continue;
        }
        uint32_t k = 0;
        while (k < window_count && windows[k] != l->window_ns)
            k++;
        if (k == window_count && k < WEIR_WINDOWS_MAX)
            windows[window_count++] = l->window_ns;
    }
    out->window_regions = window_count;
    out->bucket_regions = (uint32_t)__builtin_popcount(horizons);
}

static int open_table(struct weir *w, const struct weir_rules *rules, const char *path)
{
    struct weir_table_geometry geometry = {.file_bytes = w->options.table_bytes,
                                           .is_unshared = w->options.never_forks};
    char why[256] = "";
    if (geometry.file_bytes == 0)
        geometry.file_bytes = WEIR_TABLE_BYTES_DEFAULT;
    if (rules)
        hint_geometry(&geometry, rules);
    int err = weir_table_open(&w->table, path, &geometry, why, sizeof(why));
    if (err) {
        weir_engine_log(w, WEIR_LEVEL_ERROR, "%s", why[0] ? why : weir_strerror(err));
    } else if (w->options.virtual_time) {
        weir_table_trust_callers(w->table);
        weir_table_remember_all(w->table);
    }
    return err;
}

/* One limit for each unit, which requests that bring their own fill in with a number. */
static int prepare_overrides(struct weir *w)
{
    for (int unit = WEIR_UNIT_SECOND; unit < WEIR_UNITS; unit++) {
        char why[128] = "";
        struct weir_limit_spec spec = {
            .algorithm = WEIR_FIXED_WINDOW,
            .requests_per_unit = 1,
            .burst = 1,
            .window_s = weir_unit_seconds((enum weir_unit)unit),
            .buckets = 1,
            .count_rejected = true,
        };
        int err = weir_limit_init(&w->overrides[unit], &spec, why, sizeof(why));
        WEIR_ASSERT(err == 0);
        err = weir_local_bind(w->table, &w->overrides[unit]);
        if (err) {
            weir_engine_log(w, WEIR_LEVEL_ERROR, "the table has no room for windows of one %s: %s",
                            weir_unit_name((enum weir_unit)unit), weir_strerror(err));
            return err;
        }
    }
    return 0;
}

static int copy_options(struct weir *w, const struct weir_options *options)
{
    w->options = *options;
    w->options.table_path = NULL;
    w->is_shadow = options->shadow_mode;
    w->near_ratio = options->near_limit_ratio > 0 ? options->near_limit_ratio : NEAR_RATIO_DEFAULT;
    if (!options->rules_path)
        return 0;
    w->options.rules_path = strdup(options->rules_path);
    return w->options.rules_path ? 0 : WEIR_ERR_NOMEM;
}

/* The watch comes first: what changes while the rules are read is then seen as a change. */
static int load_rules(struct weir *w, struct weir_rules **out)
{
    if (!w->options.rules_path)
        return 0;
    struct weir_rules_options how = {
        .path = w->options.rules_path,
        .merge_domains = w->options.merge_domains,
        .log = w->options.log,
        .log_ctx = w->options.log_ctx,
    };
    int err = weir_rules_watch_new(&w->watch, w->options.rules_path);
    if (!err)
        err = weir_rules_load(out, &how);
    if (w->options.may_lack_rules && (err == WEIR_ERR_RULES || err == WEIR_ERR_IO)) {
        weir_engine_log(w, WEIR_LEVEL_WARNING, "%s: no limits until these rules are valid",
                        w->options.rules_path);
        err = 0;
    }
    return err;
}

/* alloc: an engine is opened once. */
int weir_open(struct weir **out, const struct weir_options *options)
{
    struct weir *w = weir_line_alloc(sizeof(*w));
    if (!w)
        return WEIR_ERR_NOMEM;
    pthread_mutex_init(&w->lock, NULL); /* cannot fail without attributes */
    struct weir_rules *rules = NULL;
    int err = copy_options(w, options);
    if (!err)
        err = weir_value_stats_new(&w->strangers);
    if (!err)
        err = load_rules(w, &rules);
    if (!err)
        err = open_table(w, rules, options->table_path);
    if (!err)
        err = weir_publish(w, rules);
    if (err)
        goto fail;
    rules = NULL; /* the engine's now */
    /* After the rules: the window lengths that they use come first in the table. */
    err = prepare_overrides(w);
    if (err)
        goto fail;
    *out = w;
    return 0;

fail:
    weir_rules_free(rules);
    weir_close(w);
    return err;
}

/* alloc: what weir_open() made goes. */
void weir_close(struct weir *w)
{
    if (!w)
        return;
    WEIR_ASSERT(w->sessions == NULL);
    weir_publish_fini(w);
    weir_value_stats_free(w->strangers);
    weir_value_stats_free(atomic_load_explicit(&w->values, memory_order_relaxed));
    weir_rules_watch_free(w->watch);
    if (w->table)
        weir_table_close(w->table);
    pthread_mutex_destroy(&w->lock);
    free((void *)(uintptr_t)w->options.rules_path); /* ours, though its type is the caller's */
    free(w);
}

/* alloc: all that a session will ever need, so that deciding needs nothing. */
int weir_session_open(struct weir_session **out, struct weir *w)
{
    /* calloc() and not aligned_alloc(): what is never used is never cleared, either. */
    char *block = calloc(1, PAGE_LEN + sizeof(struct weir_session) + sizeof(struct weir_http_room));
    if (!block)
        return WEIR_ERR_NOMEM;
    struct weir_session *s = (void *)(block + PAGE_LEN - (uintptr_t)block % PAGE_LEN);
    s->block = block;
    s->engine = w;
    pthread_mutex_lock(&w->lock);
    /* The process number, because an engine may be opened before a fork. */
    s->number = w->session_number++ + (uint32_t)getpid();
    s->next = w->sessions;
    w->sessions = s;
    pthread_mutex_unlock(&w->lock);
    s->top_countdown = 1;
    s->top.random = weir_table_seed(w->table) ^ weir_mix64(s->number + 1);
    weir_publish_hold_anew(s);
    *out = s;
    return 0;
}

/* alloc: what weir_session_open() made goes. */
void weir_session_close(struct weir_session *s)
{
    if (!s)
        return;
    struct weir *w = s->engine;
    pthread_mutex_lock(&w->lock);
    struct weir_session **link = &w->sessions;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    weir_publish_sweep(w);
    pthread_mutex_unlock(&w->lock);
    free(s->block);
}

WEIR_HOT uint64_t weir_now(struct weir *w)
{
    return weir_table_now(w->table);
}

WEIR_HOT uint64_t weir_rules_generation(struct weir *w)
{
    return atomic_load_explicit(&w->generation, memory_order_relaxed); /* only a number */
}
