/* dial.c - "HOST:PORT" or "unix:PATH" to a socket that is connected.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

int weir_dial_resolve(const char *address, int socktype, struct addrinfo **found, char *why,
                      size_t why_len)
{
    char host[WEIR_ADDRESS_HOST_LEN_MAX + 1];
    const char *port;
    const struct addrinfo hints = {.ai_socktype = socktype, .ai_flags = AI_NUMERICSERV};
    if (!weir_address_split(address, host, &port) || host[0] == '\0') {
        snprintf(why, why_len, "'%s' is no server's address; write HOST:PORT", address);
        return WEIR_ERR_INVALID;
    }
    int err = getaddrinfo(host, port, &hints, found);
    if (err != 0) {
        snprintf(why, why_len, "%s: %s", address, gai_strerror(err));
        return WEIR_ERR_IO;
    }
    return 0;
}

/* How long sending and receiving may take, connecting included. */
static bool set_patience(int fd, uint32_t timeout_ms)
{
    const struct timeval patience = {.tv_sec = timeout_ms / 1000,
                                     .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0;
}

/* -1 with errno. */
static int connected(int socktype, const struct sockaddr *to, socklen_t to_len, uint32_t timeout_ms)
{
    const int one = 1, flags = SOCK_CLOEXEC | (timeout_ms == 0 ? SOCK_NONBLOCK : 0);
    bool is_tcp = socktype == SOCK_STREAM && to->sa_family != AF_UNIX;
    int fd = socket(to->sa_family, socktype | flags, 0);
    if (fd < 0)
        return -1;
    if ((timeout_ms == 0 || set_patience(fd, timeout_ms)) &&
        (!is_tcp || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0) &&
        connect(fd, to, to_len) == 0)
        return fd;
    int err = errno == EINPROGRESS ? ETIMEDOUT : errno;
    close(fd);
    errno = err;
    return -1;
}

static int dial_unix(const char *path, int socktype, uint32_t timeout_ms)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(to.sun_path)) {
        errno = len == 0 ? EDESTADDRREQ : ENAMETOOLONG;
        return -1;
    }
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    socklen_t to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return connected(socktype, (const struct sockaddr *)&to, to_len, timeout_ms);
}

int weir_dial(int *out_fd, const char *address, int socktype, uint32_t timeout_ms, char *why,
              size_t why_len)
{
    struct addrinfo *found = NULL;
    int fd = -1;
    if (strncmp(address, WEIR_ADDRESS_UNIX, strlen(WEIR_ADDRESS_UNIX)) == 0) {
        fd = dial_unix(address + strlen(WEIR_ADDRESS_UNIX), socktype, timeout_ms);
    } else {
        int err = weir_dial_resolve(address, socktype, &found, why, why_len);
        if (err != 0)
            return err;
        for (struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
            fd = connected(socktype, at->ai_addr, at->ai_addrlen, timeout_ms);
    }
    if (fd < 0)
        snprintf(why, why_len, "%s: %s", address, strerror(errno));
    if (found != NULL)
        freeaddrinfo(found);
    if (fd < 0)
        return WEIR_ERR_IO;
    *out_fd = fd;
    return 0;
}
