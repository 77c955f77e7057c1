/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_decide.h"

#include "base/str.h"
#include "engine/http.h"

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

static int ask_store(struct weir_worker *worker, const struct weir_http *http, uint64_t now_ns,
                     struct weir_decision *out, struct weir_waiter *waiter)
{
    struct weir_request request;
    int err = weir_http_describe(worker->session, http, &request, out);
    if (err == 0 && request.descriptor_count > 0)
        err = weir_ask_start(worker->asks, &request, now_ns, out, waiter);
    return err;
}

int weir_http_decide(struct weir_http_question *q, struct weir_worker *worker, struct weir_str name,
                     struct weir_waiter *waiter, const char **why)
{
    struct weir_str told = q->http.options->domain;
    struct weir_http http = {.attribute = weir_http_request_attribute, .ctx = &q->http};
    uint64_t now_ns = weir_loop_now(worker->loop);
    if (name.ptr)
        http.domain = name;
    else if (told.len > 0)
        http.domain = told;
    int err = worker->asks != NULL ? ask_store(worker, &http, now_ns, &q->decision, waiter)
                                   : weir_check_http(worker->session, &http, now_ns, &q->decision);
    if (err < 0)
        *why = words_of(err);
    return err;
}
