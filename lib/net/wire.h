/* wire.h - a connection that waits: for commands and threads that have nothing else to do
 * meanwhile.
 *
 * Over TLS the server's certificate must be good and bear the name that was dialled.  (OpenSSL
 * writes to sockets in a way that raises SIGPIPE where the peer is gone: who asks for TLS ignores
 * that signal.)
 *
 * Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_WIRE_H
#define WEIR_NET_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

struct weir_wire;
struct weir_tls;

/* Connects to HOST:PORT, [IPv6]:PORT or unix:PATH; tls: weir_tls_client_new(), or NULL: plain.
 * Nothing takes longer than timeout_ms, neither here nor later.  0, WEIR_ERR_INVALID,
 * WEIR_ERR_NOMEM or WEIR_ERR_IO; why[] then says what is wrong. */
WEIR_MUST_CHECK int weir_wire_open(struct weir_wire **out, const char *address, uint32_t timeout_ms,
                                   struct weir_tls *tls, char *why, size_t why_len);
void weir_wire_close(struct weir_wire *wire); /* NULL is fine */
/* 0, or WEIR_ERR_IO. */
WEIR_MUST_CHECK int weir_wire_send(struct weir_wire *wire, const void *bytes, size_t len);
/* How many bytes have come, at least 1; or WEIR_ERR_IO, also where the peer has closed. */
WEIR_MUST_CHECK int weir_wire_recv(struct weir_wire *wire, void *bytes, size_t len);

#endif
