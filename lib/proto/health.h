/* health.h - grpc.health.v1 in protobuf: which service is asked for, and how it is.
 *
 * Purity: no I/O, no clock, no allocation but from the memory given.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_HEALTH_H
#define WEIR_PROTO_HEALTH_H

#include "proto/bump.h"

#include <weir/weir.h>

enum weir_health {
    WEIR_HEALTH_UNKNOWN = 0,
    WEIR_HEALTH_SERVING = 1,
    WEIR_HEALTH_NOT_SERVING = 2,
    WEIR_HEALTH_SERVICE_UNKNOWN = 3, /* to Watch only; Check says NOT_FOUND */
};

#define WEIR_HEALTH_LEN 2 /* bytes of a response */

/* 0, or WEIR_ERR_INVALID, WEIR_ERR_TOO_LARGE.  service borrows from memory. */
WEIR_MUST_CHECK int weir_health_decode(struct weir_bump *memory, struct weir_str message,
                                       struct weir_str *service);
/* out: WEIR_HEALTH_LEN bytes.  health is not UNKNOWN, which would be shorter. */
void weir_health_pack(enum weir_health health, uint8_t *out);

#endif
