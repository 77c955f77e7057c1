/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/health.h"

#include "base/err.h"
#include "health.pb-c.h"
#include "proto/utf8.h"

static void *bump_alloc(void *bump, size_t len)
{
    return weir_bump_alloc(bump, len);
}

static void bump_free(void *bump, void *ptr)
{
    (void)bump, (void)ptr;
}

int weir_health_decode(struct weir_bump *memory, struct weir_str message, struct weir_str *service)
{
    ProtobufCAllocator allocator = {bump_alloc, bump_free, memory};
    Grpc__Health__V1__HealthCheckRequest *from = grpc__health__v1__health_check_request__unpack(
        &allocator, message.len, (const uint8_t *)message.ptr);
    if (!from)
        return memory->has_failed ? WEIR_ERR_TOO_LARGE : WEIR_ERR_INVALID;
    struct weir_str name = {.ptr = (const char *)from->service.data, .len = from->service.len};
    if (!weir_utf8_is_valid(name))
        return WEIR_ERR_INVALID;
    *service = name;
    return 0;
}

void weir_health_pack(enum weir_health health, uint8_t *out)
{
    Grpc__Health__V1__HealthCheckResponse to = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    to.status = (int32_t)health;
    WEIR_ASSERT(grpc__health__v1__health_check_response__pack(&to, out) == WEIR_HEALTH_LEN);
}
