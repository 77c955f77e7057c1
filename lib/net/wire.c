/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* A socket with its patience, connected; -1 with errno. */
static int connect_to(int family, const struct sockaddr *to, socklen_t len, uint32_t timeout_ms)
{
    int one = 1;
    struct timeval patience = {.tv_sec = timeout_ms / 1000,
                               .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000};
    int wire = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (wire < 0)
        return -1;
    if (setsockopt(wire, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
        setsockopt(wire, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
        (family == AF_UNIX || setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0) &&
        connect(wire, to, len) == 0)
        return wire;
    int err = errno == EINPROGRESS ? ETIMEDOUT : errno;
    close(wire);
    errno = err;
    return -1;
}

static int connect_unix(const char *path, uint32_t timeout_ms)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(to.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(to.sun_path, path, strlen(path));
    return connect_to(AF_UNIX, (const struct sockaddr *)&to, sizeof(to), timeout_ms);
}

int weir_wire_open(const char *host, uint16_t port, uint32_t timeout_ms, char *why, size_t why_len)
{
    int wire = -1;
    if (port == 0) {
        wire = connect_unix(host, timeout_ms);
    } else {
        const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        struct addrinfo *found = NULL;
        char number[8];
        snprintf(number, sizeof(number), "%u", (unsigned)port);
        int err = getaddrinfo(host, number, &hints, &found);
        if (err != 0) {
            snprintf(why, why_len, "%s: %s", host, gai_strerror(err));
            return WEIR_ERR_IO;
        }
        for (const struct addrinfo *at = found; at != NULL && wire < 0; at = at->ai_next)
            wire = connect_to(at->ai_family, at->ai_addr, at->ai_addrlen, timeout_ms);
        int saved = errno; /* freeing may change it */
        freeaddrinfo(found);
        errno = saved;
    }
    if (wire < 0) {
        snprintf(why, why_len, "%s: %s", host, strerror(errno));
        return WEIR_ERR_IO;
    }
    return wire;
}

void weir_wire_close(int wire)
{
    close(wire);
}

int weir_wire_send(int wire, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t sent = send(wire, at, len, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return WEIR_ERR_IO;
        at += sent > 0 ? sent : 0;
        len -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

int weir_wire_recv(int wire, void *bytes, size_t len)
{
    ssize_t got;
    do {
        got = recv(wire, bytes, len < INT_MAX ? len : INT_MAX, 0);
    } while (got < 0 && errno == EINTR);
    return got > 0 ? (int)got : WEIR_ERR_IO;
}
