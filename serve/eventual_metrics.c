/* eventual_metrics.c - eventual limits on the page of metrics.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "engine/publish.h"
#include "proto/prom.h"
#include "serve/eventual.h"

#include <stdio.h>

static void put_counts(struct weir_buf *to, const struct weir_eventual *e)
{
    static const struct {
        const char *metric, *help;
    } families[WEIR_EVENTUAL_COUNTS] = {
#define X(name, metric, help) [WEIR_EVENTUAL_COUNT_##name] = {"weir_eventual_" metric, help},
#include "serve/eventual.def"
#undef X
    };
    for (enum weir_eventual_count c = 0; c < WEIR_EVENTUAL_COUNTS; c++) {
        const char *metric = families[c].metric;
        bool is_total = weir_str_ends(weir_str_of(metric), WEIR_STR("_total"));
        weir_prom_head(to, metric, is_total ? "counter" : "gauge", families[c].help);
        weir_prom_sample(to, metric, NULL, 0, weir_eventual_count(e, c));
    }
}

/* Rules that share a name share a number; those that never exceeded have no line. */
static void put_over(struct weir_buf *to, const struct weir_eventual *e,
                     const struct weir_published *rules)
{
    static const char metric[] = "weir_eventual_over_admitted_total";
    weir_prom_head(to, metric, "counter",
                   "Hits beyond the limits of a rule, over all machines, that this one heard of "
                   "first; the sum over all machines is what slipped through.");
    uint64_t other = 0;
    for (uint32_t stat = 0; stat <= WEIR_STATS_RULES_MAX; stat++) {
        uint64_t over = weir_eventual_over(e, stat);
        struct weir_str id = over > 0 ? weir_publish_rule_id(rules, stat) : WEIR_STR("");
        const struct weir_prom_label rule = {"rule", id};
        if (id.len > 0)
            weir_prom_sample(to, metric, &rule, 1, over);
        else
            other += over; /* of rules that are gone, too */
    }
    const struct weir_prom_label rule = {"rule", WEIR_STR("other")};
    if (other > 0)
        weir_prom_sample(to, metric, &rule, 1, other);
}

static void put_global(struct weir_buf *to, const struct weir_eventual *e)
{
    static const char metric[] = "weir_eventual_global_up";
    enum weir_redis_health health;
    if (!weir_eventual_global(e, &health))
        return;
    weir_prom_head(to, metric, "gauge", "1 while every server of the store of all sites answers.");
    weir_prom_sample(to, metric, NULL, 0, health == WEIR_REDIS_HEALTHY);
}

void weir_eventual_put_metrics(struct weir_buf *to, const struct weir_eventual *e,
                               const struct weir_published *rules)
{
    put_counts(to, e);
    put_over(to, e, rules);
    weir_prom_head(to, "weir_eventual_lag_seconds", "gauge",
                   "The longest that an admitted hit has waited for the store to be told.");
    weir_prom_sample_real(to, "weir_eventual_lag_seconds", (double)weir_eventual_lag_ns(e) / 1e9);
    weir_prom_head(to, "weir_eventual_round_trip_seconds", "gauge",
                   "How long the store took for its last answer.");
    weir_prom_sample_real(to, "weir_eventual_round_trip_seconds",
                          (double)weir_eventual_round_trip_ns(e) / 1e9);
    put_global(to, e);
}
