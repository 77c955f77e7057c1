/* The one dictionary of a set of rules.
 *
 * Values of requests are hostile and choose the hash, so it is keyed anew at every load.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "rules/tree.h"

bool weir_dict_init(struct weir_dict *dict, struct weir_arena *arena, uint64_t count,
                    const struct weir_hash_key *key)
{
    uint64_t size = count + count / 3 + 8;
    WEIR_ASSERT(size <= UINT32_MAX);
    dict->slots = WEIR_ARENA_ARRAY(arena, size, struct weir_dict_slot);
    dict->size = size;
    dict->key = *key;
    return dict->slots != NULL;
}

/* Whose child a row is, and its text. */
static struct weir_str row_key(const struct weir_rules *rules, enum weir_dict_kind kind,
                               uint32_t index, uint32_t *owner)
{
    switch (kind) {
    case WEIR_DICT_OVERRIDE:
        *owner = rules->overrides[index].node;
        return rules->overrides[index].value;
    case WEIR_DICT_MAP:
        *owner = rules->map_rows[index].attribute;
        return rules->map_rows[index].key;
    case WEIR_DICT_ID:
        *owner = rules->ids[index].domain;
        return rules->rules[rules->ids[index].rule].info.id;
    case WEIR_DICT_NODE:
    case WEIR_DICT_DOMAIN:
    case WEIR_DICT_REGEX:
    case WEIR_DICT_CIDR:
    case WEIR_DICT_PATH:
    default:
        *owner = rules->nodes[index].parent;
        return weir_node_text(&rules->nodes[index]);
    }
}

/* Whether the slot's row has this very key, byte by byte. */
static bool is_row(const struct weir_rules *rules, const struct weir_dict_slot *slot,
                   enum weir_dict_kind kind, uint32_t index)
{
    uint32_t owner, other_owner;
    struct weir_str text = row_key(rules, kind, index, &owner);
    if (slot->kind != (unsigned)kind)
        return false;
    struct weir_str other = row_key(rules, kind, slot->index, &other_owner);
    return owner == other_owner && weir_str_eq(text, other);
}

uint32_t weir_dict_add(struct weir_rules *rules, enum weir_dict_kind kind, uint32_t index,
                       uint64_t owner)
{
    struct weir_dict *dict = &rules->dict;
    uint32_t owner_number;
    uint64_t hash = weir_dict_hash(rules, kind, owner, row_key(rules, kind, index, &owner_number));
    uint64_t at = weir_dict_home(dict, hash);
    WEIR_ASSERT(index <= WEIR_DICT_INDEX_MAX);
    for (; dict->slots[at].hash; at = at + 1 == dict->size ? 0 : at + 1) {
        if (dict->slots[at].hash != hash)
            continue;
        if (is_row(rules, &dict->slots[at], kind, index))
            return dict->slots[at].index;
        dict->has_collided = true;
    }
    dict->slots[at] = (struct weir_dict_slot){
        .hash = hash,
        .index = index & WEIR_DICT_INDEX_MAX,
        .kind = (unsigned)kind & 7u,
    };
    return WEIR_NONE;
}

uint64_t weir_node_hash(const struct weir_rules *rules, uint32_t node, uint64_t parent_hash)
{
    static const uint8_t KINDS[] = {
        [WEIR_MATCH_EXACT] = WEIR_DICT_NODE,  [WEIR_MATCH_WILDCARD] = WEIR_DICT_NODE,
        [WEIR_MATCH_REGEX] = WEIR_DICT_REGEX, [WEIR_MATCH_CIDR] = WEIR_DICT_CIDR,
        [WEIR_MATCH_PATH] = WEIR_DICT_PATH,
    };
    const struct weir_node *n = &rules->nodes[node];
    bool is_domain = n->parent == WEIR_NONE;
    enum weir_dict_kind kind = is_domain ? WEIR_DICT_DOMAIN : (enum weir_dict_kind)KINDS[n->kind];
    return weir_dict_hash(rules, kind, parent_hash, weir_node_text(n));
}

static uint64_t fold(uint64_t lengths)
{
    lengths |= lengths >> 32;
    lengths |= lengths >> 16;
    return (lengths | lengths >> 8) & 0xff;
}

struct weir_dict_slot weir_node_slot(const struct weir_rules *rules, uint32_t node, uint64_t hash)
{
    const struct weir_node *n = &rules->nodes[node];
    const struct weir_children *level = n->level;
    bool is_domain = n->parent == WEIR_NONE;
    struct weir_dict_slot slot = {
        .hash = hash,
        .index = node & WEIR_DICT_INDEX_MAX,
        .kind = is_domain ? WEIR_DICT_DOMAIN : WEIR_DICT_NODE,
        .is_plain = !n->is_cut && !n->is_shared && !n->has_overrides,
    };
    if (!is_domain && n->rule != WEIR_NONE) {
        slot.index = n->rule & WEIR_DICT_INDEX_MAX;
        slot.has_rule = true;
    }
    if (level) {
        slot.lengths = fold(level->lengths) & 0xff;
        slot.has_underscore = level->has_underscore;
        slot.has_special = level->pattern_count || level->cidrs || level->paths;
    }
    return slot;
}

void weir_dict_seal(struct weir_rules *rules)
{
    for (uint64_t at = 0; at < rules->dict.size; at++) {
        struct weir_dict_slot *slot = &rules->dict.slots[at];
        if (slot->hash && (slot->kind == WEIR_DICT_NODE || slot->kind == WEIR_DICT_DOMAIN))
            *slot = weir_node_slot(rules, slot->index, slot->hash);
    }
    for (uint32_t i = 0; i < rules->domain_count; i++) {
        uint32_t node = rules->domains[i].node;
        rules->domains[i].root = weir_node_slot(rules, node, weir_node_hash(rules, node, 0));
    }
}
