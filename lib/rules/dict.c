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
    dict->slots = WEIR_ARENA_ARRAY(arena, size, uint32_t);
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
        *owner = rules->nodes[index].parent;
        return weir_node_text(&rules->nodes[index]);
    }
}

static bool is_row(const struct weir_rules *rules, uint32_t slot, const char *key, size_t len)
{
    enum weir_dict_kind kind = (enum weir_dict_kind)((slot - 1) >> KIND_SHIFT);
    uint32_t owner;
    struct weir_str text = row_key(rules, kind, (slot - 1) & INDEX_MASK, &owner);
    char head[WEIR_DICT_HEAD];
    weir_dict_head(head, kind, owner);
    return text.len + WEIR_DICT_HEAD == len && memcmp(head, key, WEIR_DICT_HEAD) == 0 &&
           memcmp(text.ptr, key + WEIR_DICT_HEAD, text.len) == 0;
}

/* The slot that holds the key, or the free one where it would go. */
static uint32_t *probe(const struct weir_rules *rules, const char *key, size_t len)
{
    const struct weir_dict *dict = &rules->dict;
    uint32_t at = (uint32_t)weir_siphash13(&dict->key, key, len) & dict->mask;
    while (dict->slots[at] && !is_row(rules, dict->slots[at], key, len))
        at = (at + 1) & dict->mask;
    return &dict->slots[at];
}

uint32_t weir_dict_find(const struct weir_rules *rules, const char *key, size_t len)
{
    uint32_t slot = *probe(rules, key, len);
    return slot ? (slot - 1) & INDEX_MASK : WEIR_NONE;
}

uint32_t weir_dict_add(struct weir_rules *rules, enum weir_dict_kind kind, uint32_t index)
{
    char key[KEY_LEN_MAX];
    uint32_t owner;
    struct weir_str text = row_key(rules, kind, index, &owner);
    WEIR_ASSERT(text.len <= sizeof(key) - WEIR_DICT_HEAD && index < INDEX_MASK);
    weir_dict_head(key, kind, owner);
    memcpy(key + WEIR_DICT_HEAD, text.ptr, text.len);
    uint32_t *slot = probe(rules, key, WEIR_DICT_HEAD + text.len);
    if (*slot)
        return (*slot - 1) & INDEX_MASK;
    *slot = ((uint32_t)kind << KIND_SHIFT | index) + 1;
    return WEIR_NONE;
}
