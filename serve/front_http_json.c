/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/front_http.h"

#include "base/str.h"
#include "engine/publish.h"
#include "proto/rls_json.h"
#include "serve/envoy.h"

#include <stdlib.h>

#define WHY_LEN 200
/* Names of limits and metadata are the operator's, and may be long: an answer grows up to this. */
#define ANSWER_MAX (4u << 20)

/* As the Go service says it, and why in a header, where no client of its looks. */
static void refuse(struct weir_front_http *front, const struct weir_http1_request *request,
                   int status, const char *why)
{
    char lines[WHY_LEN + 100], body[64];
    struct weir_text lines_text = weir_text_in(lines, sizeof(lines));
    struct weir_text body_text = weir_text_in(body, sizeof(body));
    WEIR_TEXT_PUT(&lines_text, "X-Content-Type-Options: nosniff\r\nX-Weir-Reason: ");
    weir_text_put_printable(&lines_text, weir_str_of(why));
    WEIR_TEXT_PUT(&lines_text, "\r\n");
    weir_text_put(&body_text, weir_http1_reason(status));
    WEIR_TEXT_PUT(&body_text, "\n");
    struct weir_http1_answer told = {
        .status = status,
        .content_type = WEIR_STR("text/plain; charset=utf-8"),
        .lines = {.ptr = lines, .len = weir_text_len(&lines_text)},
        .body = {.ptr = body, .len = weir_text_len(&body_text)},
    };
    weir_worker_add(front->http.worker, WEIR_FRONT_HTTP, WEIR_FRONT_COUNT_BAD, 1);
    weir_http_conn_answer(&front->http, request, &told);
}

static void send(struct weir_front_http *front, const struct weir_http1_request *request,
                 const struct weir_decision *decision, struct weir_str body)
{
    struct weir_http1_answer told = {
        .status = decision->overall == WEIR_CODE_OVER_LIMIT ? 429 : 200,
        .content_type = WEIR_STR("application/json"),
        .body = body,
    };
    weir_http_conn_answer(&front->http, request, &told);
}

/* alloc: for answers that name limits at length, or tell metadata. */
static void answer(struct weir_front_http *front, const struct weir_http1_request *request,
                   const struct weir_request *asked, const struct weir_decision *decision)
{
    const struct weir_settings *settings = weir_service_settings(front->http.worker->service);
    const struct weir_rls_options options = {
        .has_headers = settings->response_headers,
        .limit_header = weir_str_of(settings->limit_header),
        .remaining_header = weir_str_of(settings->remaining_header),
        .reset_header = weir_str_of(settings->reset_header),
        .has_metadata = settings->dynamic_metadata,
    };
    char space[WEIR_RLS_JSON_ANSWER_LEN];
    struct weir_text text = weir_text_in(space, sizeof(space));
    char *large = NULL;
    weir_rls_json_write(&text, &options, asked, decision);
    if (text.has_overflowed) {
        large = malloc(ANSWER_MAX);
        text = weir_text_in(large, large ? ANSWER_MAX : 0);
        weir_rls_json_write(&text, &options, asked, decision);
    }
    if (text.has_overflowed)
        refuse(front, request, 500, "the answer is too long");
    else
        send(front, request, decision,
             (struct weir_str){.ptr = text.begin, .len = weir_text_len(&text)});
    free(large);
}

static void tell(struct weir_front_http *front, const struct weir_http1_request *request,
                 const struct weir_request *asked, struct weir_decision *decision)
{
    struct weir_worker *worker = front->http.worker;
    struct weir_envoy_sums sums = {0};
    weir_envoy_decided(&sums, decision, weir_service_settings(worker->service)->shadow_mode,
                       weir_loop_now(worker->loop));
    weir_envoy_count(&sums, worker, WEIR_FRONT_HTTP);
    answer(front, request, asked, decision);
}

/* Metadata are told of the request, which is read again for that. */
static void tell_with_body(struct weir_front_http *front, struct weir_decision *decision)
{
    struct weir_rls_json json; /* large, and mostly not touched */
    char why[WHY_LEN];
    if (weir_rls_json_parse(&json, weir_buf_str(&front->asked.body), why, sizeof(why)) == 0)
        tell(front, &front->asked.request, &json.request, decision);
    else /* it could not be kept */
        refuse(front, &front->asked.request, 503, "there is no memory for the answer");
    weir_rls_json_fini(&json);
    weir_buf_cut(&front->asked.body, 0);
}

static void on_decided(struct weir_waiter *waiter, struct weir_decision *decision)
{
    struct weir_front_http *front = weir_front_http_of(waiter);
    const struct weir_request nothing = {.descriptor_count = 0};
    if (weir_service_settings(front->http.worker->service)->dynamic_metadata)
        tell_with_body(front, decision);
    else
        tell(front, &front->asked.request, &nothing, decision);
    weir_front_http_done(front);
}

static int decide(struct weir_front_http *front, const struct weir_request *request,
                  struct weir_decision *out)
{
    struct weir_worker *worker = front->http.worker;
    uint64_t now_ns = weir_loop_now(worker->loop);
    if (worker->asks == NULL)
        return weir_check(worker->session, request, now_ns, out);
    weir_publish_hold(worker->session);
    front->waiter.done = on_decided;
    return weir_ask_start(worker->asks, request, now_ns, out, &front->waiter);
}

static int status_of(int err)
{
    if (err == WEIR_ERR_NO_RULES)
        return 503;
    return err == WEIR_ERR_TOO_LARGE ? 413 : 400;
}

void weir_front_http_json(struct weir_front_http *front, const struct weir_http1_request *request)
{
    struct weir_rls_json json; /* large, and mostly not touched */
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_decision decision = {.statuses = statuses};
    char why[WHY_LEN] = "";
    int err = weir_rls_json_parse(&json, request->body, why, sizeof(why));
    if (!err)
        err = decide(front, &json.request, &decision);
    if (err == WEIR_ASK_PENDING) {
        weir_front_http_wait(front, request);
        if (weir_service_settings(front->http.worker->service)->dynamic_metadata)
            weir_buf_add(&front->asked.body, request->body);
    } else if (err) {
        refuse(front, request, status_of(err), why[0] != '\0' ? why : weir_strerror(err));
    } else {
        tell(front, request, &json.request, &decision);
    }
    weir_rls_json_fini(&json);
}
