/* front_desk.c - questions of processes on the same table: nginx with our module (proto/desk.h).
 *
 *     feed   bytes -> frames -> decided at once: answered
 *                            -> the store is asked: waits in the connection's list, then answered
 *
 * Answers come in any order, each with the id of its question.  All that a turn answers leaves in
 * one write.  A connection that is gone cancels what waits; places that are taken all the same are
 * given back.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/publish.h"
#include "proto/desk.h"
#include "serve/ask.h"
#include "serve/service.h"
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (1u << 20) /* bytes of what a decision's tickets are named by */

/* A question that waits for the store. */
struct question {
    struct weir_waiter waiter;
    struct weir_renew_waiter renew;
    struct desk *desk;
    uint64_t id;
    struct question *before, *next;
};

/* A connection. */
struct desk {
    struct weir_conn *conn;
    struct weir_worker *worker;
    bool has_greeted, is_draining;
    struct weir_buf in, out, names;
    struct question *first; /* that waits */
    struct weir_desk_room room;
};

/* ---- answers ---- */

static void send_out(struct desk *desk)
{
    weir_conn_send(desk->conn, weir_buf_str(&desk->out).ptr, desk->out.len);
    weir_buf_cut(&desk->out, 0);
}

static void count(struct desk *desk, enum weir_front_count counter, uint64_t n)
{
    weir_worker_add(desk->worker, WEIR_FRONT_DESK, counter, n);
}

static void answer_fault(struct desk *desk, uint64_t id, int err)
{
    count(desk, WEIR_FRONT_COUNT_BAD, 1);
    if (weir_desk_put_fault(&desk->out, id, err))
        send_out(desk);
}

static uint32_t nodes_of(const struct desk *desk)
{
    const struct weir_ask_shared *store = weir_service_store(desk->worker->service);
    return store != NULL ? weir_ask_nodes(store) : 1;
}

static void answer(struct desk *desk, uint64_t id, const struct weir_decision *decision)
{
    count(desk, WEIR_FRONT_COUNT_REQUESTS, 1);
    count(desk, WEIR_FRONT_COUNT_OVER_LIMIT, decision->overall == WEIR_CODE_OVER_LIMIT);
    if (weir_desk_put_decision(&desk->out, id, nodes_of(desk), decision))
        send_out(desk);
    else /* names that nobody gives */
        answer_fault(desk, id, WEIR_ERR_TOO_LARGE);
}

/* ---- who waits ---- */

static struct question *enter(struct desk *desk, uint64_t id)
{
    struct question *q = weir_pool_zeroed(&desk->worker->pool, 1, sizeof(*q));
    if (q == NULL)
        return NULL;
    q->desk = desk;
    q->id = id;
    q->next = desk->first;
    if (q->next != NULL)
        q->next->before = q;
    desk->first = q;
    return q;
}

static void leave(struct question *q)
{
    *(q->before != NULL ? &q->before->next : &q->desk->first) = q->next;
    if (q->next != NULL)
        q->next->before = q->before;
    weir_pool_free(&q->desk->worker->pool, q);
}

/* One has been answered. */
static void end(struct question *q)
{
    struct desk *desk = q->desk;
    leave(q);
    if (desk->is_draining && desk->first == NULL)
        weir_conn_finish(desk->conn);
}

static void on_decided(struct weir_waiter *waiter, struct weir_decision *decision)
{
    struct question *q = (struct question *)waiter; /* its first member */
    weir_ask_tickets(q->desk->worker->asks, decision, &q->desk->names);
    answer(q->desk, q->id, decision);
    end(q);
}

static void on_renewed(struct weir_renew_waiter *waiter, int err, uint64_t mark)
{
    struct question *q = (struct question *)((char *)waiter - offsetof(struct question, renew));
    if (weir_desk_put_renewed(&q->desk->out, q->id, err, mark))
        send_out(q->desk);
    end(q);
}

/* ---- questions ---- */

static int greet(struct desk *desk, const struct weir_desk_frame *frame)
{
    const struct weir_asks *asks = desk->worker->asks;
    const struct weir_settings *settings = weir_service_settings(desk->worker->service);
    struct weir_desk_hello hello;
    if (desk->has_greeted || weir_desk_read_hello(frame->body, &hello) != 0)
        return WEIR_ERR_INVALID;
    struct weir_desk_welcome welcome = {
        .version = WEIR_DESK_VERSION,
        .table = weir_table_id(desk->worker->engine->table),
        .has_store = asks != NULL,
        .has_leases = asks != NULL && settings->store_leases,
        .store = asks != NULL ? weir_ask_store_name(asks) : 0,
        .nodes = nodes_of(desk),
        .on_error = WEIR_STORE_ERROR_LOCAL,
    };
    if (asks != NULL)
        welcome.on_error = (uint8_t)weir_ask_on_error(weir_service_store(desk->worker->service));
    if (weir_desk_put_welcome(&desk->out, &welcome))
        send_out(desk);
    if (hello.version != WEIR_DESK_VERSION)
        return WEIR_ERR_INVALID; /* and it knows why */
    desk->has_greeted = true;
    weir_conn_alive(desk->conn);
    weir_conn_owe(desk->conn, true); /* it may be silent for as long as it likes */
    return 0;
}

static int decide(struct desk *desk, uint64_t id, const struct weir_request *request,
                  struct weir_decision *out)
{
    struct weir_worker *worker = desk->worker;
    uint64_t now_ns = weir_loop_now(worker->loop);
    if (worker->asks == NULL)
        return weir_check(worker->session, request, now_ns, out);
    struct question *q = enter(desk, id);
    if (q == NULL)
        return WEIR_ERR_NOMEM;
    q->waiter.done = on_decided;
    weir_publish_hold(worker->session);
    int err = weir_ask_start(worker->asks, request, now_ns, out, &q->waiter);
    if (err != WEIR_ASK_PENDING)
        leave(q);
    return err;
}

static int check(struct desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_decision decision = {.statuses = statuses};
    struct weir_request request;
    int err = weir_desk_read_check(frame->body, &desk->room, &request);
    if (err != 0)
        return err;
    err = decide(desk, frame->id, &request, &decision);
    if (err == 0)
        answer(desk, frame->id, &decision);
    else if (err != WEIR_ASK_PENDING)
        answer_fault(desk, frame->id, err);
    return 0;
}

static int refill(struct desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_worker *worker = desk->worker;
    struct weir_request request;
    int err = weir_desk_read_check(frame->body, &desk->room, &request);
    if (err == 0 && worker->asks != NULL)
        weir_ask_refill(worker->asks, &request, weir_loop_now(worker->loop));
    return err;
}

static int give(struct desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_desk_place place;
    int err = weir_desk_read_place(frame->body, &place);
    if (err == 0 && desk->worker->asks != NULL)
        weir_ask_give(desk->worker->asks, &place);
    return err;
}

static int renew(struct desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_desk_place place;
    struct question *q;
    int err = weir_desk_read_place(frame->body, &place);
    if (err != 0)
        return err;
    if (desk->worker->asks == NULL || (q = enter(desk, frame->id)) == NULL) {
        answer_fault(desk, frame->id, WEIR_ERR_UNSUPPORTED);
        return 0;
    }
    q->renew.done = on_renewed;
    err = weir_ask_renew(desk->worker->asks, &place, &q->renew);
    if (err != 0) {
        leave(q);
        answer_fault(desk, frame->id, err);
    }
    return 0;
}

static int owe(struct desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_request request;
    struct weir_desk_owed owed;
    int err = weir_desk_read_owe(frame->body, &desk->room, &owed, &request);
    if (err == 0 && desk->worker->asks != NULL)
        weir_ask_owed(desk->worker->asks, &request, owed.times, owed.since_ns);
    return err;
}

static int spent(struct desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_desk_spent told;
    int err = weir_desk_read_spent(frame->body, &told);
    if (err == 0 && desk->worker->asks != NULL)
        weir_ask_spent(desk->worker->asks, &told);
    return err;
}

static int obey(struct desk *desk, const struct weir_desk_frame *frame)
{
    if (frame->kind != WEIR_DESK_HELLO && !desk->has_greeted)
        return WEIR_ERR_INVALID;
    switch (frame->kind) {
    case WEIR_DESK_HELLO:
        return greet(desk, frame);
    case WEIR_DESK_CHECK:
        return check(desk, frame);
    case WEIR_DESK_REFILL:
        return refill(desk, frame);
    case WEIR_DESK_GIVE:
        return give(desk, frame);
    case WEIR_DESK_RENEW:
        return renew(desk, frame);
    case WEIR_DESK_OWE:
        return owe(desk, frame);
    case WEIR_DESK_SPENT:
        return spent(desk, frame);
    case WEIR_DESK_WELCOME:
    case WEIR_DESK_DECISION:
    case WEIR_DESK_FAULT:
    case WEIR_DESK_RENEWED:
        break;
    }
    return WEIR_ERR_INVALID;
}

/* ---- the connection ---- */

static int front_open(void **state, void *ctx, struct weir_conn *conn)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    (void)ctx;
    if (desk == NULL)
        return WEIR_ERR_NOMEM;
    desk->conn = conn;
    desk->worker = weir_worker_of(conn);
    weir_buf_init(&desk->in, 2 * WEIR_DESK_FRAME_MAX);
    weir_buf_init(&desk->out, 2 * WEIR_DESK_FRAME_MAX);
    weir_buf_init(&desk->names, NAMES_MAX);
    desk->in.budget = &desk->worker->budget;
    *state = desk;
    return 0;
}

static int front_feed(void *state, const uint8_t *bytes, size_t len)
{
    struct desk *desk = state;
    struct weir_desk_frame frame;
    int next = 0, err = 0;
    weir_buf_add(&desk->in, (struct weir_str){.ptr = (const char *)bytes, .len = len});
    if (desk->in.has_failed)
        return WEIR_ERR_NOMEM;
    struct weir_str left = weir_buf_str(&desk->in);
    while (err == 0 && (next = weir_desk_next(&left, &frame)) > 0)
        err = obey(desk, &frame);
    if (err != 0 || next < 0) {
        count(desk, WEIR_FRONT_COUNT_BAD, 1);
        return WEIR_ERR_INVALID;
    }
    if (left.len > 0)
        memmove(desk->in.ptr, left.ptr, left.len);
    weir_buf_cut(&desk->in, left.len);
    return 0;
}

/* Who asks will notice, and come back to our successor. */
static void front_drain(void *state)
{
    struct desk *desk = state;
    desk->is_draining = true;
    if (desk->first == NULL)
        weir_conn_finish(desk->conn);
}

static void front_close(void *state)
{
    struct desk *desk = state;
    while (desk->first != NULL) {
        weir_ask_cancel(&desk->first->waiter);
        weir_ask_renew_cancel(&desk->first->renew);
        leave(desk->first);
    }
    weir_buf_fini(&desk->in);
    weir_buf_fini(&desk->out);
    weir_buf_fini(&desk->names);
    free(desk);
}

const struct weir_protocol weir_front_desk = {
    .name = "desk",
    .open = front_open,
    .feed = front_feed,
    .drain = front_drain,
    .close = front_close,
};
