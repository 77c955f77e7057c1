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

/* What matches one entry, below one node. */
struct level {
    const struct weir_rules *rules;
    struct weir_dict_slot at; /* the node */
    uint64_t lengths;         /* bit (length mod 64): texts of such lengths may be there */
};

static bool may_have(uint64_t lengths, size_t len)
{
    return lengths >> (len & 63) & 1;
}

static struct level level_below(const struct weir_rules *rules, struct weir_dict_slot at)
{
    return (struct level){rules, at, at.lengths * UINT64_C(0x0101010101010101)};
}

/* Every request comes through the root, so its level is near: we can afford to look closer. */
static struct level level_at_root(const struct weir_domain *domain)
{
    return (struct level){domain->rules, domain->root, domain->lengths[0]};
}

static uint32_t match_patterns(const struct weir_rules *rules, const struct weir_children *level,
                               const struct weir_entry *entry, struct weir_str composite)
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
            return pattern->node;
    }
    return WEIR_NONE;
}

/* Writes "key" or "key_value" behind room for a head; returns its length. */
static size_t write_text(const struct weir_entry *entry, bool with_value, char *work)
{
    char *text = work + WEIR_DICT_HEAD;
    size_t len = entry->key.len;
    if (len)
        memcpy(text, entry->key.ptr, len);
    if (!with_value)
        return len;
    text[len++] = '_';
    if (entry->value.len)
        memcpy(text + len, entry->value.ptr, entry->value.len);
    return len + entry->value.len;
}

/* All that is neither an exact value nor a bare key; out of line, for most levels have none of it.
 */
static NOINLINE struct weir_dict_slot match_special(const struct level *l,
                                                    const struct weir_entry *entry, char *work)
{
    const struct weir_rules *rules = l->rules;
    const struct weir_children *level = rules->nodes[l->at.index].level;
    struct weir_str composite = {work + WEIR_DICT_HEAD, write_text(entry, true, work)};
    uint32_t found = WEIR_NONE;
    if (level->paths)
        found = weir_paths_find(level->paths, entry);
    if (found == WEIR_NONE && level->cidrs)
        found = weir_cidrs_find(level->cidrs, entry);
    if (found == WEIR_NONE)
        found = match_patterns(rules, level, entry, composite);
    if (found == WEIR_NONE)
        return (struct weir_dict_slot){0};
    uint64_t hash = 1; /* any: nothing is below */
    if (rules->nodes[found].level)
        hash = weir_node_hash(rules, found, l->at.hash);
    return weir_node_slot(rules, found, hash);
}

static uint64_t hash_child(const struct weir_rules *rules, uint64_t parent_hash,
                           const struct weir_entry *entry, bool with_value, char *work)
{
    weir_dict_head(work, WEIR_DICT_NODE, parent_hash);
    size_t len = write_text(entry, with_value, work);
    return weir_dict_hash(rules, work, WEIR_DICT_HEAD + len);
}

static bool is_too_long(const struct weir_entry *entry)
{
    return entry->key.len > WEIR_KEY_LEN_MAX || entry->value.len > WEIR_VALUE_LEN_MAX;
}

/* Which texts of an entry are worth looking for. */
static bool may_match_value(const struct level *l, const struct weir_entry *entry)
{
    return l->at.has_special ||
           (l->at.has_underscore && may_have(l->lengths, entry->key.len + 1 + entry->value.len));
}

/* guessed[with_value] is the hash of that text, or 0 where it was not guessed. */
static struct weir_dict_slot match_level(const struct level *l, const struct weir_entry *entry,
                                         const uint64_t guessed[2], char *work)
{
    const struct weir_dict_slot *exact = NULL;
    if (may_match_value(l, entry)) {
        uint64_t hash =
            guessed[1] ? guessed[1] : hash_child(l->rules, l->at.hash, entry, true, work);
        exact = weir_dict_find(l->rules, hash);
        if (exact)
            return *exact;
        if (l->at.has_special) {
            struct weir_dict_slot special = match_special(l, entry, work);
            if (special.hash)
                return special;
        }
    }
    if (may_have(l->lengths, entry->key.len)) {
        uint64_t hash =
            guessed[0] ? guessed[0] : hash_child(l->rules, l->at.hash, entry, false, work);
        exact = weir_dict_find(l->rules, hash);
    }
    return exact ? *exact : (struct weir_dict_slot){0};
}

struct weir_dict_slot weir_match_child(const struct weir_rules *rules, struct weir_dict_slot at,
                                       const struct weir_entry *entry, char *work)
{
    static const uint64_t nothing[2] = {0, 0};
    struct level level = level_below(rules, at);
    if (is_too_long(entry))
        return (struct weir_dict_slot){0};
    return match_level(&level, entry, nothing, work);
}

static NOINLINE void note_part(struct weir_match *out, uint32_t i, const struct weir_node *node)
{
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
                                                            uint32_t node, struct weir_str value,
                                                            char *work)
{
    if (!rules->nodes[node].has_overrides)
        return NULL;
    weir_dict_head(work, WEIR_DICT_OVERRIDE, node);
    if (value.len)
        memcpy(work + WEIR_DICT_HEAD, value.ptr, value.len);
    uint64_t hash = weir_dict_hash(rules, work, WEIR_DICT_HEAD + value.len);
    const struct weir_dict_slot *slot = weir_dict_find(rules, hash);
    return slot ? &rules->limits[rules->overrides[slot->index].limit] : NULL;
}

void weir_rules_guess(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_guess *out)
{
    uint64_t parent = domain->root.hash;
    char work[WEIR_MATCH_WORK];
    out->count = 0;
    out->with_value = 0;
    for (uint32_t i = 0; i < entry_count && i < WEIR_GUESSES_MAX; i++) {
        const struct weir_entry *entry = &entries[i];
        size_t key_len = entry->key.len;
        bool may_be_value = may_have(domain->lengths[i], key_len + 1 + entry->value.len) &&
                            (domain->underscore_depths >> i & 1);
        bool with_value = may_be_value || (domain->special_depths >> i & 1);
        if (is_too_long(entry) || (!with_value && !may_have(domain->lengths[i], key_len)))
            return;
        parent = hash_child(domain->rules, parent, entry, with_value, work);
        weir_dict_fetch(domain->rules, parent);
        out->hash[i] = parent;
        out->with_value |= (uint8_t)((unsigned)with_value << i);
        out->count++;
    }
}

/* The guessed hashes of entry i, if the way to it was guessed right. */
static void take_guess(const struct weir_guess *guess, uint32_t i, uint64_t parent_hash,
                       uint64_t out[2])
{
    out[0] = out[1] = 0;
    if (i < guess->count && (i == 0 || guess->hash[i - 1] == parent_hash))
        out[guess->with_value >> i & 1] = guess->hash[i];
}

void weir_rules_find(const struct weir_domain *domain, const struct weir_entry *entries,
                     uint32_t entry_count, const struct weir_guess *guess, struct weir_match *out)
{
    const struct weir_rules *rules = domain->rules;
    struct weir_dict_slot at = domain->root;
    char work[WEIR_MATCH_WORK];
    out->rule = NULL;
    out->limits = NULL;
    out->tag = 0;
    out->limit_count = 0;
    out->has_shared_parts = false;
    if (entry_count == 0 || entry_count > WEIR_ENTRIES_MAX)
        return;
    for (uint32_t i = 0; i < entry_count; i++) {
        struct level level = i == 0 ? level_at_root(domain) : level_below(rules, at);
        uint64_t guessed[2];
        if (is_too_long(&entries[i]))
            return;
        take_guess(guess, i, at.hash, guessed);
        at = match_level(&level, &entries[i], guessed, work);
        if (at.hash == 0)
            return;
        out->part[i] = WEIR_PART_VALUE;
        if (!at.is_plain)
            note_part(out, i, &rules->nodes[at.index]);
    }
    if (at.rule == WEIR_DICT_NO_RULE)
        return;
    if (!at.is_plain)
        out->limits = find_override(rules, at.index, entries[entry_count - 1].value, work);
    out->rule = &rules->rules[at.rule];
    if (!out->limits)
        out->tag = rules->tags[at.tag];
}

void weir_rules_match(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_match *out)
{
    static const struct weir_guess nothing = {.count = 0};
    weir_rules_find(domain, entries, entry_count, &nothing, out);
    weir_rules_settle(out);
}
