/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/shapes.h"

#include "base/err.h"
#include "base/str.h"
#include "rules/tree.h"

#define IPV6_PREFIX 64 /* what one subscriber has */

uint32_t weir_shapes_count(const struct weir_domain *domain)
{
    return domain->shape_count;
}

const struct weir_shape *weir_shapes_at(const struct weir_domain *domain, uint32_t index)
{
    WEIR_ASSERT(index < domain->shape_count);
    return &domain->shapes[index];
}

static const struct weir_attribute *attribute_of(const struct weir_domain *domain,
                                                 struct weir_str name)
{
    for (uint32_t i = 0; i < domain->attribute_count; i++)
        if (weir_str_eq(domain->attributes[i].name, name))
            return &domain->attributes[i];
    return NULL;
}

bool weir_attribute_find(const struct weir_domain *domain, struct weir_str name,
                         struct weir_str *from)
{
    const struct weir_attribute *attribute = attribute_of(domain, name);
    if (attribute)
        *from = attribute->from;
    return attribute != NULL;
}

bool weir_attribute_lookup(const struct weir_domain *domain, struct weir_str name,
                           const struct weir_str *from_value, struct weir_str *value)
{
    const struct weir_attribute *attribute = attribute_of(domain, name);
    if (!attribute)
        return false;
    if (from_value && from_value->len <= WEIR_VALUE_LEN_MAX) {
        uint64_t hash =
            weir_dict_hash(domain->rules, WEIR_DICT_MAP, attribute->number, *from_value);
        const struct weir_dict_slot *slot = weir_dict_find(domain->rules, hash);
        if (slot) {
            *value = domain->rules->map_rows[slot->index].value;
            return true;
        }
    }
    if (attribute->has_otherwise)
        *value = attribute->otherwise;
    return attribute->has_otherwise;
}

/* One request while it is being described. */
struct asking {
    const struct weir_domain *domain;
    const struct weir_http *http;
    struct weir_shape_room *room;
    uint32_t descriptor_count, entry_count, address_count;
    bool is_denied;
    int err; /* of a lookup */
};

static bool get(struct asking *a, struct weir_str key, struct weir_str *value)
{
    int found = a->http->attribute(a->http->ctx, key, value);
    if (found < 0)
        a->err = found;
    return found > 0;
}

static bool attribute_value(struct asking *a, struct weir_str key, struct weir_str *value)
{
    struct weir_str from, from_value;
    if (!weir_attribute_find(a->domain, key, &from))
        return get(a, key, value);
    bool is_there = get(a, from, &from_value);
    return weir_attribute_lookup(a->domain, key, is_there ? &from_value : NULL, value);
}

/* False: the shape does not apply. */
static bool part_value(struct asking *a, const struct weir_shape_part *part, struct weir_str *value)
{
    if (part->is_fixed) {
        *value = part->fixed;
        return true;
    }
    if (attribute_value(a, part->key, value))
        return true;
    if (part->if_absent == WEIR_ABSENT_DENY)
        a->is_denied = true;
    *value = part->if_absent_value;
    return part->if_absent == WEIR_ABSENT_VALUE;
}

static bool is_late(const struct asking *a, const struct weir_shape *shape)
{
    for (uint32_t i = 0; i < shape->part_count; i++) {
        struct weir_str key = shape->parts[i].key;
        (void)weir_attribute_find(a->domain, key, &key);
        if (!shape->parts[i].is_fixed && a->http->is_late(a->http->ctx, key))
            return true;
    }
    return false;
}

/* Whether anything is late of what must be asked as one. */
static bool is_late_together(const struct asking *a)
{
    if (a->http->stage == WEIR_STAGE_ALL || !a->domain->is_together)
        return false;
    for (uint32_t i = 0; i < a->domain->shape_count; i++)
        if (is_late(a, &a->domain->shapes[i]))
            return true;
    return false;
}

static bool is_asked(const struct asking *a, const struct weir_shape *shape, bool are_all_late)
{
    if (a->http->stage == WEIR_STAGE_ALL)
        return true;
    return (are_all_late || is_late(a, shape)) == (a->http->stage == WEIR_STAGE_LATE);
}

/* The /64 of an address that only a bare key matches.  Written with its length, so that it is no
 * address any more and no network matches it when the descriptor is looked up. */
static bool cut_address(struct asking *a, struct weir_entry *entry)
{
    struct weir_address address;
    if (!weir_address_parse(&address, entry->value) || weir_address_is_ipv4(address))
        return true;
    if (a->address_count == a->room->address_max)
        return false;
    char *text = a->room->addresses[a->address_count++];
    struct weir_address net = weir_address_mask(address, IPV6_PREFIX);
    entry->value.len = weir_address_print(text, net, IPV6_PREFIX);
    entry->value.ptr = text;
    return true;
}

static bool may_be_ipv6(const struct weir_entry *entry)
{
    return weir_str_eq(entry->key, WEIR_STR("remote_address")) && entry->value.len > 0 &&
           memchr(entry->value.ptr, ':', entry->value.len);
}

/* Whether there is anything to cut: looked at first, since most clients have IPv4. */
static bool may_be_cut(const struct weir_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (may_be_ipv6(&entries[i]))
            return true;
    return false;
}

/* Where a remote_address meets a bare key without prefixes of its own, it is counted by its /64. */
static bool cut_addresses(struct asking *a, struct weir_entry *entries, uint32_t count)
{
    const struct weir_rules *rules = a->domain->rules;
    struct weir_dict_slot at = a->domain->root;
    for (uint32_t i = 0; i < count; i++) {
        at = weir_match_child(rules, at, &entries[i]);
        if (at.hash == 0)
            return true;
        const struct weir_node *node = &rules->nodes[weir_slot_node(rules, &at)];
        bool is_bare = node->text_len == node->key_len && !node->is_cut;
        if (is_bare && weir_str_eq(entries[i].key, WEIR_STR("remote_address")) &&
            !cut_address(a, &entries[i]))
            return false;
    }
    return true;
}

/* False: no room. */
static bool describe(struct asking *a, const struct weir_shape *shape)
{
    struct weir_shape_room *room = a->room;
    if (a->descriptor_count == room->descriptor_max ||
        shape->part_count > room->entry_max - a->entry_count)
        return false;
    struct weir_entry *entries = &room->entries[a->entry_count];
    for (uint32_t i = 0; i < shape->part_count; i++) {
        entries[i].key = shape->parts[i].key;
        if (!part_value(a, &shape->parts[i], &entries[i].value))
            return true;
    }
    if (may_be_cut(entries, shape->part_count) && !cut_addresses(a, entries, shape->part_count))
        return false;
    a->entry_count += shape->part_count;
    room->descriptors[a->descriptor_count++] =
        (struct weir_descriptor){.entries = entries, .entry_count = shape->part_count};
    return true;
}

int weir_shapes_describe(const struct weir_domain *domain, const struct weir_http *http,
                         struct weir_shape_room *room, uint32_t *descriptor_count, bool *is_denied)
{
    struct asking a = {.domain = domain, .http = http, .room = room};
    if (domain->has_too_many_shapes)
        return WEIR_ERR_TOO_LARGE;
    bool are_all_late = is_late_together(&a);
    for (uint32_t i = 0; i < domain->shape_count && !a.err; i++) {
        const struct weir_shape *shape = &domain->shapes[i];
        if (is_asked(&a, shape, are_all_late) && !describe(&a, shape))
            return WEIR_ERR_TOO_LARGE;
    }
    if (a.err)
        return a.err;
    *descriptor_count = a.descriptor_count;
    *is_denied = a.is_denied;
    return 0;
}
