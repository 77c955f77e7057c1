/* admin_state.c - what is left of a key's limits: /api/v1/key and /api/v1/explain.
 *
 *     GET    /api/v1/key ?domain=D&KEY=VALUE...     what is left
 *     DELETE /api/v1/key ?domain=D&KEY=VALUE...     forgets what was used
 *     POST   /api/v1/explain                        a request as for /json: what is left
 *
 * A key is asked about as a request would name it, by domain and entries; what is looked up is the
 * counters that such a request would meet.  Looking takes nothing and counts nothing.
 *
 * Counters in the store are looked up there, and the answer comes later.  Nobody speaks for a store
 * that does not answer: then it is 503, whatever on_store_error says.
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "engine/publish.h"
#include "proto/rls_json.h"
#include "serve/admin_key.h"
#include "serve/ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WHY_LEN 256
#define PEER_LEN 48

/* One that may have to wait.  alloc: a key as it is read is large, and this is rare. */
struct question {
    struct weir_admin_late late; /* first: who leaves has this */
    struct weir_waiter look;
    struct weir_forget_waiter reset;
    struct weir_admin_key key;
    char peer[PEER_LEN];
};

static struct question *new_question(struct weir_admin_call *call)
{
    struct question *q = calloc(1, sizeof(*q));
    if (q == NULL) {
        weir_admin_say_error(call, WEIR_ERR_NOMEM);
        return NULL;
    }
    snprintf(q->peer, sizeof(q->peer), "%s", call->peer);
    q->late.told = (struct weir_admin_call){
        .worker = call->worker, .peer = q->peer, .status = 200, .content_type = WEIR_ADMIN_JSON};
    weir_buf_init(&q->late.told.body, WEIR_ADMIN_BODY_MAX);
    return q;
}

static void free_question(struct question *q)
{
    weir_buf_fini(&q->late.told.body);
    free(q);
}

/* What was asked for is done all the same, and so told. */
static void leave(struct weir_admin_late *late)
{
    struct question *q = (struct question *)late; /* its first member */
    if (q->reset.ask != NULL)
        weir_admin_note(&late->told, "reset", &q->key, NULL, "asked for, not waited for");
    weir_ask_cancel(&q->look);
    weir_ask_forget_cancel(&q->reset);
    free_question(q);
}

static void answer_late(struct question *q)
{
    weir_admin_late_answer(&q->late);
    free_question(q);
}

static void wait_for(struct weir_admin_call *call, struct question *q)
{
    q->late.leave = leave;
    call->late = &q->late;
}

/* ---- words ---- */

static void put_status(struct weir_buf *to, const struct weir_status *status)
{
    weir_admin_add(to, "{\"limited\":%s", status->is_limited ? "true" : "false");
    if (status->rule != NULL) {
        weir_admin_add(to, ",\"rule\":");
        weir_admin_add_json(to, status->rule->id);
    }
    if (status->is_unlimited)
        weir_admin_add(to, ",\"unlimited\":true");
    if (status->is_quota)
        weir_admin_add(to, ",\"quota_mode\":true");
    if (status->is_limited)
        weir_admin_add(
            to, ",\"limit\":%" PRIu64 ",\"remaining\":%" PRIu64 ",\"reset_after_ms\":%" PRIu64,
            status->limit, status->remaining, (status->reset_after_ns + 999999) / 1000000);
    weir_buf_add_char(to, '}');
}

static void put_decision(struct weir_admin_call *call, const struct weir_decision *decision)
{
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"descriptors\":[");
    for (uint32_t i = 0; i < decision->status_count; i++) {
        if (i > 0)
            weir_buf_add_char(&call->body, ',');
        put_status(&call->body, &decision->statuses[i]);
    }
    weir_admin_add(&call->body, "]}\n");
}

static void put_cleared(struct weir_admin_call *call, const struct weir_admin_key *key,
                        uint32_t cleared)
{
    char count[32];
    snprintf(count, sizeof(count), "%" PRIu32 " cleared", cleared);
    weir_admin_note(call, "reset", key, NULL, count);
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"cleared\":%" PRIu32 "}\n", cleared);
}

static void say_error(struct weir_admin_call *call, int err)
{
    if (err == WEIR_ERR_STORE_AWAY || err == WEIR_ERR_STORE_LATE || err == WEIR_ERR_STORE)
        weir_admin_say(call, 503, "503 the store does not answer\n");
    else
        weir_admin_say_error(call, err);
}

/* ---- looking ---- */

static void on_look(struct weir_waiter *waiter, struct weir_decision *decision)
{
    struct question *q = (struct question *)((char *)waiter - offsetof(struct question, look));
    if (decision != NULL)
        put_decision(&q->late.told, decision);
    else
        say_error(&q->late.told, WEIR_ERR_STORE_AWAY);
    answer_late(q);
}

/* descriptors: ours to change.  True: the question waits. */
static bool look(struct weir_admin_call *call, struct question *q,
                 const struct weir_request *request, struct weir_descriptor *descriptors)
{
    struct weir_worker *worker = call->worker;
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_decision decision = {.statuses = statuses};
    uint64_t now_ns = weir_loop_now(worker->loop);
    int err;
    weir_admin_no_hits(request, descriptors);
    q->look.done = on_look;
    weir_publish_hold(worker->session);
    if (worker->asks != NULL)
        err = weir_ask_look(worker->asks, request, now_ns, &decision, &q->look);
    else
        err = weir_check_held(worker->session, request, now_ns, &decision);
    if (err == WEIR_ASK_PENDING)
        wait_for(call, q);
    else if (err != 0)
        say_error(call, err);
    else
        put_decision(call, &decision);
    return err == WEIR_ASK_PENDING;
}

void weir_admin_explain(struct weir_admin_call *call)
{
    char why[WHY_LEN] = "";
    struct weir_rls_json *json = malloc(sizeof(*json)); /* alloc: large, and this is rare */
    struct question *q = json != NULL ? new_question(call) : NULL;
    bool waits = false;
    if (json == NULL)
        weir_admin_say_error(call, WEIR_ERR_NOMEM);
    if (q != NULL) {
        if (weir_rls_json_parse(json, call->request->body, why, sizeof(why)) != 0)
            weir_admin_say(call, 400, why);
        else
            waits = look(call, q, &json->request, json->descriptors);
        weir_rls_json_fini(json);
    }
    if (q != NULL && !waits)
        free_question(q);
    free(json);
}

/* ---- forgetting ---- */

static void on_reset(struct weir_forget_waiter *waiter, int err, uint32_t cleared)
{
    struct question *q = (struct question *)((char *)waiter - offsetof(struct question, reset));
    if (err == 0)
        put_cleared(&q->late.told, &q->key, cleared);
    else
        say_error(&q->late.told, err);
    answer_late(q);
}

/* True: the question waits. */
static bool reset(struct weir_admin_call *call, struct question *q)
{
    struct weir_worker *worker = call->worker;
    uint32_t cleared = 0;
    int err;
    weir_admin_no_hits(&q->key.request, &q->key.descriptor);
    q->reset.done = on_reset;
    if (worker->asks != NULL)
        err = weir_ask_forget(worker->asks, &q->key.request, weir_loop_now(worker->loop), &cleared,
                              &q->reset);
    else
        err = weir_reset(worker->session, &q->key.request, &cleared);
    if (err == WEIR_ASK_PENDING)
        wait_for(call, q);
    else if (err != 0)
        say_error(call, err);
    else
        put_cleared(call, &q->key, cleared);
    return err == WEIR_ASK_PENDING;
}

void weir_admin_state(struct weir_admin_call *call)
{
    struct question *q = new_question(call);
    bool waits = false;
    if (q == NULL)
        return;
    if (weir_admin_key_read(call, &q->key))
        waits = weir_admin_is_method(call, "DELETE")
                    ? reset(call, q)
                    : look(call, q, &q->key.request, &q->key.descriptor);
    if (!waits)
        free_question(q);
}
