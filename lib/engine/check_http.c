/* An HTTP request: as the last one was (recall.h), or described, planned and decided.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/math.h"
#include "base/hot.h"
#include "base/str.h"
#include "engine/decide.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "engine/stats.h"
#include "store/there.h"
#include "table/key_overrides.h"

/* ---- as the last one was ---- */

/* Who names none was told that there is only one; who names one knows better. */
static bool is_of_domain(const struct weir_session *s, struct weir_str name)
{
    return WEIR_MOSTLY(!name.ptr) ? s->recall.is_sole
                                  : weir_str_eq(name, weir_domain_name(s->plans[0].domain));
}

static bool is_asked_alike(struct weir_session *s, const struct weir_http *http)
{
    const struct weir_recall *r = &s->recall;
    return WEIR_MOSTLY(http->stage == WEIR_STAGE_ALL && http->has_hits == r->has_hits) &&
           WEIR_MOSTLY(!http->has_hits || http->hits == r->hits) &&
           WEIR_MOSTLY(is_of_domain(s, http->domain));
}

static inline bool is_same_short(struct weir_str a, struct weir_str b)
{
    for (size_t i = 0; i < a.len; i++)
        if (a.ptr[i] != b.ptr[i])
            return false;
    return true;
}

/* Of one to two words, as most addresses are. */
static inline bool is_same_pair(const char *a, const char *b, size_t len)
{
    uint64_t first[2], last[2];
    const size_t word = sizeof(uint64_t);
    memcpy(&first[0], a, word);
    memcpy(&first[1], b, word);
    memcpy(&last[0], a + len - word, word);
    memcpy(&last[1], b + len - word, word);
    return first[0] == first[1] && last[0] == last[1];
}

/* Without a call, where it is not long. */
static inline bool is_same(struct weir_str a, struct weir_str b)
{
    const size_t word = sizeof(uint64_t);
    if (WEIR_SELDOM(a.len != b.len))
        return false;
    if (WEIR_SELDOM(a.len < word))
        return is_same_short(a, b);
    return WEIR_MOSTLY(a.len <= 2 * word) ? is_same_pair(a.ptr, b.ptr, a.len) : weir_str_eq(a, b);
}

/* An answer that is there, and was.  Where it is another, the plan may become its. */
static inline bool is_alike(struct weir_session *s, uint32_t i, struct weir_str value)
{
    return WEIR_MOSTLY(is_same(value, s->recall.answers[i].value)) ||
           (i == s->recall.named && weir_recall_rename(s, value));
}

/* Once in memory, though three call it: who asks again finds it where who asked before has left
 * it.  Values are written to the session: on the stack they would be guarded. */
static __attribute__((noinline)) WEIR_HOT bool answers_alike(struct weir_session *s,
                                                             const struct weir_http *http)
{
    struct weir_recall *r = &s->recall;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct weir_answer *before = &r->answers[i];
        int found = http->attribute(http->ctx, before->key, &r->value);
        if (WEIR_SELDOM(found != before->is_there) || (found && !is_alike(s, i, r->value)))
            return false;
    }
    return true;
}

/* Whether no key has a limit of its own for a while, which would change the plan.  The table is
 * asked once of an instant: what another process gives after this one has read the clock, it gives
 * later, and what this process gives is news (publish.h). */
static inline bool is_plain(struct weir_session *s, uint64_t now_ns)
{
    if (WEIR_MOSTLY(s->plain_ns == now_ns))
        return true;
    if (weir_key_overrides_live(s->engine->table, now_ns))
        return false;
    s->plain_ns = now_ns;
    return true;
}

/* Whether the session's plan is this request's, too. */
static inline bool is_recalled(struct weir_session *s, const struct weir_http *http,
                               uint64_t now_ns)
{
    return s->is_recallable && is_asked_alike(s, http) && is_plain(s, now_ns) &&
           answers_alike(s, http);
}

/* ---- decided ---- */

/* An HTTP request that has no plan yet. */
static __attribute__((noinline)) int check_described(struct weir_session *s,
                                                     const struct weir_http *http, uint64_t now_ns,
                                                     struct weir_decision *out)
{
    struct weir_http heard = weir_recall_listen(s, http);
    struct weir_decision decision;
    struct weir_request request;
    int err = weir_http_describe(s, &heard, &request, &decision);
    if (!err && request.descriptor_count > 0) {
        err = weir_check_held(s, &request, now_ns, &decision);
        if (!err)
            weir_recall_note(s, now_ns);
    }
    if (!err)
        *out = decision;
    return err;
}

/* ---- decided again: one token bucket ----
 *
 * What follows says whether it was allowed.  Refused is not taken: it is decided once more, with
 * all that belongs to it. */

/* Of a key that is nowhere, or of a limit that has fractions. */
static __attribute__((noinline)) bool take_parts(struct weir_session *s, uint64_t now_ns,
                                                 struct weir_told *out)
{
    struct weir_swift *swift = &s->swift;
    const struct weir_charge *c = s->charges;
    struct weir_verdict verdict;
    uint64_t mark;
    if (swift->slot == NULL) {
        weir_local_take_again(s->engine->table, c->limit, c->key, now_ns, swift->hits, &verdict,
                              &mark, &swift->slot);
    } else if (!weir_local_take_there(c->limit, c->key, now_ns, swift->hits, &verdict,
                                      swift->slot)) {
        swift->slot = NULL; /* looked for anew next time */
        return false;
    }
    if (!verdict.allowed)
        return false;
    weir_stats_decided(s, s->items, &verdict);
    out->limit = verdict.limit;
    out->remaining = verdict.remaining;
    out->reset_after_ns = verdict.reset_after_ns;
    return true;
}

static inline uint64_t steps_of(const struct weir_swift *swift, uint64_t ahead_ns)
{
    return weir_ceil_div(ahead_ns, swift->step_ns);
}

static __attribute__((noinline)) void count_near(struct weir_session *s, uint64_t ahead_ns)
{
    const struct weir_verdict verdict = {
        .allowed = true, .limit = s->swift.places, .before = steps_of(&s->swift, ahead_ns)};
    weir_stats_decided(s, s->items, &verdict);
}

static inline bool take(struct weir_session *s, uint64_t now_ns, struct weir_told *out)
{
    struct weir_swift *swift = &s->swift;
    uint64_t ahead_ns = 0, places = swift->places;
    if (!swift->slot)
        swift->slot = weir_local_find(s->engine->table, s->charges->key);
    if (WEIR_SELDOM(!swift->slot || !swift->is_timed))
        return take_parts(s, now_ns, out);
    enum weir_pass pass =
        weir_there_pass(&swift->toll, swift->mark, now_ns, swift->slot, &ahead_ns);
    if (WEIR_SELDOM(pass == WEIR_PASS_GONE))
        swift->slot = NULL; /* looked for anew next time */
    if (WEIR_SELDOM(pass != WEIR_PASS_TAKEN))
        return false;
    if (WEIR_MOSTLY(ahead_ns < swift->calm_ns))
        weir_stats_add_within(swift->within, swift->hits);
    else
        count_near(s, ahead_ns);
    out->limit = places;
    out->remaining = places - swift->hits - steps_of(swift, ahead_ns);
    out->reset_after_ns = ahead_ns + swift->toll.cost_ns;
    return true;
}

/* It was taken. */
static inline bool tell(struct weir_session *s, uint64_t now_ns, struct weir_told *out)
{
    if (weir_top_is_due(s))
        weir_top_tell(s, &s->plans[0], NULL, now_ns);
    out->rule = s->swift.rule;
    out->generation = s->swift.generation;
    out->is_limited = s->swift.is_ready; /* true: as a constant it would be fetched from afar */
    out->is_refused = false;
    out->foretell = s->foretell;
    out->by_address = s->swift.by_address;
    out->wait_s = 0;
    out->now_ns = now_ns;
    return true;
}

WEIR_HOT bool weir_check_http_again(struct weir_session *s, const struct weir_http *http,
                                    uint64_t now_ns, struct weir_told *out)
{
    if (!s->is_recallable) /* asked first: who is not like the last one has come in vain */
        return false;
    (void)weir_publish_hold(s);
    return WEIR_MOSTLY(s->swift.is_ready && is_recalled(s, http, now_ns)) && take(s, now_ns, out) &&
           tell(s, now_ns, out);
}

/* Whether it is the client that came last: found beside what that one met, without the answers. */
static inline bool is_last_client(const struct weir_swift *swift, struct weir_str address)
{
    return address.len == swift->address_len && address.len >= sizeof(uint64_t) &&
           is_same_pair(address.ptr, swift->address, address.len);
}

WEIR_HOT bool weir_check_address_again(struct weir_session *s, struct weir_str address,
                                       uint64_t now_ns, struct weir_told *out)
{
    (void)weir_publish_hold(s);
    return WEIR_MOSTLY(s->is_recallable && s->swift.by_address) && is_plain(s, now_ns) &&
           (WEIR_MOSTLY(is_last_client(&s->swift, address)) || is_alike(s, 0, address)) &&
           take(s, now_ns, out) && tell(s, now_ns, out);
}

WEIR_HOT bool weir_check_http_soon(struct weir_session *s, const struct weir_http *http)
{
    s->foretell = false; /* until a key is another */
    if (s->is_recallable && s->swift.is_ready)
        (void)answers_alike(s, http); /* which fetches what has another name */
    return s->foretell;
}

WEIR_HOT int weir_check_http(struct weir_session *s, const struct weir_http *http, uint64_t now_ns,
                             struct weir_decision *out)
{
    (void)weir_publish_hold(s);
    if (WEIR_SELDOM(!is_recalled(s, http, now_ns)))
        return check_described(s, http, now_ns, out);
    out->statuses = weir_http_room_of(s)->statuses;
    weir_decide(s, &s->plans[0], now_ns, out); /* and no key has a limit of its own */
    return 0;
}
