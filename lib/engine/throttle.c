/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/throttle.h"

#include "algo/math.h"
#include "engine/engine.h"
#include "engine/identity.h"
#include "engine/top.h"

#define TAG UINT64_C(0x746c6c2e72696577) /* of the table's format: never changes */
#define STEP_NS_MAX (UINT64_C(1) << 46)  /* of steps counted in 65536ths */
#define BATCH_MAX 32                     /* keys whose memory is fetched at once */

uint64_t weir_throttle_key(const struct weir_session *s, struct weir_str key)
{
    const struct weir_hash_key *secret = weir_table_hash_key(s->engine->table);
    return weir_identity_key(weir_siphash13(secret, key.ptr, key.len), TAG);
}

/* The step and the cap again, in dens that are the same for all rates. */
static int set_rate(struct weir_limit *limit)
{
    uint32_t den = limit->step_ns < STEP_NS_MAX ? WEIR_STEP_DEN_MAX : 1;
    weir_u128 step = (weir_u128)limit->window_ns * den;
    step = (step + limit->requests - 1) / limit->requests;
    weir_u128 cap = step * limit->burst;
    if (cap > (weir_u128)WEIR_BUCKET_SPAN_NS_MAX * den)
        return WEIR_ERR_TOO_LARGE;
    limit->step_den = den;
    limit->step_ns = (uint64_t)(step / den);
    limit->step_num = (uint32_t)(step % den);
    limit->cap_ns = (uint64_t)(cap / den);
    limit->cap_num = (uint32_t)(cap % den);
    return 0;
}

static int make_limit(struct weir_limit *out, const struct weir_throttle *throttle)
{
    char why[128];
    const struct weir_limit_spec spec = {
        .algorithm = WEIR_TOKEN_BUCKET,
        .requests_per_unit = throttle->count,
        .burst = throttle->burst,
        .window_s = throttle->period_s,
        .buckets = 1,
    };
    struct weir_limit limit;
    if (throttle->count == 0 || throttle->burst == 0 || throttle->period_s == 0)
        return WEIR_ERR_INVALID;
    int err = weir_limit_init(&limit, &spec, why, sizeof(why));
    if (err == 0)
        err = set_rate(&limit);
    if (err != 0)
        return err;
    /* Not bound to the table, which needs to know neither: a bucket's slot names no window, and
     * its rate is the caller's business. */
    limit.record = WEIR_NO_RECORD;
    limit.lag_ms = UINT32_MAX; /* what another burst has used stands (see the header) */
    *out = limit;
    return 0;
}

int weir_throttle_limit(struct weir_throttle_sets *sets, const struct weir_throttle *throttle,
                        const struct weir_limit **out)
{
    uint64_t mixed = throttle->burst * UINT64_C(0x9e3779b97f4a7c15) ^
                     throttle->count * UINT64_C(0xd6e8feb86659fd93) ^
                     throttle->period_s * UINT64_C(0xa0761d6478bd642f);
    struct weir_limit *limit = &sets->limits[mixed >> 32 & (WEIR_THROTTLE_SETS - 1)];
    bool is_known = limit->burst == throttle->burst && limit->requests == throttle->count &&
                    limit->window_ns == throttle->period_s * WEIR_NS_PER_S && limit->window_ns != 0;
    int err = is_known ? 0 : make_limit(limit, throttle);
    if (err == 0)
        *out = limit;
    return err;
}

/* A look at a bucket that a larger burst has left too empty for this one is refused, as any other
 * request would be: the algorithms, which know of one burst only, allow every look. */
static void refuse_look(const struct weir_limit *limit, struct weir_verdict *verdict)
{
    uint64_t cap_ns = limit->cap_ns + (limit->cap_num > 0);
    if (verdict->reset_after_ns > cap_ns) {
        verdict->allowed = false;
        verdict->retry_after_ns = verdict->reset_after_ns - cap_ns;
    }
}

void weir_throttle_tell(const struct weir_session *s, const struct weir_limit *limit,
                        const struct weir_throttle *throttle, struct weir_verdict *verdict,
                        struct weir_throttled *out)
{
    if (throttle->quantity == 0)
        refuse_look(limit, verdict);
    bool allowed = verdict->allowed || s->engine->options.shadow_mode;
    *out = (struct weir_throttled){
        .allowed = allowed,
        .limit = verdict->limit,
        .remaining = verdict->remaining,
        .retry_after_ns = allowed ? 0 : verdict->retry_after_ns,
        .reset_after_ns = verdict->reset_after_ns,
    };
}

/* The table's verdict, and whether it was a refusal, in shadow mode too. */
static int count(struct weir_session *s, const struct weir_throttle *throttle, uint64_t key,
                 uint64_t now_ns, struct weir_throttled *out, bool *is_over)
{
    const struct weir_limit *limit;
    struct weir_table *table = s->engine->table;
    struct weir_verdict verdict;
    uint64_t mark;
    int err = weir_throttle_limit(&s->throttles, throttle, &limit);
    if (err != 0)
        return err;
    if (throttle->quantity > 0) {
        weir_local_take(table, limit, key, now_ns, (uint64_t)throttle->quantity, &verdict, &mark);
    } else if (throttle->quantity < 0) {
        weir_local_give(table, limit, key, now_ns, 0 - (uint64_t)throttle->quantity, &verdict);
    } else {
        weir_local_look(table, limit, key, now_ns, 0, &verdict);
    }
    *is_over = !verdict.allowed;
    weir_throttle_tell(s, limit, throttle, &verdict, out);
    return 0;
}

static int decide(struct weir_session *s, const struct weir_throttle *throttle, uint64_t key,
                  uint64_t now_ns, struct weir_throttled *out)
{
    bool is_over;
    int err = count(s, throttle, key, now_ns, out, &is_over);
    if (err == 0 && throttle->quantity > 0 && weir_top_is_due(s))
        (void)weir_top_tell_throttle(s, key, throttle, is_over, now_ns);
    return err;
}

int weir_throttle_quietly(struct weir_session *s, const struct weir_throttle *throttle,
                          uint64_t now_ns, struct weir_throttled *out)
{
    if (throttle->key.len > WEIR_VALUE_LEN_MAX)
        return WEIR_ERR_TOO_LARGE;
    bool is_over;
    return count(s, throttle, weir_throttle_key(s, throttle->key), now_ns, out, &is_over);
}

int weir_throttle(struct weir_session *s, const struct weir_throttle *throttle, uint64_t now_ns,
                  struct weir_throttled *out)
{
    if (throttle->key.len > WEIR_VALUE_LEN_MAX)
        return WEIR_ERR_TOO_LARGE;
    return decide(s, throttle, weir_throttle_key(s, throttle->key), now_ns, out);
}

bool weir_throttle_reset(struct weir_session *s, struct weir_str key)
{
    return key.len <= WEIR_VALUE_LEN_MAX &&
           weir_local_reset(s->engine->table, weir_throttle_key(s, key));
}

void weir_throttle_many(struct weir_session *s, const struct weir_throttle *throttles, size_t n,
                        uint64_t now_ns, struct weir_throttled *outs, int *results)
{
    uint64_t keys[BATCH_MAX];
    for (size_t begin = 0; begin < n; begin += BATCH_MAX) {
        size_t end = n - begin > BATCH_MAX ? begin + BATCH_MAX : n;
        for (size_t i = begin; i < end; i++) {
            results[i] = throttles[i].key.len > WEIR_VALUE_LEN_MAX ? WEIR_ERR_TOO_LARGE : 0;
            if (results[i] != 0)
                continue;
            keys[i - begin] = weir_throttle_key(s, throttles[i].key);
            weir_local_prefetch(s->engine->table, keys[i - begin]);
        }
        for (size_t i = begin; i < end; i++)
            if (results[i] == 0)
                results[i] = decide(s, &throttles[i], keys[i - begin], now_ns, &outs[i]);
    }
}
