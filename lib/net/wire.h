/* wire.h - a connection that waits: for commands, which have nothing else to do meanwhile.
 *
 * Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_WIRE_H
#define WEIR_NET_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

/* Connects to HOST:PORT, [IPv6]:PORT or unix:PATH.  Nothing takes longer than timeout_ms, neither
 * here nor later.  0, WEIR_ERR_INVALID or WEIR_ERR_IO; why[] then says what is wrong. */
WEIR_MUST_CHECK int weir_wire_open(int *out, const char *address, uint32_t timeout_ms, char *why,
                                   size_t why_len);
void weir_wire_close(int wire);
/* 0, or WEIR_ERR_IO. */
WEIR_MUST_CHECK int weir_wire_send(int wire, const void *bytes, size_t len);
/* How many bytes have come, at least 1; or WEIR_ERR_IO, also where the peer has closed. */
WEIR_MUST_CHECK int weir_wire_recv(int wire, void *bytes, size_t len);

#endif
