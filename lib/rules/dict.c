/* The one dictionary of a set of rules.
 *
 * Values of requests are hostile and choose the hash, so it is keyed anew at every load.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "rules/tree.h"

#include <string.h>

#define KIND_SHIFT 29u
#define INDEX_MASK ((1u << KIND_SHIFT) - 1)
#define KEY_LEN_MAX (WEIR_DICT_HEAD + WEIR_KEY_LEN_MAX + 1 + WEIR_VALUE_LEN_MAX)

void weir_dict_head(char head[WEIR_DICT_HEAD], enum weir_dict_kind kind, uint32_t owner)
{
    uint64_t word = (uint64_t)kind << 32 | owner;
    memcpy(head, &word, sizeof(word));
}

bool weir_dict_init(struct weir_dict *dict, struct weir_arena *arena, uint64_t count,
                    const struct weir_hash_key *key)
{
    uint64_t size = 8;
    while (size * 3 / 4 < count)
        size *= 2;
    WEIR_ASSERT(size <= UINT32_MAX);
    dict->slots = WEIR_ARENA_ARRAY(arena, size, struct weir_dict_slot);
    dict->mask = (uint32_t)size - 1;
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
    default:
        /* Its text and its rule lie apart: fetched at once, they cost one miss. */
        if (rules->nodes[index].rule != WEIR_NONE)
            __builtin_prefetch(rules->rules + rules->nodes[index].rule);
        *owner = rules->nodes[index].parent;
        return weir_node_text(&rules->nodes[index]);
    }
}

static bool is_row(const struct weir_rules *rules, uint32_t row, const char *key, size_t len)
{
    enum weir_dict_kind kind = (enum weir_dict_kind)((row - 1) >> KIND_SHIFT);
    uint32_t owner;
    struct weir_str text = row_key(rules, kind, (row - 1) & INDEX_MASK, &owner);
    char head[WEIR_DICT_HEAD];
    weir_dict_head(head, kind, owner);
    return text.len + WEIR_DICT_HEAD == len && memcmp(head, key, WEIR_DICT_HEAD) == 0 &&
           memcmp(text.ptr, key + WEIR_DICT_HEAD, text.len) == 0;
}

/* The slot that holds the key, or the free one where it would go. */
static struct weir_dict_slot *probe(const struct weir_rules *rules, const char *key, size_t len,
                                    uint32_t *print)
{
    const struct weir_dict *dict = &rules->dict;
    uint64_t hash = weir_siphash13(&dict->key, key, len);
    uint32_t at = (uint32_t)hash & dict->mask;
    *print = (uint32_t)(hash >> 32);
    for (;; at = (at + 1) & dict->mask) {
        struct weir_dict_slot *slot = &dict->slots[at];
        if (slot->row == 0 || (slot->print == *print && is_row(rules, slot->row, key, len)))
            return slot;
    }
}

uint32_t weir_dict_find(const struct weir_rules *rules, const char *key, size_t len)
{
    uint32_t print;
    uint32_t row = probe(rules, key, len, &print)->row;
    return row ? (row - 1) & INDEX_MASK : WEIR_NONE;
}

uint32_t weir_dict_add(struct weir_rules *rules, enum weir_dict_kind kind, uint32_t index)
{
    char key[KEY_LEN_MAX];
    uint32_t owner, print;
    struct weir_str text = row_key(rules, kind, index, &owner);
    WEIR_ASSERT(text.len <= sizeof(key) - WEIR_DICT_HEAD && index < INDEX_MASK);
    weir_dict_head(key, kind, owner);
    memcpy(key + WEIR_DICT_HEAD, text.ptr, text.len);
    struct weir_dict_slot *slot = probe(rules, key, WEIR_DICT_HEAD + text.len, &print);
    if (slot->row)
        return (slot->row - 1) & INDEX_MASK;
    *slot =
        (struct weir_dict_slot){.print = print, .row = ((uint32_t)kind << KIND_SHIFT | index) + 1};
    return WEIR_NONE;
}
