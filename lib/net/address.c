/* address.c - "HOST:PORT", ":PORT", "[IPv6]:PORT" or "unix:PATH" to a socket that listens.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */
#define UNIX_MODE 0660

void weir_address_peer(const struct sockaddr_storage *from, char *out, size_t len)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    const char *text = NULL;
    if (from->ss_family == AF_INET)
        text = inet_ntop(AF_INET, &v4->sin_addr, out, (socklen_t)len);
    else if (from->ss_family == AF_INET6 && memcmp(&v6->sin6_addr, mapped, sizeof(mapped)) == 0)
        text = inet_ntop(AF_INET, v6->sin6_addr.s6_addr + sizeof(mapped), out, (socklen_t)len);
    else if (from->ss_family == AF_INET6)
        text = inet_ntop(AF_INET6, &v6->sin6_addr, out, (socklen_t)len);
    if (text == NULL)
        snprintf(out, len, "unix");
}

/* In the words of people who start servers, where errno's are not. */
static int fail(const char *address, const char *what, int err, char *why, size_t why_len)
{
    if (err == EADDRINUSE)
        snprintf(why, why_len, "%s: address already in use", address);
    else if (err == EACCES)
        snprintf(why, why_len, "%s: %s: permission denied%s", address, what,
                 strcmp(what, "bind") == 0 ? " (ports below 1024 need CAP_NET_BIND_SERVICE)" : "");
    else
        snprintf(why, why_len, "%s: %s: %s", address, what, strerror(err));
    return WEIR_ERR_IO;
}

/* ---- TCP ---- */

bool weir_address_split(const char *text, char host[WEIR_ADDRESS_HOST_LEN_MAX + 1],
                        const char **port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon[1] == '\0' || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strtoul(colon + 1, NULL, 10) > 65535)
        return false;
    const char *from = text;
    size_t len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        from++;
        len -= 2;
    } else if (memchr(text, ':', len) != NULL) {
        return false; /* an IPv6 address without brackets could end anywhere */
    }
    if (len > WEIR_ADDRESS_HOST_LEN_MAX)
        return false;
    memcpy(host, from, len);
    host[len] = '\0';
    *port = colon + 1;
    return true;
}

/* A socket bound to one of the addresses that a name has; -1 with errno. */
static int bind_tcp(const struct addrinfo *ai, bool is_shared)
{
    int on = 1, off = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        (!is_shared || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0) &&
        (ai->ai_family != AF_INET6 ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
        bind(fd, ai->ai_addr, ai->ai_addrlen) == 0)
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* What getsockname() says, as HOST:PORT; NULL where memory lacks. */
static char *name_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage all;
    } at;
    socklen_t len = sizeof(at);
    char host[INET6_ADDRSTRLEN];
    char *text = NULL;
    memset(&at, 0, sizeof(at));
    if (getsockname(fd, &at.any, &len) != 0)
        return NULL;
    in_port_t port = at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port;
    weir_address_peer(&at.all, host, sizeof(host));
    bool is_v6 = strchr(host, ':') != NULL; /* and not an IPv4 address inside one */
    if (asprintf(&text, is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)ntohs(port)) < 0)
        return NULL;
    return text;
}

static int listen_tcp(struct weir_listener *listener, const char *text, bool is_shared, char *why,
                      size_t why_len)
{
    char host[WEIR_ADDRESS_HOST_LEN_MAX + 1];
    const char *port;
    if (!weir_address_split(text, host, &port)) {
        snprintf(why, why_len,
                 "'%s' is no address; write HOST:PORT, :PORT, [IPv6]:PORT or unix:PATH", text);
        return WEIR_ERR_INVALID;
    }
    /* All addresses: IPv6 first, whose sockets take IPv4 too; then for hosts without IPv6. */
    const char *hosts[] = {host[0] != '\0' ? host : "::", host[0] != '\0' ? NULL : "0.0.0.0"};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int err = 0;
    for (size_t i = 0; i < 2 && listener->fd < 0 && hosts[i] != NULL; i++) {
        struct addrinfo *found;
        int gai = getaddrinfo(hosts[i], port, &hints, &found);
        if (gai != 0) {
            snprintf(why, why_len, "%s: %s: %s", text, hosts[i], gai_strerror(gai));
            return WEIR_ERR_IO;
        }
        for (struct addrinfo *ai = found; ai != NULL && listener->fd < 0; ai = ai->ai_next) {
            listener->fd = bind_tcp(ai, is_shared);
            err = listener->fd < 0 ? errno : 0;
        }
        freeaddrinfo(found);
        if (err == EADDRINUSE)
            break;
    }
    if (listener->fd < 0)
        return fail(text, "bind", err, why, why_len);
    if (listen(listener->fd, BACKLOG) != 0)
        return fail(text, "listen", errno, why, why_len);
    listener->address = name_of(listener->fd);
    if (listener->address == NULL) {
        snprintf(why, why_len, "%s: out of memory", text);
        return WEIR_ERR_NOMEM;
    }
    return 0;
}

/* ---- unix sockets ---- */

/* A socket file outlives the process that made it.  Whether somebody still listens shows only when
 * one tries to connect. */
static bool is_live(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true; /* not known, so not ours to take */
    bool live = connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0 || errno == EAGAIN;
    close(fd);
    return live;
}

/* Bound and listening under another name, which is then renamed to the one that was asked for: no
 * moment without a socket there, none with wrong permissions, and who is there keeps its
 * connections.  -1 with errno. */
static int bind_unix(const struct sockaddr_un *made, const char *path, struct stat *is)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    unlink(made->sun_path); /* what a process with our number left behind */
    if (bind(fd, (const struct sockaddr *)made, sizeof(*made)) == 0 &&
        chmod(made->sun_path, UNIX_MODE) == 0 && listen(fd, BACKLOG) == 0 &&
        stat(made->sun_path, is) == 0 && rename(made->sun_path, path) == 0)
        return fd;
    int err = errno;
    unlink(made->sun_path);
    close(fd);
    errno = err;
    return -1;
}

static int listen_unix(struct weir_listener *listener, const char *text, bool is_shared, char *why,
                       size_t why_len)
{
    const char *path = text + strlen(WEIR_ADDRESS_UNIX);
    struct sockaddr_un at = {.sun_family = AF_UNIX}, made = {.sun_family = AF_UNIX};
    struct stat is;
    size_t room = sizeof(made.sun_path);
    if (path[0] == '\0' ||
        (size_t)snprintf(made.sun_path, room, "%s.%d", path, (int)getpid()) >= room) {
        snprintf(why, why_len, "%s: a socket's path has 1 to %zu bytes", text, room - 12);
        return WEIR_ERR_INVALID;
    }
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    if (lstat(path, &is) == 0 && (!S_ISSOCK(is.st_mode) || (!is_shared && is_live(&at))))
        return fail(text, "bind", S_ISSOCK(is.st_mode) ? EADDRINUSE : EEXIST, why, why_len);
    listener->fd = bind_unix(&made, path, &is);
    if (listener->fd < 0)
        return fail(text, "bind", errno, why, why_len);
    listener->is_unix = true;
    listener->unix_device = is.st_dev;
    listener->unix_inode = is.st_ino;
    listener->unix_path = strdup(path);
    listener->address = strdup(text);
    if (listener->unix_path == NULL || listener->address == NULL) {
        snprintf(why, why_len, "%s: out of memory", text);
        return WEIR_ERR_NOMEM;
    }
    return 0;
}

void weir_address_unlink(const struct weir_listener *listener)
{
    struct stat is;
    /* Only if it is still ours: a successor may have taken the path over. */
    if (listener->unix_path != NULL && lstat(listener->unix_path, &is) == 0 &&
        is.st_dev == listener->unix_device && is.st_ino == listener->unix_inode)
        unlink(listener->unix_path);
}

int weir_address_listen(struct weir_listener *listener, const char *text, bool is_shared, char *why,
                        size_t why_len)
{
    if (strncmp(text, WEIR_ADDRESS_UNIX, strlen(WEIR_ADDRESS_UNIX)) == 0)
        return listen_unix(listener, text, is_shared, why, why_len);
    return listen_tcp(listener, text, is_shared, why, why_len);
}
