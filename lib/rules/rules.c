/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/rules.h"

#include "base/err.h"
#include "base/hot.h"
#include "rules/tree.h"

const struct weir_domain *weir_rules_domain(const struct weir_rules *rules, struct weir_str name)
{
    if (name.len == 0 || name.len > WEIR_DOMAIN_LEN_MAX)
        return NULL;
    const struct weir_dict_slot *slot =
        weir_dict_find(rules, weir_dict_hash(rules, WEIR_DICT_DOMAIN, 0, name));
    return slot ? &rules->domains[rules->nodes[slot->index].rule] : NULL;
}

bool weir_domain_is_atomic(const struct weir_domain *domain)
{
    return domain->is_atomic;
}

const struct weir_domain *weir_rules_domain_at(const struct weir_rules *rules, uint32_t number)
{
    return number < rules->domain_count ? &rules->domains[number] : NULL;
}

WEIR_HOT struct weir_str weir_domain_name(const struct weir_domain *domain)
{
    return domain->name;
}

uint64_t weir_domain_tag(const struct weir_domain *domain)
{
    return domain->tag;
}

uint32_t weir_rules_count(const struct weir_rules *rules)
{
    return rules->rule_count;
}

struct weir_rule *weir_rules_at(const struct weir_rules *rules, uint32_t index)
{
    WEIR_ASSERT(index < rules->rule_count);
    return &rules->rules[index];
}

uint32_t weir_rules_limit_count(const struct weir_rules *rules)
{
    return rules->numbered_count;
}

struct weir_limit *weir_rules_limit_at(const struct weir_rules *rules, uint32_t number)
{
    WEIR_ASSERT(number < rules->numbered_count);
    return &rules->numbered[number]->limit;
}

const struct weir_status_set *weir_rules_count_if(const struct weir_rules *rules,
                                                  const struct weir_limit *limit)
{
    return limit->count_if ? &rules->count_ifs[limit->count_if] : NULL;
}
