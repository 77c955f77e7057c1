/* service_view.c - what front ends may ask of the service; from any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "serve/service_internal.h"

bool weir_service_is_healthy(const struct weir_service *service)
{
    /* relaxed: flags that stand alone */
    if (atomic_load_explicit(&service->is_going_down, memory_order_relaxed))
        return false;
    return !service->settings->healthy_with_rules ||
           atomic_load_explicit(&service->has_rules, memory_order_relaxed);
}

const struct weir_settings *weir_service_settings(const struct weir_service *service)
{
    return service->settings;
}

struct weir_audit *weir_service_audit(const struct weir_service *service)
{
    return service->audit;
}

struct weir_log *weir_service_log(const struct weir_service *service)
{
    return service->log;
}

const struct weir_http_options *weir_service_http_options(const struct weir_service *service)
{
    return &service->http;
}

struct weir *weir_service_engine(const struct weir_service *service)
{
    return service->engine;
}

struct weir_rules_follow *weir_service_follow(const struct weir_service *service)
{
    return service->follow;
}

const struct weir_ask_shared *weir_service_store(const struct weir_service *service)
{
    return service->store;
}

uint64_t weir_service_count(const struct weir_service *service, enum weir_front front,
                            enum weir_front_count counter)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < service->worker_count; i++)
        sum += atomic_load_explicit(&service->workers[i].counts[front][counter],
                                    memory_order_relaxed); /* numbers for people */
    return sum;
}

uint64_t weir_service_hold_count(const struct weir_service *service, enum weir_hold_count counter)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < service->worker_count; i++)
        sum += weir_holds_count(service->workers[i].holds, counter);
    return sum;
}

const struct weir_eventual *weir_service_eventual(const struct weir_service *service)
{
    return service->eventual;
}

uint64_t weir_service_shadowed(const struct weir_service *service)
{
    return weir_service_count(service, WEIR_FRONT_GRPC, WEIR_FRONT_COUNT_SHADOWED) +
           weir_service_count(service, WEIR_FRONT_HTTP, WEIR_FRONT_COUNT_SHADOWED);
}

uint64_t weir_service_bad_rules(const struct weir_service *service)
{
    return atomic_load_explicit(&service->bad_rules, memory_order_relaxed);
}

const struct weir_listener *weir_service_listener(const struct weir_service *service, size_t index,
                                                  enum weir_front *front)
{
    if (index >= service->listener_count)
        return NULL;
    *front = service->listeners[index].front;
    return service->listeners[index].listener;
}

uint32_t weir_service_worker_count(const struct weir_service *service)
{
    return service->worker_count;
}

struct weir_worker *weir_service_worker(const struct weir_service *service, uint32_t number)
{
    WEIR_ASSERT(number < service->worker_count);
    return &service->workers[number];
}
