/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/enforce.h"

#include "base/hot.h"
#include "base/str.h"
#include "engine/publish.h"
#include "table/controls.h"

#define OTHER "other" /* all who count under number 0 */

/* A number from 0 to 99 that a key has for good. */
static uint32_t lot_of(uint64_t key)
{
    return (uint32_t)((weir_mix64(~key) >> 32) * 100 >> 32);
}

bool weir_enforce_spares(const struct weir_session *s, const struct weir_item *item)
{
    uint32_t percent = weir_enforced_percent(s->engine->table, item->stat);
    return WEIR_SELDOM(percent < WEIR_ENFORCED_ALL) && lot_of(item->charges[0].key) >= percent;
}

/* The number of the next rule of this id, from rule *at on; false: there is none. */
static bool next_stat(const struct weir_published *p, struct weir_str id, uint32_t *at,
                      uint32_t *stat)
{
    uint32_t count = p->rules ? weir_rules_count(p->rules) : 0;
    while (*at < count) {
        const struct weir_rule *rule = weir_rules_at(p->rules, (*at)++);
        if (weir_str_eq(rule->info.id, id)) {
            *stat = rule->stat;
            return true;
        }
    }
    return false;
}

/* Rules of one id in several domains are one here, as in the metrics. */
static int set_all(struct weir *w, const struct weir_published *p, struct weir_str id,
                   uint32_t percent)
{
    uint32_t at = 0, stat;
    int err = WEIR_ERR_NOT_FOUND;
    while (next_stat(p, id, &at, &stat)) {
        if (stat == 0)
            return WEIR_ERR_FULL; /* not this rule's alone */
        err = weir_enforced_set(w->table, stat, percent);
        if (err)
            return err;
    }
    return err;
}

int weir_enforcement_set(struct weir *w, struct weir_str rule_id, uint32_t percent)
{
    if (percent > WEIR_ENFORCED_ALL)
        return WEIR_ERR_INVALID;
    if (weir_str_eq(rule_id, WEIR_STR(OTHER)))
        return weir_enforced_set(w->table, 0, percent);
    struct weir_published *p = weir_publish_borrow(w);
    int err = set_all(w, p, rule_id, percent);
    weir_publish_return(w, p);
    return err;
}

int weir_enforcement_get(struct weir *w, struct weir_str rule_id, uint32_t *percent)
{
    uint32_t at = 0, stat = 0;
    bool is_found = weir_str_eq(rule_id, WEIR_STR(OTHER));
    if (!is_found) {
        struct weir_published *p = weir_publish_borrow(w);
        is_found = next_stat(p, rule_id, &at, &stat);
        weir_publish_return(w, p);
    }
    if (!is_found)
        return WEIR_ERR_NOT_FOUND;
    *percent = weir_enforced_percent(w->table, stat);
    return 0;
}
