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
#define TEXT_LEN_MAX (WEIR_KEY_LEN_MAX + 1 + WEIR_VALUE_LEN_MAX)

static bool may_have(uint64_t lengths, size_t len)
{
    return lengths >> (len & 63) & 1;
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

/* "key_value", as patterns are matched with it. */
static struct weir_str join(const struct weir_entry *entry, char text[TEXT_LEN_MAX])
{
    size_t len = entry->key.len;
    if (len)
        memcpy(text, entry->key.ptr, len);
    text[len++] = '_';
    if (entry->value.len)
        memcpy(text + len, entry->value.ptr, entry->value.len);
    return (struct weir_str){.ptr = text, .len = len + entry->value.len};
}

/* All that is neither an exact value nor a bare key; out of line, for most levels have none of it.
 */
static NOINLINE struct weir_dict_slot match_special(const struct weir_rules *rules,
                                                    struct weir_dict_slot at,
                                                    const struct weir_entry *entry)
{
    char text[TEXT_LEN_MAX];
    const struct weir_children *level = rules->nodes[weir_slot_node(rules, &at)].level;
    uint32_t found = WEIR_NONE;
    if (level->paths)
        found = weir_paths_find(level->paths, entry);
    if (found == WEIR_NONE && level->cidrs)
        found = weir_cidrs_find(level->cidrs, entry);
    if (found == WEIR_NONE)
        found = match_patterns(rules, level, entry, join(entry, text));
    if (found == WEIR_NONE)
        return (struct weir_dict_slot){0};
    uint64_t hash = 1; /* any: nothing is below */
    if (rules->nodes[found].level)
        hash = weir_node_hash(rules, found, at.hash);
    return weir_node_slot(rules, found, hash);
}

/* Of "key", or of "key_value". */
static inline uint64_t hash_child(const struct weir_rules *rules, uint64_t parent_hash,
                                  const struct weir_entry *entry, bool with_value)
{
    struct weir_sip sip = weir_dict_hash_begin(rules, WEIR_DICT_NODE, parent_hash);
    weir_sip_add(&sip, entry->key.ptr, entry->key.len);
    if (with_value) {
        weir_sip_add(&sip, "_", 1);
        weir_sip_add(&sip, entry->value.ptr, entry->value.len);
    }
    return weir_dict_hash_end(&sip);
}

static bool is_too_long(const struct weir_entry *entry)
{
    return entry->key.len > WEIR_KEY_LEN_MAX || entry->value.len > WEIR_VALUE_LEN_MAX;
}

static NOINLINE const struct weir_dict_slot *find_child(const struct weir_rules *rules,
                                                        uint64_t parent_hash,
                                                        const struct weir_entry *entry,
                                                        bool with_value)
{
    return weir_dict_find(rules, hash_child(rules, parent_hash, entry, with_value));
}

/* is_no_value: it is known already that no text "key_value" is there. */
static struct weir_dict_slot match_level(const struct weir_rules *rules, struct weir_dict_slot at,
                                         const struct weir_entry *entry, bool is_no_value)
{
    const struct weir_dict_slot *found = NULL;
    uint64_t lengths = at.lengths * UINT64_C(0x0101010101010101); /* mod 8 as mod 64 */
    if (is_too_long(entry))
        return (struct weir_dict_slot){0};
    if (!is_no_value && at.has_underscore &&
        may_have(lengths, entry->key.len + 1 + entry->value.len))
        found = find_child(rules, at.hash, entry, true);
    if (found)
        return *found;
    if (at.has_special) {
        struct weir_dict_slot special = match_special(rules, at, entry);
        if (special.hash)
            return special;
    }
    if (may_have(lengths, entry->key.len))
        found = find_child(rules, at.hash, entry, false);
    return found ? *found : (struct weir_dict_slot){0};
}

struct weir_dict_slot weir_match_child(const struct weir_rules *rules, struct weir_dict_slot at,
                                       const struct weir_entry *entry)
{
    return match_level(rules, at, entry, false);
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
                                                            uint32_t node, struct weir_str value)
{
    if (!rules->nodes[node].has_overrides)
        return NULL;
    const struct weir_dict_slot *slot =
        weir_dict_find(rules, weir_dict_hash(rules, WEIR_DICT_OVERRIDE, node, value));
    return slot ? &rules->limits[rules->overrides[slot->index].limit] : NULL;
}

void weir_rules_guess(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_guess *out)
{
    uint64_t parent = domain->root.hash;
    out->count = 0;
    out->with_value = 0;
    out->is_nothing = false;
    for (uint32_t i = 0; i < entry_count && i < WEIR_GUESSES_MAX; i++) {
        const struct weir_entry *entry = &entries[i];
        size_t key_len = entry->key.len;
        bool with_value = may_have(domain->lengths[i], key_len + 1 + entry->value.len) &&
                          (domain->underscore_depths >> i & 1);
        bool has_special = domain->special_depths >> i & 1;
        out->is_nothing = is_too_long(entry) ||
                          (!with_value && !has_special && !may_have(domain->lengths[i], key_len));
        if (out->is_nothing || (has_special && !with_value))
            return;
        parent = hash_child(domain->rules, parent, entry, with_value);
        weir_dict_fetch(domain->rules, parent);
        out->hash[i] = parent;
        if (with_value)
            out->with_value |= (uint8_t)(1u << i);
        out->count++;
    }
}

/* One further entry was matched; says whether there was anything. */
static inline bool note_entry(const struct weir_rules *rules, const struct weir_dict_slot *at,
                              uint32_t i, struct weir_match *out)
{
    if (at->hash == 0)
        return false;
    out->part[i] = WEIR_PART_VALUE;
    if (!at->is_plain)
        note_part(out, i, &rules->nodes[weir_slot_node(rules, at)]);
    return true;
}

/* From entry `from` on, which was not where it was guessed. */
static NOINLINE struct weir_dict_slot walk_on(const struct weir_rules *rules,
                                              struct weir_dict_slot at,
                                              const struct weir_entry *entries, uint32_t from,
                                              uint32_t entry_count, bool is_no_value,
                                              struct weir_match *out)
{
    for (uint32_t i = from; i < entry_count; i++) {
        at = match_level(rules, at, &entries[i], is_no_value);
        if (!note_entry(rules, &at, i, out))
            break;
        is_no_value = false;
    }
    return at;
}

/* All entries were matched, and a limit is there. */
static inline void note_rule(const struct weir_rules *rules, const struct weir_dict_slot *at,
                             const struct weir_entry *last, struct weir_match *out)
{
    out->rule = &rules->rules[at->index];
    if (!at->is_plain)
        out->limits = find_override(rules, out->rule->node, last->value);
    if (at->terms && !out->limits) {
        out->terms = &rules->terms[at->terms];
        out->stat = at->stat;
    }
}

void weir_rules_find(const struct weir_domain *domain, const struct weir_entry *entries,
                     uint32_t entry_count, const struct weir_guess *guess, struct weir_match *out)
{
    const struct weir_rules *rules = domain->rules;
    const struct weir_dict_slot *at = &domain->root, *next = NULL;
    struct weir_dict_slot found;
    uint32_t i = 0;
    out->rule = NULL;
    out->limits = NULL;
    out->terms = NULL;
    out->stat = 0;
    out->limit_count = 0;
    out->has_shared_parts = false;
    if (entry_count == 0 || entry_count > WEIR_ENTRIES_MAX)
        return;
    /* What is there is right: an exact value goes before all else, and a bare key is guessed only
     * where the whole domain has nothing else at that depth. */
    for (; i < guess->count && (next = weir_dict_find(rules, guess->hash[i])); i++) {
        at = next;
        (void)note_entry(rules, at, i, out);
    }
    bool is_no_value = i < guess->count && (guess->with_value >> i & 1);
    bool is_no_key = i < guess->count && !is_no_value;
    if (is_no_key || (i == guess->count && guess->is_nothing))
        return;
    if (i < entry_count) {
        found = walk_on(rules, *at, entries, i, entry_count, is_no_value, out);
        at = &found;
    }
    if (at->hash != 0 && at->has_rule)
        note_rule(rules, at, &entries[entry_count - 1], out);
}

void weir_rules_match(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_match *out)
{
    struct weir_guess guess;
    weir_rules_guess(domain, entries, entry_count, &guess);
    weir_rules_find(domain, entries, entry_count, &guess, out);
    weir_rules_settle(out);
}

bool weir_rule_takes_any(const struct weir_domain *domain, const struct weir_rule *rule,
                         uint64_t *known)
{
    const struct weir_node *node = &domain->rules->nodes[rule->node];
    const struct weir_children *level = domain->rules->nodes[node->parent].level;
    unsigned before = (node->key_len + 1u) & 63; /* a text is "key_value" */
    bool is_bare = node->text_len == node->key_len;
    if (!is_bare || node->is_cut || node->is_shared || node->has_overrides ||
        rule->has_value_stats || level->pattern_count || level->cidrs || level->paths)
        return false;
    *known =
        level->has_underscore ? level->lengths >> before | level->lengths << (-before & 63) : 0;
    return true;
}
