/* terms.c - what rules share, so that a decision need not go and see the rule (struct weir_terms).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules/tree.h"

#include <string.h>

#define LOOKUP_SIZE (2 * (WEIR_TERMS_MAX + 1)) /* a power of two, at most half full */

/* Terms found so far, by their bytes: linear probing. */
struct sharing {
    struct weir_rules *rules;
    uint32_t count;
    uint16_t lookup[LOOKUP_SIZE]; /* 0: free */
};

/* False where a decision must see the rule itself. */
static bool terms_of(const struct weir_rule *rule, struct weir_terms *out)
{
    const struct weir_limit *limit = &rule->only.limit;
    if (rule->limit_count != 1 || limit->approx != NULL || rule->stat > WEIR_DICT_STAT_MAX)
        return false;
    memset(out, 0, sizeof(*out)); /* they are compared as bytes */
    memcpy(&out->limit, limit, sizeof(*limit));
    out->limit.variant = 0;
    if (limit->record != WEIR_NO_RECORD)
        out->limit.record = 0;
    out->unit = rule->unit;
    out->is_shadow = rule->is_shadow;
    out->is_quota = rule->is_quota;
    out->has_value_stats = rule->has_value_stats;
    out->has_replaces = rule->replaces_count > 0;
    return true;
}

/* Padding was zeroed with the rest; bytes that differed there would only be shared by fewer. */
static bool is_same(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct weir_terms)) == 0;
}

/* The number of these terms; 0: there are too many already. */
static uint32_t number_of(struct sharing *sharing, const struct weir_terms *terms)
{
    struct weir_terms *all = sharing->rules->terms;
    uint64_t at = weir_siphash13(&sharing->rules->dict.key, terms, sizeof(*terms));
    for (;; at++) {
        uint16_t *number = &sharing->lookup[at % LOOKUP_SIZE];
        if (*number && is_same(&all[*number], terms))
            return *number;
        if (*number)
            continue;
        if (sharing->count == WEIR_TERMS_MAX)
            return 0;
        *number = (uint16_t)++sharing->count;
        memcpy(&all[*number], terms, sizeof(*terms));
        return *number;
    }
}

void weir_rules_share(struct weir_rules *rules)
{
    struct sharing sharing = {.rules = rules};
    uint32_t room = rules->rule_count < WEIR_TERMS_MAX ? rules->rule_count : WEIR_TERMS_MAX;
    rules->terms = WEIR_ARENA_ARRAY(&rules->arena, room + 1, struct weir_terms);
    if (!rules->terms)
        return;
    for (uint64_t at = 0; at < rules->dict.size; at++) {
        struct weir_dict_slot *slot = &rules->dict.slots[at];
        struct weir_terms terms;
        if (!slot->hash || !slot->has_rule || !terms_of(&rules->rules[slot->index], &terms))
            continue;
        slot->terms = number_of(&sharing, &terms) & WEIR_TERMS_MAX;
        slot->stat = rules->rules[slot->index].stat & WEIR_DICT_STAT_MAX;
    }
}
