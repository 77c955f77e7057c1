/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/front_http.h"

#include "base/str.h"
#include "proto/pairs.h"
#include "proto/uri.h"
#include "serve/hold.h"
#include "serve/http_decide.h"

#define NS_PER_MS UINT64_C(1000000)

/* What the gateway's operator wrote behind "/check?". */
struct wishes {
    struct weir_str domain; /* ptr is NULL: none named */
    char domain_text[WEIR_DOMAIN_LEN_MAX];
    int deny_status;
    bool holds; /* an answer waits as long as the request should */
};

/* ---- what is wished ---- */

static bool read_status(struct weir_str text, int *out)
{
    int status = 0;
    for (size_t i = 0; i < text.len && i < 3; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        status = status * 10 + text.ptr[i] - '0';
    }
    *out = status;
    return text.len == 3 && status >= 400 && status <= 599;
}

/* NULL, or what is wrong. */
static const char *read_wishes(struct wishes *out, struct weir_str rest)
{
    struct weir_str query = {.ptr = rest.ptr + 1, .len = rest.len > 0 ? rest.len - 1 : 0};
    struct weir_str value;
    out->domain = (struct weir_str){.ptr = NULL};
    out->deny_status = 429;
    out->holds = false;
    /* Below /check the query is the original request's, and so its client's. */
    if (rest.len == 0 || rest.ptr[0] != '?')
        return NULL;
    if (weir_query_find(query, WEIR_STR("domain"), &value)) {
        if (value.len > sizeof(out->domain_text))
            return "domain= is too long\n";
        out->domain = (struct weir_str){.ptr = out->domain_text,
                                        .len = weir_uri_decode(value, out->domain_text)};
    }
    if (weir_query_find(query, WEIR_STR("deny_status"), &value) &&
        !read_status(value, &out->deny_status))
        return "deny_status= must be a number from 400 to 599\n";
    if (weir_query_find(query, WEIR_STR("hold"), &value)) {
        out->holds = weir_str_eq(value, WEIR_STR("1"));
        if (!out->holds && !weir_str_eq(value, WEIR_STR("0")))
            return "hold= must be 0 or 1\n";
    }
    return NULL;
}

/* ---- answering ---- */

static void answer_denied(struct weir_front_http *front, const struct weir_http1_request *request,
                          int status)
{
    struct weir_http1_answer answer = {
        .status = status,
        .content_type = WEIR_STR("text/plain; charset=utf-8"),
        .lines = WEIR_STR("Cache-Control: no-store\r\n"),
        .body = WEIR_STR("An attribute is missing that the rules ask for\n"),
    };
    weir_http_conn_answer(&front->http, request, &answer);
}

static void answer(struct weir_front_http *front, const struct weir_http1_request *request,
                   const struct weir_decision *decision, int deny_status)
{
    char lines[WEIR_HEADERS_LEN_MAX], body[WEIR_HEADERS_LEN_MAX];
    struct weir_text lines_text = weir_text_in(lines, sizeof(lines));
    struct weir_text body_text = weir_text_in(body, sizeof(body));
    struct weir_http1_answer told = {.status = 200};
    weir_headers_write(&lines_text, front->options->dialects, decision,
                       weir_loop_now(front->http.worker->loop));
    told.lines = (struct weir_str){.ptr = lines, .len = weir_text_len(&lines_text)};
    if (decision->overall == WEIR_CODE_OVER_LIMIT) {
        told.status = deny_status;
        told.content_type =
            weir_headers_refusal(&body_text, front->options->body, told.status, decision);
        if (body_text.has_overflowed) { /* names that nobody gives: then without them */
            body_text = weir_text_in(body, sizeof(body));
            told.content_type =
                weir_headers_refusal(&body_text, WEIR_REFUSAL_PLAIN, told.status, decision);
        }
        told.body = (struct weir_str){.ptr = body, .len = weir_text_len(&body_text)};
    }
    weir_http_conn_answer(&front->http, request, &told);
}

/* ---- holding ---- */

/* It cannot wait here: its place is given back, and it is refused until the wait is one that we
 * would hold it for. */
static void turn_away(struct weir_front_http *front, struct weir_decision *decision,
                      uint64_t most_ns)
{
    uint64_t now_ns = weir_loop_now(front->http.worker->loop);
    decision->overall = WEIR_CODE_OVER_LIMIT;
    if (front->http.worker->asks != NULL)
        weir_ask_forfeit(front->http.worker->asks);
    for (uint32_t i = 0; i < decision->status_count; i++) {
        struct weir_status *status = &decision->statuses[i];
        weir_release(front->http.worker->session, &status->ticket, now_ns);
        if (status->delay_ns == 0)
            continue;
        status->code = WEIR_CODE_OVER_LIMIT;
        status->retry_after_ns = status->delay_ns > most_ns ? status->delay_ns - most_ns : 1;
        status->remaining = 0;
    }
}

/* Whether the answer waits now; else the decision says what to answer at once. */
static bool hold(struct weir_front_http *front, const struct weir_http1_request *request,
                 struct weir_decision *decision)
{
    const struct weir_settings *settings = weir_service_settings(front->http.worker->service);
    uint64_t delay_ns = weir_delay_ns(decision), most_ns = settings->hold_max * NS_PER_MS;
    char lines[WEIR_HEADERS_LEN_MAX];
    struct weir_text text = weir_text_in(lines, sizeof(lines));
    if (delay_ns == 0)
        return false;
    weir_headers_write(&text, front->options->dialects, decision,
                       weir_loop_now(front->http.worker->loop));
    struct weir_http1_answer told = {.status = 200,
                                     .lines = {.ptr = lines, .len = weir_text_len(&text)}};
    if (delay_ns > most_ns)
        weir_holds_note_too_long(front->http.worker->holds);
    else if (!front->http.is_draining &&
             weir_front_http_hold(front, request, &told, decision, delay_ns))
        return true;
    turn_away(front, decision, most_ns);
    return false;
}

/* Tells what was decided, or holds it. */
static void tell(struct weir_front_http *front, const struct weir_http1_request *request,
                 struct weir_decision *decision, int deny_status, bool holds)
{
    struct weir_worker *worker = front->http.worker;
    bool waits = holds && hold(front, request, decision);
    bool is_refused = decision->overall == WEIR_CODE_OVER_LIMIT;
    weir_worker_add(worker, WEIR_FRONT_HTTP, WEIR_FRONT_COUNT_REQUESTS, 1);
    weir_worker_add(worker, WEIR_FRONT_HTTP, WEIR_FRONT_COUNT_OVER_LIMIT, is_refused);
    if (waits)
        return;
    if (decision->is_denied)
        answer_denied(front, request, deny_status);
    else
        answer(front, request, decision, deny_status);
}

static void on_decided(struct weir_waiter *waiter, struct weir_decision *decision)
{
    struct weir_front_http *front = weir_front_http_of(waiter);
    const struct weir_front_asked *asked = &front->asked;
    tell(front, &asked->request, decision, asked->deny_status, asked->holds);
    weir_front_http_done(front);
}

void weir_front_http_check(struct weir_front_http *front, const struct weir_http1_request *request,
                           struct weir_str rest)
{
    struct wishes wishes;
    struct weir_http_question q;
    bool is_below = rest.len > 0 && rest.ptr[0] == '/';
    const char *why = read_wishes(&wishes, rest);
    int err = why ? WEIR_ERR_INVALID : 0;
    if (!err)
        err = weir_http_request_read(&q.http, request, is_below ? rest : WEIR_STR(""), &front->peer,
                                     front->options, &why);
    front->waiter.done = on_decided;
    if (!err)
        err = weir_http_decide(&q, front->http.worker, wishes.domain, &front->waiter, &why);
    if (err == WEIR_ASK_PENDING) {
        front->asked.deny_status = wishes.deny_status;
        front->asked.holds = wishes.holds;
        weir_front_http_wait(front, request);
    } else if (err) {
        weir_worker_add(front->http.worker, WEIR_FRONT_HTTP, WEIR_FRONT_COUNT_BAD, 1);
        weir_http_conn_say(&front->http, request, 400, weir_str_of(why));
    } else {
        tell(front, request, &q.decision, wishes.deny_status, wishes.holds);
    }
}
