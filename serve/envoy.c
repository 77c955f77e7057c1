/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/envoy.h"

#include "algo/limit.h"
#include "engine/combine.h"

#define SECOND_NS UINT64_C(1000000000)

/* A limit of 0 is always as if unused, so the engine has no reset to tell.  Who asks in Envoy's
 * protocol counts on one within the window: we tell its end, as the Go service does. */
static uint64_t window_left_ns(const struct weir_status *status, uint64_t now_ns)
{
    uint64_t unit_ns = weir_unit_seconds(status->unit) * SECOND_NS;
    return unit_ns > 0 ? unit_ns - now_ns % unit_ns : 0;
}

void weir_envoy_decided(struct weir_envoy_sums *sums, struct weir_decision *decision,
                        bool has_shadow, uint64_t now_ns)
{
    bool is_over = decision->overall == WEIR_CODE_OVER_LIMIT;
    sums->decided++;
    sums->over += is_over;
    if (has_shadow && !is_over)
        sums->shadowed +=
            weir_combine(decision->statuses, decision->status_count) != decision->overall;
    for (uint32_t i = 0; i < decision->status_count; i++) {
        struct weir_status *status = &decision->statuses[i];
        if (status->is_limited && status->limit == 0)
            status->reset_after_ns = window_left_ns(status, now_ns);
    }
}

void weir_envoy_count(const struct weir_envoy_sums *sums, struct weir_worker *worker,
                      enum weir_front front)
{
    weir_worker_add(worker, front, WEIR_FRONT_COUNT_REQUESTS, sums->decided);
    weir_worker_add(worker, front, WEIR_FRONT_COUNT_OVER_LIMIT, sums->over);
    weir_worker_add(worker, front, WEIR_FRONT_COUNT_SHADOWED, sums->shadowed);
}
