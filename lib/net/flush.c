/* flush.c - the end of a turn: what connections have to say leaves, and those that must go, go.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <stdlib.h>
#include <string.h>

#define CHORE_ROUNDS 4 /* connections give chores to do, and these them something to say */

/* ---- buffers ---- */

static struct outbuf *outbuf_take(struct weir_loop *loop)
{
    struct outbuf *buf = loop->spares;
    if (buf != NULL) {
        loop->spares = buf->next;
        loop->spare_count--;
    } else {
        buf = malloc(sizeof(*buf) + OUTBUF_LEN);
        if (buf == NULL)
            return NULL;
        buf->cap = OUTBUF_LEN;
    }
    buf->len = 0;
    return buf;
}

void weir_outbuf_release(struct weir_loop *loop, struct outbuf *buf)
{
    if (buf == NULL)
        return;
    if (buf->cap != OUTBUF_LEN || loop->spare_count >= OUTBUF_SPARES_MAX) {
        free(buf);
        return;
    }
    buf->next = loop->spares;
    loop->spares = buf;
    loop->spare_count++;
}

struct outbuf *weir_outbuf_append(struct weir_loop *loop, struct outbuf *buf, const void *bytes,
                                  size_t len)
{
    if (buf == NULL)
        buf = outbuf_take(loop);
    if (buf == NULL)
        return NULL;
    if (len > buf->cap - buf->len) {
        size_t cap = buf->cap;
        while (cap - buf->len < len)
            cap *= 2;
        struct outbuf *larger = realloc(buf, sizeof(*buf) + cap);
        if (larger == NULL) {
            free(buf);
            return NULL;
        }
        buf = larger;
        buf->cap = cap;
    }
    if (len > 0)
        memcpy(buf->bytes + buf->len, bytes, len);
    buf->len += len;
    return buf;
}

/* ---- writing ---- */

static void on_written(uv_write_t *request, int status)
{
    struct weir_conn *conn = request->data;
    struct weir_loop *loop = conn->side->loop;
    weir_loop_enter(loop);
    weir_outbuf_release(loop, conn->in_flight);
    conn->in_flight = NULL;
    if (conn->is_closing)
        return;
    if (status != 0)
        conn->is_doomed = true;
    weir_ages_touch(conn);
    weir_conn_mark(conn);
}

/* Tries at once, which nearly always takes everything; only the rest waits for the socket. */
static void write_out(struct weir_conn *conn)
{
    struct outbuf *buf = conn->flow.out;
    uv_buf_t bytes = uv_buf_init((char *)buf->bytes, (unsigned)buf->len);
    int wrote = uv_try_write(&conn->io.stream, &bytes, 1);
    if (wrote < 0 && wrote != UV_EAGAIN) {
        conn->is_doomed = true;
        return;
    }
    size_t gone = wrote > 0 ? (size_t)wrote : 0;
    conn->flow.out = NULL;
    if (gone > 0)
        weir_ages_touch(conn);
    if (gone == buf->len) {
        weir_outbuf_release(conn->side->loop, buf);
        return;
    }
    conn->in_flight = buf;
    buf->request.data = conn;
    bytes = uv_buf_init((char *)buf->bytes + gone, (unsigned)(buf->len - gone));
    if (uv_write(&buf->request, &conn->io.stream, &bytes, 1, on_written) != 0) {
        weir_outbuf_release(conn->side->loop, buf);
        conn->in_flight = NULL;
        conn->is_doomed = true;
    }
}

/* ---- the end of a connection ---- */

static void on_shutdown(uv_shutdown_t *request, int status)
{
    (void)status; /* the peer is gone, or will be when LINGER_MS have passed */
    free(request);
}

/* All is written.  A close() with bytes unread makes the kernel send a reset, and a reset makes the
 * peer forget our answer if it has not read it yet.  So we only say that we are done, throw away
 * what still comes, and close when the peer has closed, or after LINGER_MS. */
static void end_writing(struct weir_conn *conn)
{
    uv_shutdown_t *request = conn->has_ended ? NULL : malloc(sizeof(*request));
    if (request != NULL && uv_shutdown(request, &conn->io.stream, on_shutdown) == 0) {
        weir_ages_leave(conn);
        weir_ages_enter(conn, PHASE_LINGER);
        weir_conn_set_reading(conn, true);
        return;
    }
    free(request);
    weir_conn_close(conn);
}

static void last_turn(struct weir_conn *conn)
{
    if (conn->is_finished)
        return;
    if (conn->side->listener->protocol->turn != NULL &&
        conn->side->listener->protocol->turn(conn->state) < 0)
        conn->is_finishing = true;
    if (conn->is_finishing)
        conn->is_finished = true;
}

/* Who does not read answers need not send requests: TCP tells the peer. */
static bool may_read(const struct weir_conn *conn, size_t queued)
{
    return queued <= conn->side->listener->limits.output_max / 4 && !conn->is_deaf;
}

/* False: it is closed. */
static bool flush_conn(struct weir_conn *conn)
{
    conn->is_woken = false;
    if (!conn->is_doomed)
        last_turn(conn);
    if (conn->flow.ssl != NULL && !conn->is_doomed) {
        weir_tls_encrypt(conn);
        if (conn->is_finished && conn->flow.plain == NULL)
            weir_tls_goodbye(conn);
    }
    if (!conn->is_doomed && conn->in_flight == NULL && conn->flow.out != NULL)
        write_out(conn);
    if (conn->is_doomed || (conn->phase == PHASE_LINGER && conn->has_ended)) {
        weir_conn_close(conn);
        return false;
    }
    if (conn->phase == PHASE_LINGER)
        return true;
    size_t queued = weir_conn_queued(conn);
    if (conn->is_finished && queued == 0) {
        end_writing(conn);
        return !conn->is_closing;
    }
    weir_conn_set_reading(conn, may_read(conn, queued));
    return true;
}

static void flush_conns(struct weir_loop *loop)
{
    struct weir_conn *conn = loop->dirty;
    loop->dirty = NULL;
    loop->dirty_end = &loop->dirty;
    while (conn != NULL) {
        struct weir_conn *next = conn->next_dirty;
        /* It stays dirty meanwhile: what it sends in its turn is for this flush. */
        if (flush_conn(conn)) {
            conn->is_dirty = false;
            if (conn->is_woken || conn->is_doomed)
                weir_conn_mark(conn);
        }
        conn = next;
    }
}

void weir_loop_flush(struct weir_loop *loop)
{
    flush_conns(loop);
    for (int round = 0; round < CHORE_ROUNDS && loop->chores != NULL; round++) {
        weir_loop_run_chores(loop);
        flush_conns(loop);
    }
    /* Marked anew while we flushed: the next turn comes at once. */
    if (loop->dirty != NULL || loop->chores != NULL)
        uv_async_send(&loop->async);
}
