/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/resp_wait.h"

#include "base/err.h"

#include <stdlib.h>

#define LATER_MAX (1u << 20)
#define BEHIND_MAX (1u << 20) /* more than one read brings, through TLS too */

/* alloc: once for each connection that needs it. */
static struct weir_resp_wait *wait_of(struct weir_resp_session *session)
{
    if (session->wait != NULL)
        return session->wait;
    struct weir_resp_wait *wait = calloc(1, sizeof(*wait));
    if (wait == NULL)
        return NULL;
    wait->session = session;
    weir_buf_init(&wait->later, LATER_MAX);
    weir_buf_init(&wait->behind, BEHIND_MAX);
    wait->later.budget = wait->behind.budget = &session->worker->budget;
    session->wait = wait;
    return wait;
}

void weir_resp_wait_free(struct weir_resp_session *session)
{
    struct weir_resp_wait *wait = session->wait;
    if (wait == NULL)
        return;
    for (uint32_t i = 0; i < wait->count; i++)
        weir_ask_throttle_cancel(&wait->entries[i].waiter);
    weir_buf_fini(&wait->later);
    weir_buf_fini(&wait->behind);
    free(wait);
    session->wait = NULL;
}

/* ---- all are answered ---- */

static void send_all(struct weir_resp_wait *wait)
{
    struct weir_conn *conn = wait->session->conn;
    char buf[4096];
    struct weir_text out = weir_text_in(buf, sizeof(buf));
    const char *later = weir_buf_str(&wait->later).ptr;
    for (uint32_t i = 0; i < wait->count; i++) {
        const struct weir_resp_entry *entry = &wait->entries[i];
        weir_resp_put_throttled(&out, entry->dialect, entry->result, &entry->out);
        if (entry->after == 0 && (size_t)(out.end - out.at) >= WEIR_RESP_THROTTLED_MAX)
            continue;
        weir_conn_send(conn, buf, weir_text_len(&out));
        weir_conn_send(conn, later, entry->after);
        out = weir_text_in(buf, sizeof(buf));
        later += entry->after;
    }
    weir_conn_send(conn, buf, weir_text_len(&out));
}

static void count_all(const struct weir_resp_wait *wait)
{
    struct weir_worker *worker = wait->session->worker;
    uint64_t refused = 0, bad = 0;
    for (uint32_t i = 0; i < wait->count; i++) {
        bad += wait->entries[i].result != 0;
        refused += wait->entries[i].result == 0 && !wait->entries[i].out.allowed;
    }
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_REQUESTS, wait->count - bad);
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_OVER_LIMIT, refused);
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_BAD, bad);
}

bool weir_resp_wait_flush(struct weir_resp_session *session)
{
    struct weir_resp_wait *wait = session->wait;
    if (wait == NULL || wait->count == 0)
        return false;
    if (wait->left > 0)
        return true;
    count_all(wait);
    send_all(wait);
    if (wait->later.has_failed || wait->behind.has_failed)
        weir_conn_finish(session->conn); /* no memory: a client must not be answered in part */
    wait->count = 0;
    weir_buf_cut(&wait->later, 0);
    return false;
}

/* Reads on, where it was left off. */
static void go_on(struct weir_resp_wait *wait)
{
    struct weir_resp_session *session = wait->session;
    struct weir_buf behind = wait->behind;
    weir_buf_init(&wait->behind, behind.len_max);
    wait->behind.budget = behind.budget;
    weir_conn_deafen(session->conn, false);
    if (session->is_ending ||
        (behind.len > 0 &&
         weir_front_resp_feed(session, (const uint8_t *)behind.ptr, behind.len) != 0))
        weir_conn_finish(session->conn);
    weir_buf_fini(&behind);
}

static void on_decided(struct weir_throttle_waiter *waiter, const struct weir_throttled *out)
{
    struct weir_resp_entry *entry = (struct weir_resp_entry *)waiter; /* its first member */
    struct weir_resp_wait *wait = entry->wait;
    entry->out = *out;
    if (--wait->left == 0 && !weir_resp_wait_flush(wait->session))
        go_on(wait);
}

/* ---- while they wait ---- */

bool weir_resp_wait_ask(struct weir_resp_session *session, const struct weir_throttle *throttles,
                        const enum weir_resp_dialect *dialects, size_t count)
{
    struct weir_resp_wait *wait = wait_of(session);
    uint64_t now_ns = weir_loop_now(session->worker->loop);
    if (wait == NULL)
        return false;
    WEIR_ASSERT(count <= weir_resp_wait_room(session));
    for (size_t i = 0; i < count; i++) {
        struct weir_resp_entry *entry = &wait->entries[wait->count++];
        *entry = (struct weir_resp_entry){
            .waiter = {.done = on_decided}, .wait = wait, .dialect = dialects[i]};
        int result = weir_ask_throttle(session->worker->asks, &throttles[i], now_ns, &entry->out,
                                       &entry->waiter);
        wait->left += result == WEIR_ASK_PENDING;
        entry->result = result < 0 ? result : 0;
    }
    return true;
}

void weir_resp_wait_later(struct weir_resp_session *session, struct weir_str bytes)
{
    struct weir_resp_wait *wait = session->wait;
    weir_buf_add(&wait->later, bytes);
    wait->entries[wait->count - 1].after += bytes.len;
}

void weir_resp_wait_behind(struct weir_resp_session *session)
{
    struct weir_resp *resp = &session->resp;
    weir_buf_add(&session->wait->behind,
                 (struct weir_str){.ptr = resp->at, .len = (size_t)(resp->end - resp->at)});
    resp->at = resp->end;
    weir_conn_deafen(session->conn, true);
}
