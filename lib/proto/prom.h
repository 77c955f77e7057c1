/* prom.h - numbers as Prometheus reads them: text, version 0.0.4.
 *
 *     # HELP weir_requests_total Requests decided.
 *     # TYPE weir_requests_total counter
 *     weir_requests_total{protocol="grpc"} 42
 *
 * A family's head comes once and before its samples, and its samples together; the caller sees to
 * that.  Label values are escaped here.
 *
 * Purity: no clock, no I/O; allocates as weir_buf does.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_PROM_H
#define WEIR_PROTO_PROM_H

#include "base/buf.h"

#define WEIR_PROM_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct weir_prom_label {
    const char *name;
    struct weir_str value;
};

/* type: "counter" or "gauge". */
void weir_prom_head(struct weir_buf *to, const char *name, const char *type, const char *help);
void weir_prom_sample(struct weir_buf *to, const char *name, const struct weir_prom_label *labels,
                      size_t label_count, uint64_t value);
/* A number that is not whole, or below zero. */
void weir_prom_sample_real(struct weir_buf *to, const char *name, double value);

#endif
