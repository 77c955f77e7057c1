/* SPDX-License-Identifier: Apache-2.0 */
#include "net/datagram.h"

#include "net/internal.h"

#include <sys/socket.h>

int weir_datagram_open(int *out_fd, const char *address, char *why, size_t why_len)
{
    return weir_dial(out_fd, address, SOCK_DGRAM, 0, why, why_len);
}

int weir_datagram_send(int fd, const void *bytes, size_t len)
{
    return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : WEIR_ERR_IO;
}
