/* SPDX-License-Identifier: Apache-2.0 */
#include "net/datagram.h"

#include "net/internal.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_PREFIX "unix:"

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
    struct addrinfo *found;
    int fd = -1;
    if (weir_address_resolve(address, SOCK_DGRAM, &found) != 0)
        return -1;
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
