/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_decide.h"

#include "base/str.h"

static const char *words_of(int err)
{
    switch (err) {
    case WEIR_ERR_DOMAIN_EMPTY:
        return "the rules have several domains: name one with ?domain=, or set check_domain\n";
    case WEIR_ERR_NOT_FOUND:
        return "the rules have no such domain\n";
    case WEIR_ERR_INVALID:
        return "a header of the gateway's comes twice, or the query is too long\n";
    default:
        return "a value of the request is over a maximum, or the domain has more shapes than one "
               "request can be asked for\n";
    }
}

int weir_http_decide(struct weir_http_question *q, struct weir_session *session,
                     struct weir_str name, uint64_t now_ns, const char **why)
{
    struct weir_str told = q->http.options->domain;
    struct weir_http http = {.attribute = weir_http_request_attribute, .ctx = &q->http};
    if (name.ptr)
        http.domain = name;
    else if (told.len > 0)
        http.domain = told;
    int err = weir_check_http(session, &http, now_ns, &q->decision);
    if (err)
        *why = words_of(err);
    return err;
}
