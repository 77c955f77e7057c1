/* notify.h - tells systemd how we are (Type=notify): ready, reloading, stopping, alive.
 *
 * The protocol is one datagram of text to the socket named by $NOTIFY_SOCKET; a library for it
 * would be a dependency for three lines.  Without the variable nothing is sent.
 *
 * Threads: one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_NOTIFY_H
#define WEIR_SERVE_NOTIFY_H

#include <stdint.h>
#include <weir/weir.h>

struct weir_notify {
    int fd;               /* -1: nobody listens */
    uint32_t watchdog_ms; /* 0, or how often WATCHDOG=1 must come at the least */
};

/* Reads the environment.  why[] is empty, or says why nothing will be sent. */
void weir_notify_init(struct weir_notify *notify, char *why, size_t why_len);
void weir_notify_fini(struct weir_notify *notify);
void weir_notify_send(const struct weir_notify *notify, const char *state);
/* RELOADING=1, with the time that systemd wants beside it. */
void weir_notify_reloading(const struct weir_notify *notify);

#endif
