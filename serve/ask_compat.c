/* ask_compat.c - --compat-keys: counters that instances of envoyproxy/ratelimit share with us.
 *
 * Its keys to the byte (store/redis/key.h), and its commands: INCRBY, and EXPIRE with up to five
 * minutes by chance, both in one write.  The window is that of this machine's clock, as there.
 * What is over the limit counts, too; more than the limit never passes, for every INCRBY is told
 * another number.  Hits are given back by a script that floors at 0.
 *
 * While the store is away policy decides as ever, but nothing is owed: that is not known there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/fixed_window.h"
#include "base/str.h"
#include "serve/ask_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HITS_MAX                                                                                   \
    (UINT64_C(1) << 32) /* more than any limit; 2^31 times that is too much for INCRBY */
#define JITTER_S 300u   /* as EXPIRATION_JITTER_MAX_SECONDS there, if nobody sets it */

static const char give_script[] = "local count = tonumber(redis.call('GET', KEYS[1]) or 0) "
                                  "count = math.max(count - tonumber(ARGV[1]), 0) "
                                  "redis.call('SET', KEYS[1], count, 'EX', ARGV[2]) "
                                  "return count";

static struct weir_redis_counter *counter_of(const struct weir_ask_part *part)
{
    return &part->ask->request.counters[part->from];
}

static struct weir_str number(char text[24], uint64_t value)
{
    int len = snprintf(text, 24, "%" PRIu64, value);
    return (struct weir_str){.ptr = text, .len = (size_t)len};
}

/* The window, and something by chance, so that not all keys end at once. */
static struct weir_str lifetime(char text[24], const struct weir_ask_part *part)
{
    uint64_t chance = weir_mix64(part->decided_ns ^ (uint64_t)(uintptr_t)part) % JITTER_S;
    return number(text, weir_limit_window_s(counter_of(part)->limit) + chance);
}

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_ask_part *part = (const struct weir_ask_part *)call; /* its first member */
    const struct weir_redis_counter *counter = counter_of(part);
    char hits[24], life[24];
    struct weir_str take[] = {WEIR_STR("INCRBY"), counter->key, number(hits, counter->hits)};
    struct weir_str give[] = {WEIR_STR("EVAL"), weir_str_of(give_script),    WEIR_STR("1"),
                              counter->key,     number(hits, counter->hits), lifetime(life, part)};
    (void)how;
    if (counter->op == WEIR_OP_GIVE)
        weir_redis_put_command(out, give, sizeof(give) / sizeof(give[0]));
    else
        weir_redis_put_command(out, take, sizeof(take) / sizeof(take[0]));
}

static struct weir_ask_part *part_of_expire(struct weir_redis_ask *call)
{
    return ((struct weir_ask_expire *)call)->part; /* its first member */
}

static void put_expire(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_ask_part *part = part_of_expire(call);
    char life[24];
    const struct weir_str args[] = {WEIR_STR("EXPIRE"), call->key, lifetime(life, part)};
    (void)how;
    weir_redis_put_command(out, args, sizeof(args) / sizeof(args[0]));
}

static void expire_done(struct weir_redis_ask *call, int err,
                        const struct weir_redis_answer *answer)
{
    (void)answer;
    weir_ask_part_done(part_of_expire(call), err); /* if it failed, the next hit says it again */
}

void weir_ask_compat_part(struct weir_ask_part *part, uint64_t now_ns)
{
    struct weir_redis_counter *counter = counter_of(part);
    part->is_compat = true;
    counter->hits = weir_min(counter->hits, HITS_MAX);
    part->decided_ns = now_ns;
    part->sent.call.put = put;
    part->sent.call.late_tag = 0;
    if (counter->op != WEIR_OP_TAKE)
        return; /* the script sees to its end */
    part->ask->expires[part - part->ask->parts] = (struct weir_ask_expire){
        .call = {.key = counter->key, .put = put_expire, .done = expire_done}, .part = part};
    part->ask->parts_left++;
}

bool weir_ask_compat_read(struct weir_ask_part *part, const struct weir_redis_answer *answer)
{
    struct weir_redis_counter *counter = counter_of(part);
    const struct weir_limit *limit = counter->limit;
    struct weir_window state = {.index = part->decided_ns / limit->window_ns};
    if (answer->node_count != 1 || answer->nodes[0].type != WEIR_REDIS_INTEGER)
        return false;
    int64_t after = answer->nodes[0].number;
    uint64_t count = after > 0 ? (uint64_t)after : 0;
    if (counter->op == WEIR_OP_GIVE) {
        state.count = count + counter->hits;
        weir_fixed_window_give(limit, &state, part->decided_ns, counter->hits, &counter->verdict);
    } else {
        state.count = count > counter->hits ? count - counter->hits : 0;
        weir_fixed_window_take(limit, &state, part->decided_ns, counter->hits, &counter->verdict);
    }
    counter->is_stale = false;
    counter->is_charged = counter->verdict.allowed;
    counter->new_mark = 0;
    return true;
}
