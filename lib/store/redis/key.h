/* key.h - what a counter is called in Redis.
 *
 *     weir:{3:api4:user=5:alice}mK3xQ0bTz_4        domain, entries, and which limit of them
 *          `---- hash slot ----'
 *
 * Every text stands behind its length, so no two descriptors have one name, whatever bytes they
 * are made of.  The sign between key and value says how the value is meant: = as it is, ~ a pattern
 * whose values share a counter, / an address cut to a prefix.  The limit is 64 bits, in base64, of
 * what makes it another counter: algorithm, window, name (rules/compile_tag.c); whoever writes the
 * rules is trusted.
 *
 * All limits of a rule lie in one hash slot, so one call to a Cluster takes them all or none.
 * Rules do not share slots on purpose: what they had in common would be one slot for all clients.
 *
 * A descriptor of more than WEIR_REDIS_NAME_MAX bytes is named by its SHA-256 instead: long values
 * are the client's to choose, and Redis's memory is not.
 *
 * Purity: no clock, no I/O; the buffer is the caller's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_KEY_H
#define WEIR_STORE_REDIS_KEY_H

#include "base/buf.h"
#include "base/maxima.h"

#include <stdint.h>

/* How the value of an entry is meant; the sign in the key. */
enum weir_redis_meaning {
    WEIR_REDIS_VALUE = '=',
    WEIR_REDIS_SHARED = '~',
    WEIR_REDIS_ADDRESS = '/',
};

struct weir_redis_entry {
    struct weir_str key;
    struct weir_str value;
    enum weir_redis_meaning meaning;
};

/* Adds the key of a counter.  prefix: of all keys, as the operator chose; must not contain a brace.
 */
void weir_redis_key_add(struct weir_buf *out, struct weir_str prefix, struct weir_str domain,
                        const struct weir_redis_entry *entries, uint32_t count, uint64_t tag);

/* Adds the key that envoyproxy/ratelimit has for a counter, to the byte:
 *
 *     <prefix><domain>_<key>_<value>_ ... _<start of the window in seconds>
 *
 * Not free of collisions, as it is not there; to go on counting beside instances of it. */
void weir_redis_compat_key_add(struct weir_buf *out, struct weir_str prefix, struct weir_str domain,
                               const struct weir_redis_entry *entries, uint32_t count,
                               uint64_t window_s, uint64_t now_ns);

/* The hash slot of a key in a Cluster, 0 .. 16383. */
uint16_t weir_redis_slot_of(struct weir_str key);

#endif
