/* SPDX-License-Identifier: Apache-2.0 */
#include "net/outlet.h"

#include "net/internal.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_FIRST_MS 500
#define PAUSE_MAX_MS 60000
#define NS_PER_MS 1000000

struct weir_outlet {
    struct sockaddr_storage to;
    socklen_t to_len;
    int fd; /* -1: none */
    bool is_connected;
    bool is_cut;                 /* what is held begins in the midst of a line */
    uint64_t pause_ms, again_ms; /* how long to wait next time, and until when this time */
    uint64_t lost;
    size_t held, held_max;
    char bytes[];
};

static uint64_t now_ms(void)
{
    return uv_hrtime() / NS_PER_MS;
}

int weir_outlet_new(struct weir_outlet **out, const char *address, size_t held_max, char *why,
                    size_t why_len)
{
    struct addrinfo *found;
    int err = weir_dial_resolve(address, SOCK_STREAM, &found, why, why_len);
    if (err != 0)
        return err;
    struct weir_outlet *outlet = calloc(1, sizeof(*outlet) + held_max);
    if (outlet == NULL) {
        snprintf(why, why_len, "out of memory");
        freeaddrinfo(found);
        return WEIR_ERR_NOMEM;
    }
    memcpy(&outlet->to, found->ai_addr, found->ai_addrlen);
    outlet->to_len = found->ai_addrlen;
    freeaddrinfo(found);
    outlet->fd = -1;
    outlet->held_max = held_max;
    outlet->pause_ms = PAUSE_FIRST_MS;
    *out = outlet;
    return 0;
}

void weir_outlet_free(struct weir_outlet *outlet)
{
    if (outlet == NULL)
        return;
    if (outlet->fd >= 0)
        close(outlet->fd);
    free(outlet);
}

void weir_outlet_put(struct weir_outlet *outlet, const void *lines, size_t len)
{
    if (len > outlet->held_max - outlet->held) {
        outlet->lost += len;
        return;
    }
    memcpy(outlet->bytes + outlet->held, lines, len);
    outlet->held += len;
}

/* What is held may begin in the midst of a line; a new connection must not. */
static void drop_cut_line(struct weir_outlet *outlet)
{
    const char *end = outlet->is_cut ? memchr(outlet->bytes, '\n', outlet->held) : NULL;
    size_t len = end != NULL ? (size_t)(end - outlet->bytes) + 1 : 0;
    outlet->is_cut = false;
    outlet->lost += len;
    outlet->held -= len;
    memmove(outlet->bytes, outlet->bytes + len, outlet->held);
}

static void disconnect(struct weir_outlet *outlet)
{
    close(outlet->fd);
    outlet->fd = -1;
    outlet->is_connected = false;
    drop_cut_line(outlet);
}

static void give_up(struct weir_outlet *outlet)
{
    disconnect(outlet);
    outlet->again_ms = now_ms() + outlet->pause_ms;
    outlet->pause_ms = outlet->pause_ms < PAUSE_MAX_MS / 2 ? 2 * outlet->pause_ms : PAUSE_MAX_MS;
}

static void begin(struct weir_outlet *outlet)
{
    if (now_ms() < outlet->again_ms)
        return;
    outlet->fd =
        socket(outlet->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (outlet->fd < 0)
        return; /* no descriptor: at the next flush, then */
    if (connect(outlet->fd, (const struct sockaddr *)&outlet->to, outlet->to_len) != 0 &&
        errno != EINPROGRESS)
        give_up(outlet);
}

/* Whether the connection is made; one that cannot be is given up. */
static bool is_made(struct weir_outlet *outlet)
{
    struct pollfd look = {.fd = outlet->fd, .events = POLLOUT};
    int err = 0;
    socklen_t len = sizeof(err);
    if (outlet->is_connected)
        return true;
    if (poll(&look, 1, 0) != 1)
        return false;
    if (getsockopt(outlet->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0) {
        give_up(outlet);
        return false;
    }
    outlet->is_connected = true;
    outlet->pause_ms = PAUSE_FIRST_MS;
    return true;
}

/* A server that has closed is noticed before lines are sent into nothing. */
static bool has_ended(const struct weir_outlet *outlet)
{
    char byte;
    ssize_t got = recv(outlet->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void weir_outlet_flush(struct weir_outlet *outlet)
{
    if (outlet->fd >= 0 && outlet->is_connected && has_ended(outlet))
        disconnect(outlet);
    if (outlet->fd < 0)
        begin(outlet);
    if (outlet->fd < 0 || !is_made(outlet) || outlet->held == 0)
        return;
    ssize_t sent = send(outlet->fd, outlet->bytes, outlet->held, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (sent < 0) {
        give_up(outlet);
        return;
    }
    outlet->is_cut = sent > 0 ? outlet->bytes[sent - 1] != '\n' : outlet->is_cut;
    outlet->held -= (size_t)sent;
    memmove(outlet->bytes, outlet->bytes + sent, outlet->held);
}

bool weir_outlet_is_connected(const struct weir_outlet *outlet)
{
    return outlet->is_connected;
}

uint64_t weir_outlet_lost(const struct weir_outlet *outlet)
{
    return outlet->lost;
}
