/* An HTTP request: described by its domain's shapes, decided, both in one version of the rules.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/http.h"

#include "engine/plan.h"
#include "engine/publish.h"
#include "rules/tree.h"

/* 0 with *out NULL: there are no rules at all. */
static int find_domain(const struct weir_rules *rules, struct weir_str name,
                       const struct weir_domain **out)
{
    *out = NULL;
    if (!rules || rules->domain_count == 0)
        return 0;
    if (!name.ptr) {
        *out = rules->domains;
        return rules->domain_count == 1 ? 0 : WEIR_ERR_DOMAIN_EMPTY;
    }
    *out = weir_rules_domain(rules, name);
    return *out ? 0 : WEIR_ERR_NOT_FOUND;
}

static void set_hits(struct weir_descriptor *descriptors, uint32_t count, uint64_t hits)
{
    for (uint32_t i = 0; i < count; i++) {
        descriptors[i].has_hits = true;
        descriptors[i].hits = hits;
    }
}

int weir_http_describe(struct weir_session *s, const struct weir_http *http,
                       struct weir_request *request, struct weir_decision *decision)
{
    struct weir_http_room *room = weir_http_room_of(s);
    struct weir_shape_room shapes = {
        .descriptors = room->descriptors,
        .entries = room->entries,
        .addresses = room->addresses,
        .descriptor_max = WEIR_DESCRIPTORS_MAX,
        .entry_max = WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX,
        .address_max = WEIR_DESCRIPTORS_MAX,
    };
    const struct weir_domain *domain;
    *decision = (struct weir_decision){.overall = WEIR_CODE_OK, .statuses = room->statuses};
    *request = (struct weir_request){.descriptors = room->descriptors};
    int err = find_domain(weir_publish_hold(s)->rules, http->domain, &domain);
    if (!err && domain)
        err = weir_shapes_describe(domain, http, &shapes, &request->descriptor_count,
                                   &decision->is_denied);
    if (err)
        return err;
    if (decision->is_denied) {
        decision->overall = WEIR_CODE_OVER_LIMIT;
        request->descriptor_count = 0;
    }
    if (request->descriptor_count > 0)
        request->domain = weir_domain_name(domain);
    if (http->has_hits)
        set_hits(room->descriptors, request->descriptor_count, http->hits);
    return 0;
}
