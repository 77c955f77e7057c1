/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_decide.h"

#include "base/str.h"
#include "engine/publish.h"
#include "rules/shapes.h"
#include "rules/tree.h"

/* NULL: *why says why not, or is NULL where there are no rules at all. */
static const struct weir_domain *find_domain(const struct weir_rules *rules,
                                             const struct weir_http_options *options,
                                             struct weir_str wished, const char **why)
{
    *why = NULL;
    if (!rules || rules->domain_count == 0)
        return NULL;
    struct weir_str name = wished.ptr ? wished : options->domain;
    if (!wished.ptr && name.len == 0) {
        if (rules->domain_count == 1)
            return &rules->domains[0];
        *why = "the rules have several domains: name one with ?domain=, or set check_domain\n";
        return NULL;
    }
    const struct weir_domain *domain = weir_rules_domain(rules, name);
    if (!domain)
        *why = "the rules have no such domain\n";
    return domain;
}

int weir_http_decide(struct weir_http_question *q, struct weir_session *session,
                     struct weir_str name, uint64_t now_ns, const char **why)
{
    uint32_t count = 0;
    const struct weir_published *published = weir_publish_hold(session);
    const struct weir_domain *domain = find_domain(published->rules, q->http.options, name, why);
    struct weir_shape_room room = {
        .descriptors = q->descriptors,
        .entries = q->entries,
        .addresses = q->addresses,
        .descriptor_max = WEIR_DESCRIPTORS_MAX,
        .entry_max = WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX,
        .address_max = WEIR_DESCRIPTORS_MAX,
    };
    q->decision = (struct weir_decision){.overall = WEIR_CODE_OK, .statuses = q->statuses};
    q->is_denied = false;
    if (!domain)
        return *why ? WEIR_ERR_INVALID : 0;
    int err = weir_shapes_describe(domain, weir_http_request_attribute, &q->http, &room, &count,
                                   &q->is_denied);
    if (err || q->http.has_failed) {
        *why = q->http.has_failed
                   ? "a header of the gateway's comes twice, or the query is too long\n"
                   : "the domain has more shapes than one request can be asked for\n";
        return WEIR_ERR_INVALID;
    }
    if (q->is_denied || count == 0)
        return 0;
    struct weir_request request = {
        .domain = weir_domain_name(domain),
        .descriptors = q->descriptors,
        .descriptor_count = count,
    };
    err = weir_check_held(session, &request, now_ns, &q->decision);
    if (err)
        *why = "a value of the request is over a maximum\n";
    return err;
}
