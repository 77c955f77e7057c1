/* SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DISCARDED(conn) ((conn)->is_finishing || (conn)->is_doomed || (conn)->is_closing)

/* ---- as the protocol sees it ---- */

void weir_conn_mark(struct weir_conn *conn)
{
    struct weir_loop *loop = conn->side->loop;
    if (conn->is_dirty || conn->is_closing)
        return;
    conn->is_dirty = true;
    conn->next_dirty = NULL;
    *loop->dirty_end = conn;
    loop->dirty_end = &conn->next_dirty;
}

void weir_conn_send(struct weir_conn *conn, const void *bytes, size_t len)
{
    struct weir_loop *loop = conn->side->loop;
    struct outbuf **to = conn->flow.ssl != NULL ? &conn->flow.plain : &conn->flow.out;
    if (conn->is_doomed || conn->is_closing || conn->is_finished || len == 0)
        return;
    weir_conn_mark(conn);
    if (weir_conn_queued(conn) + len > conn->side->listener->limits.output_max) {
        conn->is_doomed = true;
        /* relaxed: one writer, and readers only add up */
        atomic_fetch_add_explicit(&conn->side->overflowed, 1, memory_order_relaxed);
        weir_listener_tell(conn->side->listener, WEIR_NET_OVERFLOW, conn->peer, NULL);
        return;
    }
    *to = weir_outbuf_append(loop, *to, bytes, len);
    if (*to == NULL)
        conn->is_doomed = true;
}

size_t weir_conn_queued(const struct weir_conn *conn)
{
    return (conn->flow.plain != NULL ? conn->flow.plain->len : 0) +
           (conn->flow.out != NULL ? conn->flow.out->len : 0) +
           uv_stream_get_write_queue_size(&conn->io.stream);
}

static void move_to(struct weir_conn *conn, enum phase phase)
{
    weir_ages_leave(conn);
    weir_ages_enter(conn, phase);
}

void weir_conn_alive(struct weir_conn *conn)
{
    if (conn->phase == PHASE_FIRST && !conn->is_closing)
        move_to(conn, PHASE_IDLE);
}

void weir_conn_amid(struct weir_conn *conn, bool is_amid)
{
    if (conn->phase == (is_amid ? PHASE_IDLE : PHASE_AMID) && !conn->is_closing)
        move_to(conn, is_amid ? PHASE_AMID : PHASE_IDLE);
}

void weir_conn_owe(struct weir_conn *conn, bool is_owed)
{
    if (conn->is_closing || conn->phase == PHASE_LINGER || (conn->phase == PHASE_OWED) == is_owed)
        return;
    move_to(conn, is_owed ? PHASE_OWED : PHASE_IDLE);
}

void weir_conn_deafen(struct weir_conn *conn, bool is_deaf)
{
    conn->is_deaf = is_deaf;
    weir_conn_mark(conn); /* flush_conn() sees to it */
    if (is_deaf)
        weir_conn_set_reading(conn, false);
}

void weir_conn_wake(struct weir_conn *conn)
{
    conn->is_woken = true; /* from within turn() it means the next one */
    weir_conn_mark(conn);
}

void weir_conn_finish(struct weir_conn *conn)
{
    conn->is_finishing = true;
    weir_conn_mark(conn);
}

void weir_conn_last_call(struct weir_conn *conn)
{
    if (conn->phase == PHASE_LATE || conn->phase == PHASE_LINGER || DISCARDED(conn))
        return;
    move_to(conn, PHASE_LATE);
}

struct weir_loop *weir_conn_loop(const struct weir_conn *conn)
{
    return conn->side->loop;
}

const char *weir_conn_peer(const struct weir_conn *conn)
{
    return conn->peer;
}

/* ---- reading ---- */

void weir_conn_feed(struct weir_conn *conn, const uint8_t *bytes, size_t len)
{
    if (DISCARDED(conn))
        return;
    conn->has_fed = true;
    if (conn->side->listener->protocol->feed(conn->state, bytes, len) < 0)
        conn->is_finishing = true;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct weir_conn *conn = handle->data;
    *out = uv_buf_init((char *)conn->side->loop->input, INPUT_LEN);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct weir_conn *conn = stream->data;
    if (got == 0)
        return;
    weir_loop_enter(conn->side->loop);
    weir_conn_mark(conn);
    if (got < 0) {
        conn->has_ended = true;
        if (got == UV_EOF)
            conn->is_finishing = true;
        else
            conn->is_doomed = true;
        weir_conn_set_reading(conn, false);
        return;
    }
    weir_ages_touch(conn);
    if (conn->phase == PHASE_ASKED)
        move_to(conn, PHASE_IDLE);
    if (DISCARDED(conn))
        return;
    if (conn->flow.ssl != NULL)
        weir_tls_feed(conn, (const uint8_t *)buf->base, (size_t)got);
    else
        weir_conn_feed(conn, (const uint8_t *)buf->base, (size_t)got);
    if (conn->phase == PHASE_LATE && conn->has_fed) {
        move_to(conn, PHASE_IDLE);
        weir_conn_drain(conn);
    }
    /* libuv reads on, up to 32 times, while there is something.  A buffer's worth is thousands of
     * small requests: others have their turn first.  flush_conn() lets us read again. */
    if (got == INPUT_LEN || weir_conn_queued(conn) > conn->side->listener->limits.output_max / 4)
        weir_conn_set_reading(conn, false);
}

void weir_conn_set_reading(struct weir_conn *conn, bool is_reading)
{
    if (conn->is_paused != is_reading || (is_reading && conn->has_ended))
        return;
    conn->is_paused = !is_reading;
    if (!is_reading)
        uv_read_stop(&conn->io.stream);
    else if (uv_read_start(&conn->io.stream, on_alloc, on_read) != 0)
        conn->is_doomed = true; /* cannot be: the stream is ours and open */
}

/* ---- life ---- */

/* Who has connected and not spoken yet was promised an answer, when the kernel took the connection:
 * its first request is heard before it must go, if it comes soon. */
void weir_conn_drain(struct weir_conn *conn)
{
    const struct weir_protocol *protocol = conn->side->listener->protocol;
    if (conn->phase == PHASE_LINGER || conn->phase == PHASE_LATE || conn->is_finishing ||
        !conn->is_open)
        return;
    if (!conn->has_fed) {
        weir_conn_last_call(conn);
        return;
    }
    if (protocol->drain != NULL)
        protocol->drain(conn->state);
    else
        conn->is_finishing = true;
    weir_conn_mark(conn);
}

static void on_closed(uv_handle_t *handle)
{
    struct weir_conn *conn = handle->data;
    struct weir_loop *loop = conn->side->loop;
    weir_outbuf_release(loop, conn->in_flight);
    weir_flow_end(&conn->flow);
    loop->conn_count--;
    /* relaxed: counts only; a listener's maximum may be off by those that are just closing */
    atomic_fetch_sub_explicit(&conn->side->listener->open, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&loop->load, 1, memory_order_relaxed);
    free(conn);
    weir_loop_maybe_done(loop);
}

void weir_conn_close(struct weir_conn *conn)
{
    WEIR_ASSERT(!conn->is_closing);
    conn->is_closing = true;
    if (conn->is_open)
        conn->side->listener->protocol->close(conn->state);
    weir_ages_leave(conn);
    uv_close(&conn->io.handle, on_closed);
}

/* The loop meets a listener when its first connection comes. */
static void link_side(struct weir_side *side)
{
    struct weir_loop *loop = side->loop;
    if (side->is_linked)
        return;
    side->is_linked = true;
    side->next = loop->sides;
    loop->sides = side;
    for (int phase = 0; phase < PHASES; phase++) {
        uint32_t wanted_ms = side->limit_ms[phase] / 8 + 1;
        if (wanted_ms < loop->tick_ms)
            loop->tick_ms = wanted_ms;
    }
    uv_timer_set_repeat(&loop->ticker, loop->tick_ms);
    uv_timer_again(&loop->ticker);
}

static int open_stream(struct weir_conn *conn, int fd)
{
    uv_loop_t *uv = &conn->side->loop->uv;
    if (conn->side->listener->is_unix) {
        uv_pipe_init(uv, &conn->io.pipe, 0);
        return uv_pipe_open(&conn->io.pipe, fd);
    }
    uv_tcp_init(uv, &conn->io.tcp);
    int err = uv_tcp_open(&conn->io.tcp, fd);
    if (err == 0)
        uv_tcp_nodelay(&conn->io.tcp, 1); /* without it answers are later, but right */
    return err;
}

void weir_conn_begin(struct weir_side *side, int fd, const char *peer)
{
    struct weir_listener *listener = side->listener;
    struct weir_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        close(fd);
        atomic_fetch_sub_explicit(&listener->open, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&side->loop->load, 1, memory_order_relaxed);
        return;
    }
    link_side(side);
    side->loop->conn_count++;
    conn->side = side;
    conn->flow.loop = side->loop;
    conn->is_paused = true;
    snprintf(conn->peer, sizeof(conn->peer), "%s", peer);
    weir_ages_enter(conn, PHASE_FIRST);
    weir_conn_mark(conn);
    if (open_stream(conn, fd) != 0) {
        close(fd);
        conn->is_doomed = true;
    }
    conn->io.handle.data = conn;
    if (conn->is_doomed)
        return;
    if ((listener->tls != NULL && weir_tls_begin(conn) != 0) ||
        listener->protocol->open(&conn->state, listener->protocol_ctx, conn) < 0) {
        weir_listener_tell(listener, WEIR_NET_REFUSED, conn->peer, NULL);
        conn->is_doomed = true;
        return;
    }
    conn->is_open = true;
    weir_conn_set_reading(conn, true);
    if (side->loop->is_draining)
        weir_conn_drain(conn);
}
