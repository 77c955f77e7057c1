/* datagram.h - one-way messages: to systemd's notify socket, to a StatsD server.
 *
 * Sending never waits, and what cannot be sent is lost: nobody's request depends on it.
 *
 * Threads: a descriptor may be sent on from any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_DATAGRAM_H
#define WEIR_NET_DATAGRAM_H

#include <stddef.h>
#include <weir/weir.h>

/* HOST:PORT, or unix:PATH (unix:@NAME for an abstract one).  The descriptor is to be closed by the
 * caller.  0, WEIR_ERR_INVALID or WEIR_ERR_IO. */
WEIR_MUST_CHECK int weir_datagram_open(int *out_fd, const char *address, char *why, size_t why_len);
/* 0, or WEIR_ERR_IO. */
int weir_datagram_send(int fd, const void *bytes, size_t len);

#endif
