/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire.h"

#include "net/internal.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

int weir_wire_open(int *out, const char *address, uint32_t timeout_ms, char *why, size_t why_len)
{
    return weir_dial(out, address, SOCK_STREAM, timeout_ms, why, why_len);
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
