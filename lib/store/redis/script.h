/* script.h - the program that Redis runs for us (store/redis/lua), in both its wrappings.
 *
 * The build puts the parts together and names the result by its SHA-1 (tools/embed_scripts): two
 * versions of weir on one Redis each find their own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_SCRIPT_H
#define WEIR_STORE_REDIS_SCRIPT_H

extern const char weir_redis_script[];      /* for SCRIPT LOAD and EVALSHA */
extern const char weir_redis_script_sha1[]; /* 40 digits */
extern const char weir_redis_library[];     /* for FUNCTION LOAD */
extern const char weir_redis_function[];    /* its only function, and its own name */

#endif
