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
    for (uint32_t i = 0; i < wait->count; i++) {
        weir_ask_throttle_cancel(&wait->entries[i].throttle);
        weir_ask_forget_cancel(&wait->entries[i].forget);
    }
    weir_buf_fini(&wait->later);
    weir_buf_fini(&wait->behind);
    free(wait);
    session->wait = NULL;
}

/* ---- all are answered ---- */

/* Of a DEL the sum, told by the last of its keys. */
static void put_forgotten(struct weir_text *out, const struct weir_resp_entry *last)
{
    if (last->result == 0)
        weir_resp_put_int(out, last->cleared);
    else
        weir_resp_put_error(out,
                            WEIR_STR("ERR the store does not answer: keys may be there still"));
}

static void put_entry(struct weir_text *out, const struct weir_resp_entry *entry)
{
    if (entry->dialect == WEIR_RESP_NO_THROTTLE)
        put_forgotten(out, entry);
    else
        weir_resp_put_throttled(out, entry->dialect, entry->result, &entry->out);
}

/* Each key's answer to the next, so that the last knows all. */
static void sum_up(struct weir_resp_wait *wait)
{
    for (uint32_t i = 1; i < wait->count; i++) {
        const struct weir_resp_entry *before = &wait->entries[i - 1];
        struct weir_resp_entry *entry = &wait->entries[i];
        if (before->ends)
            continue;
        entry->cleared += before->cleared;
        entry->result = entry->result != 0 ? entry->result : before->result;
    }
}

static void send_all(struct weir_resp_wait *wait)
{
    struct weir_conn *conn = wait->session->conn;
    char buf[4096];
    struct weir_text out = weir_text_in(buf, sizeof(buf));
    const char *later = weir_buf_str(&wait->later).ptr;
    sum_up(wait);
    for (uint32_t i = 0; i < wait->count; i++) {
        const struct weir_resp_entry *entry = &wait->entries[i];
        if (entry->ends)
            put_entry(&out, entry);
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
    uint64_t decided = 0, refused = 0, bad = 0;
    for (uint32_t i = 0; i < wait->count; i++) {
        const struct weir_resp_entry *entry = &wait->entries[i];
        if (entry->dialect == WEIR_RESP_NO_THROTTLE)
            continue;
        bad += entry->result != 0;
        decided += entry->result == 0;
        refused += entry->result == 0 && !entry->out.allowed;
    }
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_REQUESTS, decided);
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

static void one_is_answered(struct weir_resp_wait *wait)
{
    if (--wait->left == 0 && !weir_resp_wait_flush(wait->session))
        go_on(wait);
}

static void on_decided(struct weir_throttle_waiter *waiter, const struct weir_throttled *out)
{
    struct weir_resp_entry *entry = (struct weir_resp_entry *)waiter; /* its first member */
    entry->out = *out;
    one_is_answered(entry->wait);
}

static void on_forgotten(struct weir_forget_waiter *waiter, int err, uint32_t cleared)
{
    struct weir_resp_entry *entry =
        (struct weir_resp_entry *)((char *)waiter - offsetof(struct weir_resp_entry, forget));
    entry->result = err;
    entry->cleared = cleared;
    one_is_answered(entry->wait);
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
            .throttle = {.done = on_decided}, .wait = wait, .dialect = dialects[i], .ends = true};
        int result = weir_ask_throttle(session->worker->asks, &throttles[i], now_ns, &entry->out,
                                       &entry->throttle);
        wait->left += result == WEIR_ASK_PENDING;
        entry->result = result < 0 ? result : 0;
    }
    return true;
}

bool weir_resp_wait_forget(struct weir_resp_session *session, const struct weir_str *keys,
                           uint32_t count)
{
    struct weir_resp_wait *wait = wait_of(session);
    if (wait == NULL)
        return false;
    WEIR_ASSERT(wait->count < WEIR_RESP_WAIT_MAX && count < WEIR_RESP_ARGS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_resp_entry *entry = &wait->entries[wait->count++];
        *entry = (struct weir_resp_entry){
            .forget = {.done = on_forgotten}, .wait = wait, .ends = i + 1 == count};
        int result = weir_ask_forget_throttle(session->worker->asks, keys[i], &entry->forget);
        wait->left += result == WEIR_ASK_PENDING;
        entry->result = result < 0 && result != WEIR_ERR_TOO_LARGE ? result : 0; /* no such key */
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
