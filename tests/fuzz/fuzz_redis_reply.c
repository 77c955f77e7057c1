/* fuzz_redis_reply.c - any bytes as a server's: the same replies however they are cut, and any
 * reply as the answer to a call, as a Cluster's map, and as what a Sentinel says.
 *
 * The first byte says into how many pieces the rest is cut, the second which kind of counter was
 * asked for.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/hash.h"
#include "store/redis/route.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static const struct weir_limit_spec kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .window_s = 60},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 60},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 60, .buckets = 6},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 60},
    {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 60},
    {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 60, .refill_interval = true},
    {.algorithm = WEIR_LEAKY_BUCKET, .window_s = 60},
    {.algorithm = WEIR_CONCURRENCY, .window_s = 60},
};

/* What was heard, as one number: two ways of cutting must hear the same. */
struct heard {
    uint64_t digest;
    int err;
};

static void answer(const struct weir_redis_reader *reader, const struct weir_redis_node *nodes,
                   uint32_t count, uint8_t kind)
{
    char why[128];
    struct weir_limit limit;
    struct weir_limit_spec spec = kinds[kind % 8];
    spec.requests_per_unit = spec.burst = 7;
    spec.buckets = spec.buckets ? spec.buckets : 1;
    spec.count_rejected = kind & 8;
    WEIR_ASSERT(weir_limit_init(&limit, &spec, why, sizeof(why)) == 0);
    struct weir_redis_counter counter = {
        .limit = &limit, .hits = kind >> 6, .mark = 3, .op = kind >> 4 & 3, .ends = true};
    if (counter.op == WEIR_OP_RELEASE && limit.algorithm < WEIR_LEAKY_BUCKET)
        counter.op = WEIR_OP_TAKE;
    uint64_t now_ns;
    if (weir_redis_answer_read(reader, nodes, count, &counter, 1, &now_ns) == 0)
        WEIR_ASSERT(counter.verdict.remaining <= counter.verdict.limit);
}

static void find(const struct weir_redis_reader *reader, const struct weir_redis_node *nodes,
                 uint32_t count)
{
    static const struct weir_redis_address asked = {.text = "host:1"};
    static struct weir_redis_map map;
    struct weir_redis_address address;
    if (weir_redis_map_read(&map, reader, nodes, count, &asked) == 0) {
        for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++)
            WEIR_ASSERT(map.owner[slot] < map.server_count || map.owner[slot] == WEIR_REDIS_NOBODY);
    }
    (void)!weir_redis_master_read(&address, reader, nodes, count, &asked);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_redis_redirect to;
        if (weir_redis_redirect_read(weir_redis_node_str(reader, &nodes[i]), &to) == 0)
            (void)!weir_redis_address_read(&address, to.address, &asked);
    }
}

static struct heard hear(const uint8_t *bytes, size_t len, size_t piece, uint8_t kind)
{
    static const struct weir_hash_key key = {1, 2};
    struct heard heard = {0};
    struct weir_redis_reader *reader;
    WEIR_ASSERT(weir_redis_reader_new(&reader) == 0);
    for (size_t at = 0; at < len && heard.err == 0; at += piece) {
        size_t step = len - at < piece ? len - at : piece;
        uint8_t *copy = malloc(step); /* of its own, so that a slice used too late is seen */
        WEIR_ASSERT(copy != NULL);
        memcpy(copy, bytes + at, step);
        heard.err = weir_redis_reader_feed(reader, copy, step);
        free(copy);
        const struct weir_redis_node *nodes;
        uint32_t count;
        int got = 1;
        while (heard.err == 0 && (got = weir_redis_reader_next(reader, &nodes, &count)) == 1) {
            for (uint32_t i = 0; i < count; i++) {
                struct weir_str str = weir_redis_node_str(reader, &nodes[i]);
                uint64_t text = str.ptr ? weir_siphash13(&key, str.ptr, str.len) : 0;
                heard.digest = weir_mix64(heard.digest ^ text ^ nodes[i].type ^
                                          (uint64_t)nodes[i].number << 8);
            }
            answer(reader, nodes, count, kind);
            find(reader, nodes, count);
        }
        heard.err = got < 0 ? got : heard.err;
    }
    weir_redis_reader_free(reader);
    return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 3)
        return 0;
    struct heard whole = hear(bytes + 2, len - 2, len - 2, bytes[1]);
    struct heard cut = hear(bytes + 2, len - 2, (size_t)bytes[0] + 1, bytes[1]);
    WEIR_ASSERT(whole.digest == cut.digest && (whole.err == 0) == (cut.err == 0));
    return 0;
}
