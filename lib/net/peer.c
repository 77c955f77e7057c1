/* SPDX-License-Identifier: Apache-2.0 */
#include "net/peer.h"

#include "net/internal.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define KEEPALIVE_S 15
#define WHY_LEN 160

struct weir_peer {
    union io io;
    uv_connect_t connecting;
    uv_getaddrinfo_t lookup;
    struct weir_loop *loop;
    const struct weir_peer_events *events;
    void *ctx;
    struct addrinfo *found; /* the addresses of the name */
    uint32_t at, left;      /* the one being tried, and how many after it */
    struct weir_tls *tls;
    struct flow flow;
    struct outbuf *in_flight; /* given to uv_write */
    size_t output_max;
    size_t dropped;  /* bytes written when the socket took no more */
    bool is_looking; /* the name is being looked up: libuv has the lookup */
    bool has_handle; /* libuv has the handle */
    bool is_up;
    bool is_over;      /* down() was called */
    bool is_closed;    /* the owner is gone */
    bool is_deaf;      /* the socket takes no more */
    char why[WHY_LEN]; /* of the last address that was tried */
    char host[WEIR_ADDRESS_HOST_LEN_MAX + 1];
};

static void destroy(struct weir_peer *peer)
{
    weir_outbuf_release(peer->loop, peer->in_flight);
    weir_flow_end(&peer->flow);
    uv_freeaddrinfo(peer->found);
    free(peer);
}

static void go_down(struct weir_peer *peer, const char *why)
{
    if (peer->is_closed || peer->is_over)
        return;
    peer->is_over = true;
    peer->is_up = false;
    peer->events->down(peer->ctx, why);
}

static void go_up(struct weir_peer *peer)
{
    peer->is_up = true;
    peer->events->up(peer->ctx);
}

static bool is_heard(const struct weir_peer *peer)
{
    return !peer->is_closed && !peer->is_over;
}

/* ---- writing ---- */

static void send_out(struct weir_peer *peer);

static void on_written(uv_write_t *request, int status)
{
    struct weir_peer *peer = request->data;
    weir_loop_enter(peer->loop);
    weir_outbuf_release(peer->loop, peer->in_flight);
    peer->in_flight = NULL;
    if (status != 0)
        peer->is_deaf = true; /* what it had sent before is still read */
    else if (!peer->is_closed)
        send_out(peer);
}

/* What the socket takes at once. */
static size_t try_write(struct weir_peer *peer, const void *bytes, size_t len)
{
    uv_buf_t all = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)len);
    int wrote = uv_try_write(&peer->io.stream, &all, 1);
    peer->is_deaf = wrote < 0 && wrote != UV_EAGAIN;
    return wrote > 0 ? (size_t)wrote : 0;
}

/* Hands over what waits, unless something is in flight. */
static void send_out(struct weir_peer *peer)
{
    struct outbuf *buf = peer->flow.out;
    if (buf == NULL || peer->in_flight != NULL || peer->is_deaf)
        return;
    size_t gone = try_write(peer, buf->bytes, buf->len);
    uv_buf_t rest = uv_buf_init((char *)buf->bytes + gone, (unsigned)(buf->len - gone));
    peer->flow.out = NULL;
    peer->in_flight = buf;
    buf->request.data = peer;
    if (gone < buf->len && !peer->is_deaf &&
        uv_write(&buf->request, &peer->io.stream, &rest, 1, on_written) == 0)
        return;
    peer->is_deaf |= gone < buf->len;
    peer->dropped += peer->flow.ssl == NULL ? buf->len - gone : 0;
    weir_outbuf_release(peer->loop, buf);
    peer->in_flight = NULL;
}

size_t weir_peer_queued(const struct weir_peer *peer)
{
    return (peer->flow.out != NULL ? peer->flow.out->len : 0) +
           (peer->has_handle ? uv_stream_get_write_queue_size(&peer->io.stream) : 0);
}

size_t weir_peer_unsent(const struct weir_peer *peer)
{
    return peer->dropped + (peer->flow.ssl == NULL ? weir_peer_queued(peer) : 0);
}

static void write_encrypted(struct weir_peer *peer, const void *bytes, size_t len)
{
    if (!peer->is_deaf)
        peer->flow.plain = weir_outbuf_append(peer->loop, peer->flow.plain, bytes, len);
    if (peer->flow.plain == NULL) {
        peer->is_deaf = true;
        peer->dropped += len;
    } else if (!weir_flow_encrypt(&peer->flow)) {
        peer->is_deaf = true;
    }
    send_out(peer);
}

static void write_plain(struct weir_peer *peer, const void *bytes, size_t len)
{
    size_t gone = 0;
    if (peer->in_flight == NULL && !peer->is_deaf)
        gone = try_write(peer, bytes, len);
    if (gone == len)
        return;
    if (!peer->is_deaf)
        peer->flow.out =
            weir_outbuf_append(peer->loop, peer->flow.out, (const char *)bytes + gone, len - gone);
    if (peer->flow.out == NULL) {
        peer->is_deaf = true; /* or out of memory amid a command: nothing sensible can follow */
        peer->dropped += len - gone;
    }
    send_out(peer);
}

int weir_peer_write(struct weir_peer *peer, const void *bytes, size_t len)
{
    WEIR_ASSERT(peer->is_up);
    if (weir_peer_queued(peer) + len > peer->output_max)
        return WEIR_ERR_TOO_LARGE;
    if (peer->flow.ssl != NULL)
        write_encrypted(peer, bytes, len);
    else
        write_plain(peer, bytes, len);
    return 0;
}

/* ---- reading ---- */

static void feed(struct weir_peer *peer, const uint8_t *bytes, size_t len)
{
    if (peer->events->feed(peer->ctx, bytes, len) < 0)
        go_down(peer, "it speaks another protocol");
}

/* What of TLS is not for the owner, hands shaken among it, is answered here. */
static void decrypt(struct weir_peer *peer, const uint8_t *bytes, size_t len)
{
    int got;
    peer->flow.cipher = bytes;
    peer->flow.cipher_len = len;
    do {
        got = weir_flow_read(&peer->flow);
        if (!peer->is_up && is_heard(peer) && SSL_is_init_finished(peer->flow.ssl))
            go_up(peer);
        if (got > 0 && is_heard(peer))
            feed(peer, peer->loop->plain, (size_t)got);
    } while (got > 0 && is_heard(peer));
    peer->flow.cipher_len = 0;
    if (!is_heard(peer))
        return;
    send_out(peer);
    if (got < 0) {
        const char *why = got == FLOW_BROKEN ? weir_flow_why() : NULL;
        go_down(peer, why != NULL ? why : "it closed the connection");
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    const struct weir_peer *peer = handle->data;
    *out = uv_buf_init((char *)peer->loop->input, INPUT_LEN);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct weir_peer *peer = stream->data;
    if (got == 0 || !is_heard(peer))
        return;
    weir_loop_enter(peer->loop);
    if (got < 0)
        go_down(peer, got == UV_EOF ? "it closed the connection" : uv_strerror((int)got));
    else if (peer->flow.ssl != NULL)
        decrypt(peer, (const uint8_t *)buf->base, (size_t)got);
    else
        feed(peer, (const uint8_t *)buf->base, (size_t)got);
}

/* ---- connecting ---- */

static void try_next(struct weir_peer *peer);

static void on_closed(uv_handle_t *handle)
{
    struct weir_peer *peer = handle->data;
    peer->has_handle = false;
    if (peer->is_closed)
        destroy(peer);
    else if (!peer->loop->is_shut)
        try_next(peer);
}

/* Plain, it is up; with TLS, when hands are shaken. */
static int converse(struct weir_peer *peer)
{
    int err = uv_read_start(&peer->io.stream, on_alloc, on_read);
    if (err != 0 || peer->tls == NULL)
        return err;
    if (weir_flow_begin(&peer->flow, weir_tls_client_ssl(peer->tls, peer->host)) != 0)
        return UV_ENOMEM;
    decrypt(peer, NULL, 0); /* nothing has come: we begin */
    return 0;
}

static void on_connected(uv_connect_t *request, int status)
{
    struct weir_peer *peer = request->data;
    if (peer->is_closed || status == UV_ECANCELED)
        return;
    weir_loop_enter(peer->loop);
    if (status == 0)
        status = converse(peer);
    if (status == 0) {
        if (peer->tls == NULL)
            go_up(peer);
        return;
    }
    snprintf(peer->why, sizeof(peer->why), "%s", uv_strerror(status));
    if (peer->left > 0)
        uv_close(&peer->io.handle, on_closed);
    else
        go_down(peer, peer->why);
}

static int dial_tcp(struct weir_peer *peer, const struct sockaddr *to)
{
    uv_tcp_init(&peer->loop->uv, &peer->io.tcp);
    peer->has_handle = true;
    peer->io.handle.data = peer;
    peer->connecting.data = peer;
    /* Without these all is later, or noticed later, but right. */
    uv_tcp_nodelay(&peer->io.tcp, 1);
    uv_tcp_keepalive(&peer->io.tcp, 1, KEEPALIVE_S);
    return uv_tcp_connect(&peer->connecting, &peer->io.tcp, to, on_connected);
}

static void dial_unix(struct weir_peer *peer, const char *path)
{
    uv_pipe_init(&peer->loop->uv, &peer->io.pipe, 0);
    peer->has_handle = true;
    peer->io.handle.data = peer;
    peer->connecting.data = peer;
    uv_pipe_connect(&peer->connecting, &peer->io.pipe, path, on_connected);
}

static uint32_t count_addresses(const struct addrinfo *found)
{
    uint32_t count = 0;
    for (; found != NULL; found = found->ai_next)
        count++;
    return count;
}

/* The next of the name's addresses. */
static void try_next(struct weir_peer *peer)
{
    const struct addrinfo *to = peer->found;
    uint32_t count = count_addresses(peer->found);
    for (uint32_t i = 0; i < peer->at % count; i++)
        to = to->ai_next;
    peer->at++;
    peer->left--;
    int err = dial_tcp(peer, to->ai_addr);
    if (err != 0)
        go_down(peer, uv_strerror(err));
}

static void on_found(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found)
{
    struct weir_peer *peer = lookup->data;
    peer->is_looking = false;
    peer->found = found;
    if (peer->is_closed) {
        destroy(peer);
        return;
    }
    if (peer->loop->is_shut)
        return;
    weir_loop_enter(peer->loop);
    peer->left = count_addresses(found);
    if (status != 0 || peer->left == 0)
        go_down(peer, status != 0 ? uv_strerror(status) : "the name has no address");
    else
        try_next(peer);
}

/* An address in digits needs nobody to look it up. */
static bool read_digits(const char *host, const char *port, struct sockaddr_storage *out)
{
    int number = (int)strtol(port, NULL, 10);
    return uv_ip4_addr(host, number, (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(host, number, (struct sockaddr_in6 *)out) == 0;
}

static int begin_tcp(struct weir_peer *peer, const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct sockaddr_storage to;
    const char *port;
    if (!weir_address_split(address, peer->host, &port) || peer->host[0] == '\0')
        return UV_EINVAL;
    if (read_digits(peer->host, port, &to))
        return dial_tcp(peer, (const struct sockaddr *)&to);
    peer->lookup.data = peer;
    int err = uv_getaddrinfo(&peer->loop->uv, &peer->lookup, on_found, peer->host, port, &hints);
    peer->is_looking = err == 0;
    return err;
}

static int begin(struct weir_peer *peer, const char *address)
{
    const char *path = address + strlen(WEIR_ADDRESS_UNIX);
    if (strncmp(address, WEIR_ADDRESS_UNIX, strlen(WEIR_ADDRESS_UNIX)) != 0)
        return begin_tcp(peer, address);
    if (path[0] == '\0' || strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return UV_ENAMETOOLONG;
    dial_unix(peer, path);
    return 0;
}

/* ---- life ---- */

int weir_peer_open(struct weir_peer **out, struct weir_loop *loop,
                   const struct weir_peer_options *options, char *why, size_t why_len)
{
    struct weir_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        snprintf(why, why_len, "out of memory");
        return WEIR_ERR_NOMEM;
    }
    peer->loop = peer->flow.loop = loop;
    peer->tls = options->tls;
    peer->events = options->events;
    peer->ctx = options->ctx;
    peer->at = options->first;
    peer->output_max = options->output_max;
    int err = begin(peer, options->address);
    if (err != 0) {
        snprintf(why, why_len, "%s: %s", options->address, uv_strerror(err));
        weir_peer_close(peer);
        return err == UV_EINVAL || err == UV_ENAMETOOLONG ? WEIR_ERR_INVALID : WEIR_ERR_IO;
    }
    *out = peer;
    return 0;
}

void weir_peer_close(struct weir_peer *peer)
{
    if (peer == NULL)
        return;
    peer->is_closed = true;
    peer->is_up = false;
    if (peer->is_looking)
        uv_cancel((uv_req_t *)&peer->lookup); /* where it has begun already, on_found() comes */
    else if (!peer->has_handle || peer->loop->is_shut)
        destroy(peer); /* a loop that is shut has closed the handle */
    else if (!uv_is_closing(&peer->io.handle))
        uv_close(&peer->io.handle, on_closed);
}
