/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "rules/match_cidr.h"
#include "rules/match_glob.h"
#include "rules/match_path.h"
#include "rules/match_regex.h"
#include "rules/tree.h"

#include <string.h>

#define NOINLINE __attribute__((noinline))

static const struct weir_node *node_or_null(const struct weir_rules *rules, uint32_t index)
{
    return index == WEIR_NONE ? NULL : &rules->nodes[index];
}

static bool may_have(const struct weir_children *level, size_t len)
{
    return level->lengths >> (len & 63) & 1;
}

static const struct weir_node *match_patterns(const struct weir_rules *rules,
                                              const struct weir_children *level,
                                              const struct weir_entry *entry,
                                              struct weir_str composite)
{
    for (uint32_t i = 0; i < level->pattern_count; i++) {
        const struct weir_pattern *pattern = &level->patterns[i];
        const struct weir_node *node = &rules->nodes[pattern->node];
        bool matches;
        if (pattern->regex)
            matches = weir_str_eq(weir_node_key(node), entry->key) &&
                      weir_regex_matches(pattern->regex, entry->value);
        else
            matches = weir_glob_matches(pattern, weir_node_text(node), composite);
        if (matches)
            return node;
    }
    return NULL;
}

/* All that is neither an exact value nor a bare key; out of line, for most levels have none of it.
 */
static NOINLINE const struct weir_node *match_special(const struct weir_rules *rules,
                                                      const struct weir_children *level,
                                                      const struct weir_entry *entry,
                                                      struct weir_str composite)
{
    uint32_t found = WEIR_NONE;
    if (level->paths)
        found = weir_paths_find(level->paths, entry);
    if (found == WEIR_NONE && level->cidrs)
        found = weir_cidrs_find(level->cidrs, entry);
    if (found != WEIR_NONE)
        return &rules->nodes[found];
    return match_patterns(rules, level, entry, composite);
}

const struct weir_node *weir_match_child(const struct weir_rules *rules,
                                         const struct weir_node *parent,
                                         const struct weir_entry *entry, char *work)
{
    const struct weir_children *level = parent->level;
    size_t key_len = entry->key.len;
    size_t value_len = entry->value.len;
    if (key_len > WEIR_KEY_LEN_MAX || value_len > WEIR_VALUE_LEN_MAX)
        return NULL;
    char *text = work + WEIR_DICT_HEAD;
    weir_dict_head(work, WEIR_DICT_NODE, (uint32_t)(parent - rules->nodes));
    if (key_len)
        memcpy(text, entry->key.ptr, key_len);
    bool has_special = level->pattern_count || level->cidrs || level->paths;
    size_t len = key_len + 1 + value_len;
    if (may_have(level, len) || has_special) {
        text[key_len] = '_';
        if (value_len)
            memcpy(text + key_len + 1, entry->value.ptr, value_len);
        uint32_t exact = weir_dict_find(rules, work, WEIR_DICT_HEAD + len);
        if (exact != WEIR_NONE)
            return &rules->nodes[exact];
        const struct weir_node *special =
            has_special ? match_special(rules, level, entry, (struct weir_str){text, len}) : NULL;
        if (special)
            return special;
    }
    if (!may_have(level, key_len))
        return NULL;
    return node_or_null(rules, weir_dict_find(rules, work, WEIR_DICT_HEAD + key_len));
}

static void note_part(struct weir_match *out, uint32_t i, const struct weir_node *node)
{
    out->part[i] = WEIR_PART_VALUE;
    if (node->is_cut) {
        out->part[i] = WEIR_PART_PREFIX;
        out->has_shared_parts = true;
    } else if (node->is_shared) {
        struct weir_str value = weir_node_value(node);
        out->part[i] = WEIR_PART_SHARED;
        out->shared[i] = value.len ? value : weir_node_text(node);
        out->has_shared_parts = true;
    }
}

/* Overrides are found by the value of the last entry, whatever pattern the rule was found by. */
static NOINLINE const struct weir_rule_limit *find_override(const struct weir_rules *rules,
                                                            const struct weir_node *node,
                                                            struct weir_str value, char *work)
{
    weir_dict_head(work, WEIR_DICT_OVERRIDE, (uint32_t)(node - rules->nodes));
    if (value.len)
        memcpy(work + WEIR_DICT_HEAD, value.ptr, value.len);
    uint32_t row = weir_dict_find(rules, work, WEIR_DICT_HEAD + value.len);
    return row == WEIR_NONE ? NULL : &rules->limits[rules->overrides[row].limit];
}

void weir_rules_match(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_match *out)
{
    const struct weir_rules *rules = domain->rules;
    const struct weir_node *node = &rules->nodes[domain->node];
    char work[WEIR_MATCH_WORK];
    out->rule = NULL;
    out->limits = NULL;
    out->limit_count = 0;
    out->has_shared_parts = false;
    if (entry_count == 0 || entry_count > WEIR_ENTRIES_MAX)
        return;
    for (uint32_t i = 0; i < entry_count; i++) {
        if (!node->level)
            return;
        node = weir_match_child(rules, node, &entries[i], work);
        if (!node)
            return;
        note_part(out, i, node);
    }
    if (node->rule == WEIR_NONE)
        return;
    const struct weir_rule *rule = &rules->rules[node->rule];
    const struct weir_rule_limit *own = NULL;
    if (node->has_overrides)
        own = find_override(rules, node, entries[entry_count - 1].value, work);
    out->rule = rule;
    out->limits = own ? own : rule->limits;
    out->limit_count = rule->limit_count;
}
