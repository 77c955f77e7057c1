/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/command.h"

#include "base/err.h"
#include "base/str.h"
#include "store/redis/script.h"

#include <inttypes.h>
#include <stdio.h>

/* "*3\r\n", "$11\r\n" */
static void put_size(struct weir_buf *out, char what, size_t size)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%c%zu\r\n", what, size);
    weir_buf_add(out, (struct weir_str){.ptr = text, .len = (size_t)len});
}

static void put_bulk(struct weir_buf *out, struct weir_str bytes)
{
    put_size(out, '$', bytes.len);
    weir_buf_add(out, bytes);
    weir_buf_add(out, WEIR_STR("\r\n"));
}

/* The mode, and in tests the time. */
static void put_head(struct weir_buf *out, const struct weir_redis_call *call)
{
    uint8_t head[10];
    uint8_t *end = weir_redis_put(head, call->is_atomic, 1);
    if (call->is_timed) {
        end = weir_redis_put(end, call->now_ns / WEIR_NS_PER_S, 5);
        end = weir_redis_put(end, call->now_ns % WEIR_NS_PER_S, 4);
    }
    put_bulk(out, (struct weir_str){.ptr = (const char *)head, .len = (size_t)(end - head)});
}

void weir_redis_put_call(struct weir_buf *out, enum weir_redis_how how,
                         const struct weir_redis_call *call)
{
    WEIR_ASSERT(call->count == 0 || call->counters[call->count - 1].ends);
    put_size(out, '*', 4 + 2 * (size_t)call->count);
    if (how == WEIR_REDIS_FCALL) {
        put_bulk(out, WEIR_STR("FCALL"));
        put_bulk(out, weir_str_of(weir_redis_function));
    } else {
        put_bulk(out, WEIR_STR("EVALSHA"));
        put_bulk(out, weir_str_of(weir_redis_script_sha1));
    }
    weir_redis_put_number(out, call->count);
    for (uint32_t i = 0; i < call->count; i++)
        put_bulk(out, call->counters[i].key);
    put_head(out, call);
    for (uint32_t i = 0; i < call->count; i++) {
        uint8_t record[WEIR_REDIS_RECORD_MAX];
        size_t len = weir_redis_record_write(&call->counters[i], record);
        put_bulk(out, (struct weir_str){.ptr = (const char *)record, .len = len});
    }
}

void weir_redis_put_load(struct weir_buf *out, enum weir_redis_how how)
{
    struct weir_str args[3] = {WEIR_STR("FUNCTION"), WEIR_STR("LOAD"),
                               weir_str_of(weir_redis_library)};
    if (how == WEIR_REDIS_EVALSHA) {
        args[0] = WEIR_STR("SCRIPT");
        args[2] = weir_str_of(weir_redis_script);
    }
    weir_redis_put_command(out, args, 3);
}

void weir_redis_put_command(struct weir_buf *out, const struct weir_str *args, uint32_t count)
{
    put_size(out, '*', count);
    for (uint32_t i = 0; i < count; i++)
        put_bulk(out, args[i]);
}

void weir_redis_put_begin(struct weir_buf *out, size_t count)
{
    put_size(out, '*', count);
}

void weir_redis_put_text(struct weir_buf *out, struct weir_str text)
{
    put_bulk(out, text);
}

void weir_redis_put_number(struct weir_buf *out, uint64_t number)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRIu64, number);
    put_bulk(out, (struct weir_str){.ptr = text, .len = (size_t)len});
}

void weir_redis_put_parts(struct weir_buf *out, const struct weir_str *parts, uint32_t count)
{
    size_t len = 0;
    for (uint32_t i = 0; i < count; i++)
        len += parts[i].len;
    put_size(out, '$', len);
    for (uint32_t i = 0; i < count; i++)
        weir_buf_add(out, parts[i]);
    weir_buf_add(out, WEIR_STR("\r\n"));
}
