/* recall_rig.h - HTTP requests in one line, asked of an engine that may recall and of one that
 * forgets.
 *
 *     ask_swiftly(r, "user=ann path=/x", NULL, &told)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_RECALL_RIG_H
#define WEIR_TESTS_RECALL_RIG_H

#include "engine/engine.h"
#include "engine_rig.h"

/* "user=ann path=/x": the attributes of a request. */
static inline int look_up(void *ctx, struct weir_str key, struct weir_str *value)
{
    for (const char *at = ctx; *at;) {
        size_t len = strcspn(at, " "), key_len = strcspn(at, "=");
        if (key_len == key.len && memcmp(at, key.ptr, key_len) == 0) {
            *value = (struct weir_str){.ptr = at + key_len + 1, .len = len - key_len - 1};
            return 1;
        }
        at += len + (at[len] == ' ');
    }
    return 0;
}

/* By its address alone, if it has one; but only every other request, so that both ways are gone. */
static inline bool ask_by_address(struct rig *r, char *attributes, struct weir_told *told)
{
    static unsigned count;
    struct weir_str address;
    return ++count % 2 && look_up(attributes, WEIR_STR("remote_address"), &address) &&
           weir_check_address_again(r->s, address, r->now_ns, told);
}

/* In memory that is gone afterwards, as a request's is.  told: what there is to tell; NULL: the
 * quickest way is not taken.  Says whether it was. */
static inline bool ask_swiftly(struct rig *r, const char *attributes, const uint64_t *hits,
                               struct weir_told *told)
{
    char *copy = strdup(attributes);
    assert_non_null(copy);
    struct weir_http http = {
        .attribute = look_up, .ctx = copy, .has_hits = hits, .hits = hits ? *hits : 0};
    bool is_swift = told && ((!hits && ask_by_address(r, copy, told)) ||
                             weir_check_http_again(r->s, &http, r->now_ns, told));
    if (!is_swift)
        assert_int_equal(weir_check_http(r->s, &http, r->now_ns, &r->decision), 0);
    if (told && !is_swift)
        weir_headers_tell(told, &r->decision, r->now_ns);
    memset(copy, '#', strlen(copy));
    free(copy);
    return is_swift;
}

/* Such a request is about to come; or does not. */
static inline bool foresee(struct rig *r, const char *attributes)
{
    char *copy = strdup(attributes);
    assert_non_null(copy);
    struct weir_http http = {.attribute = look_up, .ctx = copy};
    bool was_fetched = weir_check_http_soon(r->s, &http);
    memset(copy, '#', strlen(copy));
    free(copy);
    return was_fetched;
}

static inline void forget(struct rig *r)
{
    struct weir_decision kept = r->decision;
    r->decision.statuses = r->statuses;
    ask(r, "elsewhere", "x=y");
    r->decision = kept;
    assert_false(r->s->is_recallable);
}

static inline void assert_told_alike(const struct weir_told *a, const struct weir_told *b)
{
    assert_int_equal(a->is_limited, b->is_limited);
    assert_int_equal(a->is_refused, b->is_refused);
    assert_int_equal(a->limit, b->limit);
    assert_int_equal(a->remaining, b->remaining);
    assert_int_equal(a->wait_s, b->wait_s);
    assert_int_equal(a->reset_after_ns, b->reset_after_ns);
    assert_int_equal(a->now_ns, b->now_ns);
    assert_int_equal(a->rule != NULL, b->rule != NULL);
    assert_true(!a->rule || weir_str_eq(a->rule->id, b->rule->id));
}

static inline void assert_same_statistics(struct rig *a, struct rig *b, const char *id)
{
    struct weir_rule_stats x = stats_of(a, id), y = stats_of(b, id);
    assert_int_equal(x.total_hits, y.total_hits);
    assert_int_equal(x.within_limit, y.within_limit);
    assert_int_equal(x.near_limit, y.near_limit);
    assert_int_equal(x.over_limit, y.over_limit);
    assert_int_equal(x.shadow_mode, y.shadow_mode);
}

static inline uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % below;
}

#endif
