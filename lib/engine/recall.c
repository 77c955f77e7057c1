/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/recall.h"

#include "algo/math.h"
#include "base/hot.h"
#include "base/str.h"
#include "engine/identity.h"
#include "engine/plan.h"
#include "engine/stats.h"
#include "store/there.h"
#include "table/key_overrides.h"

static struct weir_str keep(struct weir_recall *r, struct weir_str words)
{
    struct weir_str kept = {.ptr = r->bytes + r->used, .len = words.len};
    if (words.len > 0)
        memcpy(r->bytes + r->used, words.ptr, words.len);
    r->used += (uint32_t)words.len;
    return kept;
}

/* As the request's own lookup, but values are ours: they last as long as the plan. */
static int hear(void *ctx, struct weir_str key, struct weir_str *value)
{
    struct weir_recall *r = ctx;
    int found = r->heard->attribute(r->heard->ctx, key, value);
    if (found < 0)
        return found;
    size_t len = key.len + (found ? value->len : 0);
    if (r->count == WEIR_RECALL_ANSWERS || len > WEIR_RECALL_BYTES - r->used) {
        r->has_all = false;
        return found;
    }
    struct weir_answer *answer = &r->answers[r->count++];
    *answer = (struct weir_answer){.key = keep(r, key), .is_there = found != 0};
    if (found)
        *value = answer->value = keep(r, *value);
    return found;
}

struct weir_http weir_recall_listen(struct weir_session *s, const struct weir_http *http)
{
    struct weir_recall *r = &s->recall;
    struct weir_http heard = *http;
    s->is_recallable = false; /* what was noted goes */
    r->has_all = r->is_repeated && http->stage == WEIR_STAGE_ALL;
    if (!r->has_all)
        return heard;
    r->heard = http;
    r->count = r->used = 0;
    r->has_hits = http->has_hits;
    r->is_sole = !http->domain.ptr;
    r->hits = http->hits;
    heard.attribute = hear;
    heard.ctx = r;
    return heard;
}

/* Which counters a plan has, in one number; 0: none. */
static uint64_t sum_of(const struct weir_session *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->charge_count; i++)
        sum = (sum + s->charges[i].key) * UINT64_C(0x9e3779b97f4a7c15);
    return sum;
}

/* Whether a plan is one token bucket, and nothing is to be handed back of it. */
static bool is_swift(const struct weir_session *s)
{
    const struct weir_charge *c = s->charges;
    return s->item_count == 1 && s->charge_count == 1 && !s->plans[0].is_atomic &&
           !s->items[0].is_refund && !s->items[0].value && weir_limit_drips(c->limit) &&
           c->limit->count_if == 0;
}

static void note_time(struct weir_swift *swift, const struct weir_limit *limit, uint64_t near)
{
    swift->is_timed = weir_toll_note(&swift->toll, limit, swift->hits);
    swift->step_ns = limit->step_ns;
    swift->calm_ns =
        near < swift->hits ? 0 : weir_sat_add(weir_sat_mul(near - swift->hits, swift->step_ns), 1);
    swift->places = limit->burst;
}

/* Whether the client's address is all that was asked for, or said. */
static bool is_by_address(const struct weir_recall *r)
{
    return r->count == 1 && r->answers[0].is_there && !r->has_hits && r->is_sole &&
           weir_str_eq(r->answers[0].key, WEIR_STR("remote_address"));
}

static inline void note_address(struct weir_swift *swift, struct weir_str address)
{
    bool is_short = swift->by_address && address.len <= WEIR_SWIFT_ADDRESS_MAX;
    swift->address_len = is_short ? (uint8_t)address.len : 0;
    if (swift->address_len > 0)
        memcpy(swift->address, address.ptr, address.len);
}

static void note_swift(struct weir_session *s)
{
    const struct weir_item *item = s->items;
    const struct weir_charge *c = s->charges;
    struct weir_swift *swift = &s->swift;
    swift->is_ready = is_swift(s);
    swift->by_address = swift->is_ready && is_by_address(&s->recall);
    if (!swift->is_ready)
        return;
    note_address(swift, s->recall.answers[0].value);
    swift->slot = c->met;
    swift->hits = c->hits;
    swift->within = weir_stats_within(s->engine->table, item->stat, s->number);
    swift->rule = item->rule ? &item->rule->info : NULL;
    swift->generation = s->mine->generation;
    swift->tag = c->limit->tag;
    swift->rate = c->limit->generation;
    swift->mark = weir_there_mark(swift->rate, c->key);
    note_time(swift, c->limit, weir_stats_near(c->limit->burst, s->engine->near_ratio));
}

/* ---- another value ---- */

/* Whether the last entry of a plan's only descriptor names its counters, and does nothing else. */
static bool is_named(const struct weir_session *s, uint64_t *known)
{
    const struct weir_item *item = s->items;
    return s->item_count == 1 && item->rule && item->charge_count > 0 && !item->is_charged &&
           weir_rule_takes_any(s->plans[0].domain, item->rule, known);
}

static struct weir_entry *last_entry(struct weir_session *s)
{
    return &weir_http_room_of(s)->entries[s->items[0].descriptor->entry_count - 1];
}

/* Which answer is that entry's value as it is; at the end of all bytes, where others have room. */
static uint8_t find_named(struct weir_recall *r, struct weir_entry *entry)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct weir_answer *answer = &r->answers[i];
        if (answer->value.ptr != entry->value.ptr ||
            answer->value.len > WEIR_RECALL_BYTES - r->used)
            continue;
        if (answer->value.ptr + answer->value.len != r->bytes + r->used)
            answer->value = entry->value = keep(r, answer->value);
        return (uint8_t)i;
    }
    return WEIR_RECALL_ANSWERS;
}

/* For weir_recall_rename(), where something may be another. */
static void note_named(struct weir_session *s)
{
    struct weir_recall *r = &s->recall;
    const struct weir_descriptor *d = s->items[0].descriptor;
    r->entry = last_entry(s);
    r->named = find_named(r, r->entry);
    if (r->named == WEIR_RECALL_ANSWERS)
        return;
    struct weir_str name = r->answers[r->named].key; /* is near; most often they are the same */
    r->key = weir_str_eq(name, r->entry->key) ? name : r->entry->key;
    r->before =
        weir_identity_before(weir_table_hash_key(s->engine->table), d->entries, d->entry_count);
    r->is_address = weir_str_eq(r->key, WEIR_STR("remote_address"));
}

/* Those are cut to a prefix first. */
static inline bool may_be_ipv6(const struct weir_recall *r, struct weir_str value)
{
    return r->is_address && value.len > 0 && memchr(value.ptr, ':', value.len);
}

/* As weir_plan_rename() does, where there is one counter. */
static inline void rename_swift(struct weir_session *s, uint64_t hash)
{
    struct weir_swift *swift = &s->swift;
    struct weir_charge *c = s->charges;
    s->items[0].hash = hash;
    c->key = weir_identity_key(hash, swift->tag);
    c->met = NULL;
    weir_local_prefetch_likely(s->engine->table, c->key);
    swift->slot = NULL;
    swift->mark = weir_there_mark(swift->rate, c->key);
    note_address(swift, s->recall.answers[s->recall.named].value);
}

WEIR_HOT bool weir_recall_rename(struct weir_session *s, struct weir_str value)
{
    struct weir_recall *r = &s->recall;
    struct weir_answer *answer = &r->answers[r->named];
    char *at = r->bytes + (answer->value.ptr - r->bytes);
    bool is_known = r->known >> (value.len & 63) & 1;
    if (is_known || value.len > (size_t)(r->bytes + WEIR_RECALL_BYTES - at) ||
        may_be_ipv6(r, value))
        return false;
    if (value.len > 0)
        memcpy(at, value.ptr, value.len);
    answer->value.len = r->entry->value.len = value.len;
    s->foretell = true;
    uint64_t hash = weir_identity_with(r->before, r->key, value);
    if (s->swift.is_ready)
        rename_swift(s, hash);
    else
        weir_plan_rename(s, hash);
    return true;
}

/* ---- what came of it ---- */

void weir_recall_note(struct weir_session *s, uint64_t now_ns)
{
    struct weir_recall *r = &s->recall;
    const struct weir_rule *rule = s->items[0].rule;
    uint64_t sum = sum_of(s);
    bool may_be_another = rule == r->rule && is_named(s, &r->known);
    r->is_repeated = sum != 0 && (sum == r->sum || may_be_another);
    r->sum = sum;
    r->rule = rule;
    r->named = WEIR_RECALL_ANSWERS;
    if (may_be_another && r->has_all)
        note_named(s);
    note_swift(s);
    s->is_recallable = r->has_all && !weir_key_overrides_live(s->engine->table, now_ns);
}
