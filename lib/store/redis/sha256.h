/* sha256.h - SHA-256 (FIPS 180-4), for names that nobody can make collide without a secret.
 *
 * Ours, because the library that has it belongs to net/; checked against the published vectors.
 *
 * Purity: no state.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_SHA256_H
#define WEIR_STORE_REDIS_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_SHA256_LEN 32

void weir_sha256(const void *bytes, size_t len, uint8_t out[static WEIR_SHA256_LEN]);

#endif
