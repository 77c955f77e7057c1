/* shapes.h - what an HTTP request is asked for, so that nobody has to write a mapping.
 *
 * Every chain of keys in a domain's tree that ends in a limit is a shape (`path > user`).  A front
 * end that sees an HTTP request gives a function that looks up attributes by name; for each shape
 * whose attributes the request has, one descriptor is made, in the order of the file:
 *
 *     shape           attributes                     descriptor
 *     generic_key     always there: the rule's own   [generic_key=all]
 *     path > user     path=/v1/orders  user=ann      [path=/v1/orders, user=ann]
 *     tier > user     user=ann, tier from a map      [tier=gold, user=ann]
 *
 * A front end that learns some attributes late (the user, once authenticated) asks in two stages:
 * first the shapes that need none of these, then the others.  What belongs together - a domain that
 * is atomic, rules that replace others - is asked as one, late if any of it is.
 *
 * A missing attribute drops its shapes, unless the rule says `if_absent`.  A generic_key has a
 * shape for each value that the rules name.  IPv6 addresses are counted by their /64 where no rule
 * says otherwise: here, and not in the tree, because a descriptor that comes over RLS must be
 * counted as it is sent.
 *
 * Purity: no I/O, no allocation once loaded.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_SHAPES_H
#define WEIR_RULES_SHAPES_H

#include "rules/address.h"
#include "rules/rules.h"

enum weir_absent { WEIR_ABSENT_DROP, WEIR_ABSENT_DENY, WEIR_ABSENT_VALUE };

/* One key of a chain. */
struct weir_shape_part {
    struct weir_str key;
    struct weir_str fixed; /* generic_key: the value that the rule names */
    bool is_fixed;
    enum weir_absent if_absent;
    struct weir_str if_absent_value;
};

struct weir_shape {
    struct weir_shape_part *parts;
    uint32_t part_count;
};

/* The shapes of a domain, in the order of the file.  More than WEIR_SHAPES_MAX: a warning at load,
 * and weir_shapes_describe() refuses, for no limit may be forgotten silently. */
uint32_t weir_shapes_count(const struct weir_domain *domain);
const struct weir_shape *weir_shapes_at(const struct weir_domain *domain, uint32_t index);

/* `attributes:` of the domain: the value that stands for from_value, or the default.  *from
 * receives the name of the attribute that it is looked up by.  find() is false where there is no
 * such attribute, lookup() where it has no value. */
bool weir_attribute_find(const struct weir_domain *domain, struct weir_str name,
                         struct weir_str *from);
bool weir_attribute_lookup(const struct weir_domain *domain, struct weir_str name,
                           const struct weir_str *from_value, struct weir_str *value);

/* Memory of the caller for what a request becomes. */
struct weir_shape_room {
    struct weir_descriptor *descriptors;
    struct weir_entry *entries;
    char (*addresses)[WEIR_ADDRESS_TEXT_MAX]; /* texts of addresses that were cut */
    uint32_t descriptor_max, entry_max, address_max;
};

/* Makes the descriptors, of the shapes that http's stage asks; values last as long as its lookup
 * says.  *is_denied: an attribute is missing whose rule says `if_absent: deny`.  0,
 * WEIR_ERR_TOO_LARGE where the room does not suffice or the domain has too many shapes, or what the
 * lookup returned. */
WEIR_MUST_CHECK int weir_shapes_describe(const struct weir_domain *domain,
                                         const struct weir_http *http, struct weir_shape_room *room,
                                         uint32_t *descriptor_count, bool *is_denied);

#endif
