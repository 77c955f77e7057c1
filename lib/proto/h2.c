/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/h2.h"

#include "base/err.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 8 /* of a head or of trailers: ours, all known */
#define SECOND_NS UINT64_C(1000000000)
#define REFILL_NS (SECOND_NS / 100) /* allowances are filled up at most so often */
#define WINDOW (1 << 20)            /* of a connection: no update in most turns */

struct weir_h2 {
    nghttp2_session *session;
    const struct weir_h2_events *events;
    void *ctx;
    const char *why;
    struct weir_h2_stream *last; /* the one that was looked for last */
    struct weir_h2_stream *open; /* all that are, by `before` and `after` */
    struct weir_h2_stream *free;
    struct weir_h2_stream *early; /* answered before they were complete: to be reset */
    uint32_t free_count;
    uint32_t held; /* bytes of bodies that have memory of their own */
    struct weir_budget *budget;
    bool is_greeted;
    bool is_draining;
    bool is_over; /* the peer went too far: nothing more is read */
    uint64_t refilled_ns;
    uint32_t resets, noise; /* what is left of the allowances */
};

/* ---- streams ---- */

/* NULL where memory is out. */
static struct weir_h2_stream *stream_take(struct weir_h2 *h2, int32_t id)
{
    struct weir_h2_stream *s = h2->free;
    if (s) {
        h2->free = s->next;
        h2->free_count--;
    } else {
        s = malloc(sizeof(*s) + h2->events->extra_bytes);
        if (!s)
            return NULL;
    }
    s->id = id;
    s->fault = WEIR_H2_FINE;
    s->is_complete = s->is_answered = s->is_dropped = false;
    s->body = s->first;
    s->body_len = s->sent = s->headers_len = 0;
    s->body_cap = WEIR_H2_INLINE;
    s->trailers = NULL;
    s->trailer_count = 0;
    s->next = s->before = NULL;
    s->after = h2->open;
    if (h2->open)
        h2->open->before = s;
    h2->open = s;
    return s;
}

static void body_release(struct weir_h2 *h2, struct weir_h2_stream *s)
{
    if (s->body == s->first)
        return;
    free(s->body);
    h2->held -= s->body_cap;
    weir_budget_give(h2->budget, s->body_cap);
    s->body = s->first;
    s->body_cap = WEIR_H2_INLINE;
}

static void stream_give_back(struct weir_h2 *h2, struct weir_h2_stream *s)
{
    body_release(h2, s);
    if (h2->last == s)
        h2->last = NULL;
    if (s->after)
        s->after->before = s->before;
    *(s->before ? &s->before->after : &h2->open) = s->after;
    for (struct weir_h2_stream **at = &h2->early; s->is_dropped && *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    if (h2->free_count >= WEIR_H2_FREE_MAX) {
        free(s);
        return;
    }
    s->next = h2->free;
    h2->free = s;
    h2->free_count++;
}

/* Room for len bytes in all; false where that is too much. */
static bool body_grow(struct weir_h2 *h2, struct weir_h2_stream *s, size_t len)
{
    if (len <= s->body_cap)
        return true;
    size_t cap = (size_t)s->body_cap * 2;
    while (cap < len)
        cap *= 2;
    uint32_t held = s->body == s->first ? 0 : s->body_cap;
    if (cap > UINT32_MAX / 2 || h2->held - held + cap > WEIR_H2_HELD_MAX)
        return false;
    if (!weir_budget_take(h2->budget, cap - held))
        return false;
    uint8_t *body = realloc(held > 0 ? s->body : NULL, cap);
    if (!body) {
        weir_budget_give(h2->budget, cap - held);
        return false;
    }
    if (held == 0)
        memcpy(body, s->first, s->body_len);
    h2->held += (uint32_t)cap - held;
    s->body = body;
    s->body_cap = (uint32_t)cap;
    return true;
}

/* The callbacks of one request come together, so the last stream is the one in nearly all cases. */
static struct weir_h2_stream *stream_of(struct weir_h2 *h2, int32_t id)
{
    if (!h2->last || h2->last->id != id)
        h2->last = nghttp2_session_get_stream_user_data(h2->session, id);
    return h2->last;
}

/* No more of the body is wanted: the request is told of now, and gets its refusal. */
static void fail_body(struct weir_h2 *h2, struct weir_h2_stream *s, enum weir_h2_fault fault)
{
    s->fault = fault;
    h2->events->request(h2->ctx, s);
}

/* ---- what nghttp2 tells ---- */

static int go_away(struct weir_h2 *h2, const char *why)
{
    h2->why = why;
    h2->is_over = true;
    nghttp2_session_terminate_session(h2->session, NGHTTP2_ENHANCE_YOUR_CALM);
    return 0;
}

static int count_reset(struct weir_h2 *h2)
{
    if (h2->is_over)
        return 0;
    if (h2->resets == 0)
        return go_away(h2, "too many streams reset");
    h2->resets--;
    return 0;
}

/* Every frame: is it part of a request? */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct weir_h2 *h2 = user;
    (void)session;
    if (hd->type == NGHTTP2_HEADERS || (hd->type == NGHTTP2_DATA && hd->length > 0) || h2->is_over)
        return 0;
    if (h2->noise == 0)
        return go_away(h2, "too many frames that are part of no request");
    h2->noise--;
    return hd->type == NGHTTP2_RST_STREAM ? count_reset(h2) : 0;
}

static const char *fault_of(uint32_t error_code)
{
    return error_code == NGHTTP2_NO_ERROR ? "" : nghttp2_http2_strerror(error_code);
}

/* A peer can also make us reset its streams, one by one, by breaking a rule on each. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct weir_h2 *h2 = user;
    (void)session;
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
        return count_reset(h2);
    if (frame->hd.type == NGHTTP2_GOAWAY && h2->why[0] == '\0')
        h2->why = fault_of(frame->goaway.error_code);
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct weir_h2 *h2 = user;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct weir_h2_stream *s = stream_take(h2, frame->hd.stream_id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, s->id, s);
    h2->last = s;
    h2->events->begin(h2->ctx, s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct weir_h2 *h2 = user;
    struct weir_h2_stream *s = stream_of(h2, frame->hd.stream_id);
    (void)session, (void)flags;
    if (!s || s->is_dropped)
        return 0;
    s->headers_len += (uint32_t)(name_len + value_len + 32);
    if (s->headers_len > WEIR_H2_HEADERS_MAX) {
        s->fault = WEIR_H2_HEADERS_TOO_LARGE;
        if (s->headers_len <= WEIR_H2_HEADERS_CALM)
            return 0;
        go_away(h2, "headers without end");
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    bool is_wanted = name_len < 64 && (h2->events->name_lens >> name_len & 1) != 0;
    if (is_wanted && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        h2->events->header(h2->ctx, s, (struct weir_str){(const char *)name, name_len},
                           (struct weir_str){(const char *)value, value_len});
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t len, void *user)
{
    struct weir_h2 *h2 = user;
    struct weir_h2_stream *s = stream_of(h2, id);
    (void)session, (void)flags;
    if (!s || s->is_answered || s->fault != WEIR_H2_FINE)
        return 0;
    if (len > WEIR_H2_BODY_MAX - s->body_len) {
        fail_body(h2, s, WEIR_H2_BODY_TOO_LARGE);
        return 0;
    }
    if (!body_grow(h2, s, s->body_len + len)) {
        fail_body(h2, s, WEIR_H2_BODIES_TOO_LARGE);
        return 0;
    }
    memcpy(s->body + s->body_len, bytes, len);
    s->body_len += (uint32_t)len;
    h2->events->data(h2->ctx, s);
    return 0;
}

static void on_request_end(struct weir_h2 *h2, int32_t id)
{
    struct weir_h2_stream *s = stream_of(h2, id);
    if (!s || s->is_complete)
        return;
    s->is_complete = true;
    h2->noise += WEIR_H2_NOISE_PER_REQUEST;
    bool is_told = s->fault == WEIR_H2_BODY_TOO_LARGE || s->fault == WEIR_H2_BODIES_TOO_LARGE;
    if (!s->is_answered && !is_told)
        h2->events->request(h2->ctx, s);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct weir_h2 *h2 = user;
    h2->is_greeted = true; /* nghttp2 wants the preface and SETTINGS before anything else */
    if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) {
        if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
            on_request_end(h2, frame->hd.stream_id);
    } else if (frame->hd.type == NGHTTP2_PING && h2->is_draining &&
               (frame->hd.flags & NGHTTP2_FLAG_ACK)) {
        nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR,
                              NULL, 0);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    struct weir_h2 *h2 = user;
    struct weir_h2_stream *s = stream_of(h2, id);
    (void)error;
    if (!s)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    h2->events->close(h2->ctx, s);
    stream_give_back(h2, s);
    return 0;
}

/* ---- a connection ---- */

static void *pool_malloc(size_t len, void *pool)
{
    return weir_pool_alloc(pool, len);
}

static void *pool_calloc(size_t count, size_t len, void *pool)
{
    return weir_pool_zeroed(pool, count, len);
}

static void *pool_realloc(void *ptr, size_t len, void *pool)
{
    return weir_pool_resize(pool, ptr, len);
}

static void pool_free(void *ptr, void *pool)
{
    weir_pool_free(pool, ptr);
}

static int make_session(struct weir_h2 *h2, struct weir_pool *pool)
{
    nghttp2_mem mem = {pool, pool_malloc, pool_free, pool_calloc, pool_realloc};
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option *option = NULL;
    if (nghttp2_session_callbacks_new(&calls) != 0 || nghttp2_option_new(&option) != 0) {
        nghttp2_session_callbacks_del(calls);
        return WEIR_ERR_NOMEM;
    }
    nghttp2_session_callbacks_set_on_begin_frame_callback(calls, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_stream_close);
    nghttp2_option_set_no_closed_streams(option, 1); /* kept only for priorities, which we ignore */
    int failed = nghttp2_session_server_new3(&h2->session, calls, h2, option, &mem);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(calls);
    return failed ? WEIR_ERR_NOMEM : 0;
}

static int greet(nghttp2_session *session)
{
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, WEIR_H2_STREAMS_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, WEIR_H2_HEADERS_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings,
                                sizeof(settings) / sizeof(settings[0])) != 0 ||
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW) != 0)
        return WEIR_ERR_NOMEM;
    return 0;
}

int weir_h2_new(struct weir_h2 **out, const struct weir_h2_events *events, void *ctx,
                struct weir_pool *pool)
{
    struct weir_h2 *h2 = calloc(1, sizeof(*h2));
    if (!h2)
        return WEIR_ERR_NOMEM;
    h2->events = events;
    h2->ctx = ctx;
    h2->why = "";
    h2->resets = WEIR_H2_RESETS_BURST;
    h2->noise = WEIR_H2_NOISE_BURST;
    int err = make_session(h2, pool);
    if (!err)
        err = greet(h2->session);
    if (err) {
        weir_h2_free(h2);
        return err;
    }
    *out = h2;
    return 0;
}

void weir_h2_set_budget(struct weir_h2 *h2, struct weir_budget *budget)
{
    h2->budget = budget;
}

void weir_h2_free(struct weir_h2 *h2)
{
    if (!h2)
        return;
    /* nghttp2 does not tell of streams that are open when a session ends. */
    for (struct weir_h2_stream *s = h2->open, *after; s; s = after) {
        after = s->after;
        h2->events->close(h2->ctx, s);
        body_release(h2, s);
        free(s);
    }
    nghttp2_session_del(h2->session);
    while (h2->free) {
        struct weir_h2_stream *s = h2->free;
        h2->free = s->next;
        free(s);
    }
    free(h2);
}

static uint32_t refill(uint32_t left, uint64_t passed_ns, uint32_t per_s, uint32_t burst)
{
    uint64_t more = passed_ns >= 1000 * SECOND_NS ? burst : passed_ns * per_s / SECOND_NS;
    return left + more < burst ? left + (uint32_t)more : burst;
}

static void refill_allowances(struct weir_h2 *h2, uint64_t now_ns)
{
    if (now_ns < h2->refilled_ns + REFILL_NS)
        return; /* too soon, or the clock went back: later then */
    uint64_t passed_ns = now_ns - h2->refilled_ns;
    h2->resets = refill(h2->resets, passed_ns, WEIR_H2_RESETS_PER_S, WEIR_H2_RESETS_BURST);
    h2->noise = refill(h2->noise, passed_ns, WEIR_H2_NOISE_PER_S, WEIR_H2_NOISE_BURST);
    h2->refilled_ns = now_ns;
}

int weir_h2_feed(struct weir_h2 *h2, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    refill_allowances(h2, now_ns);
    ssize_t taken = h2->is_over ? 0 : nghttp2_session_mem_recv(h2->session, bytes, len);
    if (taken < 0) {
        h2->why = nghttp2_strerror((int)taken);
        return taken == NGHTTP2_ERR_NOMEM ? WEIR_ERR_NOMEM : WEIR_ERR_INVALID;
    }
    return h2->is_over ? WEIR_ERR_TOO_LARGE : 0;
}

static void send_all(struct weir_h2 *h2, void (*send)(void *, const void *, size_t), void *ctx)
{
    const uint8_t *bytes;
    ssize_t len;
    while ((len = nghttp2_session_mem_send(h2->session, &bytes)) > 0)
        send(ctx, bytes, (size_t)len);
    if (len < 0) { /* out of memory: nothing can be said any more */
        h2->why = nghttp2_strerror((int)len);
        h2->is_over = true;
    }
}

bool weir_h2_flush(struct weir_h2 *h2, void (*send)(void *ctx, const void *bytes, size_t len),
                   void *ctx)
{
    send_all(h2, send, ctx);
    if (h2->early) { /* a reset that is submitted before the head has left would overtake it */
        for (struct weir_h2_stream *s = h2->early; s; s = s->next) {
            if (!s->is_complete)
                nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
        }
        send_all(h2, send, ctx);
    }
    return h2->is_over ||
           (!nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session));
}

bool weir_h2_is_greeted(const struct weir_h2 *h2)
{
    return h2->is_greeted;
}

const char *weir_h2_why(const struct weir_h2 *h2)
{
    return h2->why;
}

/* ---- responses ---- */

static size_t fields_of(nghttp2_nv *nv, const struct weir_h2_field *fields, uint32_t count,
                        uint8_t flags)
{
    WEIR_ASSERT(count <= FIELDS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        nv[i] = (nghttp2_nv){
            .name = (uint8_t *)(uintptr_t)fields[i].name.ptr, /* nghttp2 only reads them */
            .value = (uint8_t *)(uintptr_t)fields[i].value.ptr,
            .namelen = fields[i].name.len,
            .valuelen = fields[i].value.len,
            .flags = flags,
        };
    }
    return count;
}

#define NO_COPY (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct weir_h2_stream *s = source->ptr;
    uint32_t left = s->body_len - s->sent;
    uint32_t len = left < room ? left : (uint32_t)room;
    (void)user;
    memcpy(buf, s->body + s->sent, len);
    s->sent += len;
    if (len < left)
        return (ssize_t)len;
    if (s->trailers) {
        nghttp2_nv nv[FIELDS_MAX];
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, id, nv,
                                   fields_of(nv, s->trailers, s->trailer_count, NO_COPY)) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        return (ssize_t)len;
    }
    s->body_len = s->sent = 0;
    return len > 0 ? (ssize_t)len : NGHTTP2_ERR_DEFERRED;
}

uint8_t *weir_h2_out(struct weir_h2 *h2, struct weir_h2_stream *s, size_t len)
{
    if (!s->is_answered)
        s->body_len = s->sent = 0;
    if (!body_grow(h2, s, s->body_len + len))
        return NULL;
    uint8_t *room = s->body + s->body_len;
    s->body_len += (uint32_t)len;
    return room;
}

void weir_h2_respond(struct weir_h2 *h2, struct weir_h2_stream *s,
                     const struct weir_h2_field *fields, uint32_t count)
{
    nghttp2_nv nv[FIELDS_MAX];
    nghttp2_data_provider provider = {.source = {.ptr = s}, .read_callback = read_out};
    s->is_answered = true;
    /* Out of memory: the stream stays silent, and its connection's idle time ends it. */
    (void)nghttp2_submit_response(h2->session, s->id, nv, fields_of(nv, fields, count, NO_COPY),
                                  &provider);
}

void weir_h2_respond_only(struct weir_h2 *h2, struct weir_h2_stream *s,
                          const struct weir_h2_field *fields, uint32_t count)
{
    nghttp2_nv nv[FIELDS_MAX];
    s->is_answered = true;
    body_release(h2, s);
    (void)nghttp2_submit_response(h2->session, s->id, nv, fields_of(nv, fields, count, 0), NULL);
    if (!s->is_complete) {
        s->is_dropped = true;
        s->next = h2->early;
        h2->early = s;
    }
}

void weir_h2_resume(struct weir_h2 *h2, struct weir_h2_stream *s)
{
    (void)nghttp2_session_resume_data(h2->session, s->id);
}

void weir_h2_end(struct weir_h2_stream *s, const struct weir_h2_field *trailers, uint32_t count)
{
    s->trailers = trailers;
    s->trailer_count = count;
}

void weir_h2_ping(struct weir_h2 *h2)
{
    static const uint8_t payload[8] = "alive?";
    (void)nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, payload);
}

void weir_h2_drain(struct weir_h2 *h2)
{
    static const uint8_t payload[8] = "draining";
    if (h2->is_draining)
        return;
    h2->is_draining = true;
    (void)nghttp2_submit_shutdown_notice(h2->session);
    (void)nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, payload);
}
