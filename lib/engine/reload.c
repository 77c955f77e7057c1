/* Watching the rules: what is new is loaded and published, what is bad is said once and left.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/process.h"
#include "engine/publish.h"
#include "rules/match_regex.h"
#include "rules/tree.h"

#include <time.h>

#define SEEN_EVERY_MS 10000 /* a process that is not seen for longer is thought to be gone */

int weir_watch_fd(struct weir *w)
{
    return w->watch ? weir_rules_watch_fd(w->watch) : -1;
}

/* The time of the machine, not of the table: how long files have been quiet is no decision. */
static uint64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int weir_watch_load(struct weir *w)
{
    struct weir_rules *rules = NULL;
    struct weir_rules_options how = {
        .path = w->options.rules_path,
        .merge_domains = w->options.merge_domains,
        .log = w->options.log,
        .log_ctx = w->options.log_ctx,
    };
    int err = weir_rules_load(&rules, &how);
    if (!err)
        err = weir_publish(w, rules);
    if (err) {
        weir_rules_free(rules);
        weir_engine_log(w, WEIR_LEVEL_ERROR, "%s: %s; the rules stay as they were",
                        w->options.rules_path, weir_strerror(err));
        w->has_bad_rules = true;
        return err;
    }
    /* Who was told that they were bad is told that they are not any more. */
    weir_engine_log(w, w->has_bad_rules ? WEIR_LEVEL_WARNING : WEIR_LEVEL_INFO,
                    "%s: new rules, generation %llu", w->options.rules_path,
                    (unsigned long long)weir_rules_generation(w));
    w->has_bad_rules = false;
    return 1;
}

/* Others that open the path now get another table: worth a line, once. */
static void notice_unlinked(struct weir *w)
{
    bool is_linked = weir_table_is_linked(w->table);
    if (!is_linked && !w->is_unlinked)
        weir_engine_log(w, WEIR_LEVEL_WARNING,
                        "the table's file was removed or replaced: this process counts on in the "
                        "old one, processes that start now do not share it; restart to rejoin");
    w->is_unlinked = !is_linked;
}

/* A value that takes a regular expression too long is taken to match; somebody should know. */
static void notice_slow_regexes(struct weir *w)
{
    struct weir_published *p = weir_publish_borrow(w);
    struct weir_regex *all = p->rules ? p->rules->regexes : NULL;
    unsigned long times;
    for (const char *pattern; (pattern = weir_regex_next_slow(all, &times));)
        weir_engine_log(w, WEIR_LEVEL_WARNING,
                        "the regular expression '%s' has given up %lu times, and that counted as a "
                        "match: values were made to be slow, or the pattern backtracks too much",
                        pattern, times);
    weir_publish_return(w, p);
}

bool weir_watch_look(struct weir *w, int *timeout_ms)
{
    notice_unlinked(w);
    notice_slow_regexes(w);
    weir_process_announce(w);
    *timeout_ms = SEEN_EVERY_MS;
    bool has_changed = w->watch && weir_rules_watch_step(w->watch, monotonic_ms(), timeout_ms);
    if (*timeout_ms > SEEN_EVERY_MS)
        *timeout_ms = SEEN_EVERY_MS;
    return has_changed;
}

int weir_watch_step(struct weir *w, int *timeout_ms)
{
    return weir_watch_look(w, timeout_ms) ? weir_watch_load(w) : 0;
}
