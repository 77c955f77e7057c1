/* SPDX-License-Identifier: Apache-2.0 */
#include "net/datagram.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_PREFIX "unix:"
#define HOST_LEN_MAX 255

/* A socket that sends to that address only; -1 with errno. */
static int connected(int family, const struct sockaddr *to, socklen_t to_len)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, to, to_len) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

static int open_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(to.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    socklen_t to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return connected(AF_UNIX, (struct sockaddr *)&to, to_len);
}

static int open_udp(const char *address)
{
    const char *colon = strrchr(address, ':');
    char host[HOST_LEN_MAX + 1];
    size_t len = colon != NULL ? (size_t)(colon - address) : 0;
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    if (len == 0 || len > HOST_LEN_MAX) {
        errno = EDESTADDRREQ;
        return -1;
    }
    bool is_bracketed = address[0] == '[' && address[len - 1] == ']';
    snprintf(host, sizeof(host), "%.*s", (int)(is_bracketed ? len - 2 : len),
             address + is_bracketed);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1;
    for (struct addrinfo *ai = found; ai != NULL && fd < 0; ai = ai->ai_next)
        fd = connected(ai->ai_family, ai->ai_addr, ai->ai_addrlen);
    int err = errno;
    freeaddrinfo(found);
    errno = err;
    return fd;
}

int weir_datagram_open(int *out_fd, const char *address, char *why, size_t why_len)
{
    size_t prefix = strlen(UNIX_PREFIX);
    int fd = strncmp(address, UNIX_PREFIX, prefix) == 0 ? open_unix(address + prefix)
                                                        : open_udp(address);
    if (fd < 0) {
        snprintf(why, why_len, "%s: %s", address, strerror(errno));
        return WEIR_ERR_IO;
    }
    *out_fd = fd;
    return 0;
}

int weir_datagram_send(int fd, const void *bytes, size_t len)
{
    return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : WEIR_ERR_IO;
}
