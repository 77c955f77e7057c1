/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/top.h"

#include "base/str.h"
#include "engine/publish.h"
#include "table/top.h"

#include <stdlib.h>

#define DISTANCE_MAX 64u
#define OFTEN_NS 64000u    /* told more often than this: less of it */
#define SELDOM_NS 2000000u /* less often: more; but a clock like nginx's moves once a millisecond */
#define THROTTLE_DOMAIN "CL.THROTTLE"

static uint64_t draw(struct weir_session *s)
{
    s->top.random += UINT64_C(0x9e3779b97f4a7c15);
    return weir_mix64(s->top.random);
}

/* Says how many decisions stood behind this one, and when the next is told. */
static uint64_t next_distance(struct weir_session *s, uint64_t now_ns)
{
    uint32_t mean = s->top.mean > 0 ? s->top.mean : 1;
    uint64_t passed_ns = now_ns > s->top.told_ns ? now_ns - s->top.told_ns : 0;
    if (passed_ns < OFTEN_NS && mean < DISTANCE_MAX)
        s->top.mean = 2 * mean;
    else if (passed_ns > SELDOM_NS && mean > 1)
        s->top.mean = mean / 2;
    else
        s->top.mean = mean;
    s->top.told_ns = now_ns;
    s->top_countdown = 1 + (uint32_t)(draw(s) % (2 * s->top.mean - 1));
    return mean;
}

static void tell(struct weir_session *s, const struct weir_top_hit *hit, struct weir_str domain,
                 const struct weir_entry *entries, uint32_t entry_count, uint64_t now_ns)
{
    uint32_t row = weir_top_add(s->engine->table, hit, now_ns);
    if (row == WEIR_TOP_NOWHERE)
        return;
    struct weir_key_words words = {.domain = domain, .entry_count = entry_count};
    for (uint32_t i = 0; i < entry_count; i++)
        words.entries[i] = entries[i];
    weir_top_describe(s->engine->table, row, hit->key, &words);
}

/* What it counts for; 0: it is none that asks for anything. */
static uint64_t weight_of(const struct weir_item *item, uint64_t distance)
{
    if (item->charge_count == 0 || item->is_refund)
        return 0;
    return item->hits < UINT32_MAX ? distance * item->hits : UINT32_MAX;
}

static bool is_over(const struct weir_status *status)
{
    return status->code == WEIR_CODE_OVER_LIMIT || status->is_shadow;
}

/* statuses NULL: not known yet. */
static WEIR_HOT void tell_all(struct weir_session *s, const struct weir_plan *plan,
                              const struct weir_status *statuses, uint64_t distance,
                              uint64_t now_ns)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct weir_item *item = &plan->items[i];
        uint64_t weight = weight_of(item, distance);
        if (weight == 0)
            continue;
        const struct weir_top_hit hit = {
            .key = item->charges[0].key,
            .weight = weight,
            .random = draw(s),
            .stat = item->stat,
            .is_over = statuses != NULL && is_over(&statuses[i]),
        };
        tell(s, &hit, weir_domain_name(plan->domain), item->descriptor->entries,
             item->descriptor->entry_count, now_ns);
    }
}

WEIR_HOT void weir_top_tell(struct weir_session *s, const struct weir_plan *plan,
                            const struct weir_status *statuses, uint64_t now_ns)
{
    tell_all(s, plan, statuses, next_distance(s, now_ns), now_ns);
}

uint32_t weir_top_tell_asked(struct weir_session *s, const struct weir_plan *plan, uint64_t now_ns)
{
    uint64_t distance = next_distance(s, now_ns);
    tell_all(s, plan, NULL, distance, now_ns);
    return (uint32_t)distance;
}

void weir_top_tell_over(struct weir_session *s, const struct weir_item *items, uint32_t count,
                        const struct weir_status *statuses, uint32_t distance, uint64_t now_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t weight = weight_of(&items[i], distance);
        if (weight > 0 && is_over(&statuses[i]))
            weir_top_add_over(s->engine->table, items[i].charges[0].key, weight, now_ns);
    }
}

uint64_t weir_top_tell_throttle(struct weir_session *s, uint64_t key,
                                const struct weir_throttle *throttle, bool is_over_limit,
                                uint64_t now_ns)
{
    uint64_t distance = next_distance(s, now_ns);
    const struct weir_entry entry = {WEIR_STR("key"), throttle->key};
    const struct weir_top_hit hit = {
        .key = key,
        .weight =
            throttle->quantity < UINT32_MAX ? distance * (uint64_t)throttle->quantity : UINT32_MAX,
        .random = draw(s),
        .is_over = is_over_limit,
    };
    tell(s, &hit, WEIR_STR(THROTTLE_DOMAIN), &entry, 1, now_ns);
    return hit.weight;
}

/* ---- showing ---- */

struct rank {
    uint64_t hits;
    uint32_t row;
};

static int busier_first(const void *a, const void *b)
{
    const struct rank *one = a, *other = b;
    return (one->hits < other->hits) - (one->hits > other->hits);
}

void weir_top_each(struct weir *w, uint64_t now_ns,
                   void (*each)(void *ctx, const struct weir_top_key *one), void *ctx)
{
    struct rank ranks[WEIR_TOP_KEYS_MAX];
    uint32_t count = 0;
    struct weir_top_view view;
    struct weir_caption_text text;
    for (uint32_t i = 0; i < WEIR_TOP_KEYS_MAX; i++) {
        if (weir_top_at(w->table, i, now_ns, &view, &text))
            ranks[count++] = (struct rank){view.hits, i};
    }
    qsort(ranks, count, sizeof(ranks[0]), busier_first);
    struct weir_published *p = weir_publish_borrow(w);
    for (uint32_t i = 0; i < count; i++) {
        if (!weir_top_at(w->table, ranks[i].row, now_ns, &view, &text))
            continue;
        const struct weir_top_key key = {
            .key = &text.words,
            .rule_id = weir_publish_rule_id(p, view.stat),
            .hits = ranks[i].hits, /* as it was ranked */
            .over_limit = view.over < ranks[i].hits ? view.over : ranks[i].hits,
        };
        each(ctx, &key);
    }
    weir_publish_return(w, p);
}
