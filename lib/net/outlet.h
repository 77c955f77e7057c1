/* outlet.h - lines to a server that may be away: a TCP connection that nobody waits for.
 *
 *     put(line) --> held, up to a maximum --flush--> the socket takes what it takes
 *                        |                              | it breaks
 *                        v full: lost, and counted      v after a pause, twice as long each time
 *                                                         that it fails, connected anew
 *
 * A new connection begins with a whole line.
 *
 * Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_OUTLET_H
#define WEIR_NET_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

struct weir_outlet;

/* address: HOST:PORT, looked up once, now; held_max: bytes of lines. */
WEIR_MUST_CHECK int weir_outlet_new(struct weir_outlet **out, const char *address, size_t held_max,
                                    char *why, size_t why_len);
void weir_outlet_free(struct weir_outlet *outlet);

/* Whole lines, which leave with the next flush. */
void weir_outlet_put(struct weir_outlet *outlet, const void *lines, size_t len);
/* Connects if need be, and sends what the socket takes; never waits. */
void weir_outlet_flush(struct weir_outlet *outlet);

bool weir_outlet_is_connected(const struct weir_outlet *outlet);
/* Bytes that were lost, since the beginning. */
uint64_t weir_outlet_lost(const struct weir_outlet *outlet);

#endif
