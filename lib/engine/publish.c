/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/publish.h"

#include "engine/process.h"

#include <stdlib.h>

/* alloc: goes with its rules. */
static void published_free(struct weir_published *p)
{
    if (!p)
        return;
    weir_rules_free(p->rules);
    free(p);
}

static int bind_limits(struct weir *w, const struct weir_rules *rules)
{
    uint32_t count = rules ? weir_rules_limit_count(rules) : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct weir_limit *limit = weir_rules_limit_at(rules, i);
        if (w->options.eventual && limit->consistency == WEIR_CONSISTENCY_UNSAID &&
            weir_limit_may_be_eventual(limit))
            limit->consistency = WEIR_CONSISTENCY_EVENTUAL;
        int err = weir_local_bind(w->table, limit);
        if (err) {
            weir_engine_log(w, WEIR_LEVEL_ERROR,
                            "the table cannot take these rules: %s (at most %d window lengths, and "
                            "room for every approximate limit)",
                            weir_strerror(err), WEIR_WINDOWS_MAX);
            return err;
        }
    }
    return 0;
}

/* Room for names with values, once some rule wants it; stays until the engine goes. */
static int make_value_stats(struct weir *w, const struct weir_rules *rules)
{
    uint32_t count = rules ? weir_rules_count(rules) : 0;
    struct weir_value_stats *made;
    bool is_wanted = false;
    for (uint32_t i = 0; i < count && !is_wanted; i++)
        is_wanted = weir_rules_at(rules, i)->has_value_stats;
    if (!is_wanted || atomic_load_explicit(&w->values, memory_order_relaxed))
        return 0;
    int err = weir_value_stats_new(&made);
    if (!err) /* pairs with those who look without asking the rules first */
        atomic_store_explicit(&w->values, made, memory_order_release);
    return err;
}

/* With the engine's lock held. */
static void tell_all(struct weir *w)
{
    /* Pairs with hold(), and, in the one order of all, with hold_anew(). */
    for (struct weir_session *s = w->sessions; s; s = s->next)
        atomic_store_explicit(&s->has_news, true, memory_order_seq_cst);
}

void weir_publish_news(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    tell_all(w);
    pthread_mutex_unlock(&w->lock);
}

/* alloc: at publishing, beside deciding sessions and never in one. */
int weir_publish(struct weir *w, struct weir_rules *take_rules)
{
    int err = bind_limits(w, take_rules);
    if (!err)
        err = make_value_stats(w, take_rules);
    if (err)
        return err;
    uint32_t count = take_rules ? weir_rules_count(take_rules) : 0;
    struct weir_published *p = calloc(1, sizeof(*p));
    if (!p)
        return WEIR_ERR_NOMEM;
    p->rules = take_rules;
    p->sum = weir_process_sum(take_rules);
    p->since_ns = weir_table_now(w->table);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_rule *rule = weir_rules_at(take_rules, i);
        rule->stat = weir_stats_claim(w->table, rule->stats_id);
    }
    if (take_rules)
        weir_rules_share(take_rules);

    pthread_mutex_lock(&w->lock);
    p->generation = atomic_load_explicit(&w->generation, memory_order_relaxed) + 1;
    /* Pairs with hold_anew(): sequentially consistent, see the head of publish.h. */
    struct weir_published *before = atomic_exchange_explicit(&w->current, p, memory_order_seq_cst);
    /* Relaxed: a number to look at, nothing is reached through it. */
    atomic_store_explicit(&w->generation, p->generation, memory_order_relaxed);
    tell_all(w);
    if (before) {
        before->next = w->old;
        w->old = before;
    }
    weir_publish_sweep(w);
    pthread_mutex_unlock(&w->lock);
    weir_process_announce(w);
    return 0;
}

static bool is_held(const struct weir *w, const struct weir_published *p)
{
    if (p->holds > 0)
        return true;
    for (const struct weir_session *s = w->sessions; s; s = s->next) {
        /* Comes after the exchange in weir_publish(), in the one order of all. */
        if (atomic_load_explicit(&s->held, memory_order_seq_cst) == p)
            return true;
    }
    return false;
}

void weir_publish_sweep(struct weir *w)
{
    struct weir_published **link = &w->old;
    while (*link) {
        struct weir_published *p = *link;
        if (is_held(w, p)) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        published_free(p);
    }
}

void weir_publish_fini(struct weir *w)
{
    while (w->old) {
        struct weir_published *p = w->old;
        w->old = p->next;
        published_free(p);
    }
    /* Relaxed, here and in borrow(): alone, or under the lock under which it was stored. */
    published_free(atomic_load_explicit(&w->current, memory_order_relaxed));
}

struct weir_published *weir_publish_borrow(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    struct weir_published *p = atomic_load_explicit(&w->current, memory_order_relaxed);
    p->holds++;
    pthread_mutex_unlock(&w->lock);
    return p;
}

struct weir_published *weir_publish_keep(struct weir_session *s)
{
    struct weir *w = s->engine;
    pthread_mutex_lock(&w->lock);
    struct weir_published *p = atomic_load_explicit(&w->current, memory_order_relaxed);
    for (struct weir_published *old = w->old; p != s->mine; old = old->next)
        p = old; /* it is one of them, for the session holds it */
    p->holds++;
    pthread_mutex_unlock(&w->lock);
    return p;
}

void weir_publish_return(struct weir *w, struct weir_published *p)
{
    pthread_mutex_lock(&w->lock);
    p->holds--;
    weir_publish_sweep(w);
    pthread_mutex_unlock(&w->lock);
}

struct weir_str weir_publish_rule_id(const struct weir_published *p, uint32_t stat)
{
    uint32_t count = p->rules && stat != 0 ? weir_rules_count(p->rules) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_rule *rule = weir_rules_at(p->rules, i);
        if (rule->stat == stat)
            return rule->info.id;
    }
    return (struct weir_str){.ptr = "", .len = 0};
}

const struct weir_published *weir_publish_hold_anew(struct weir_session *s)
{
    _Atomic(struct weir_published *) *current = &s->engine->current;
    const struct weir_published *p;
    atomic_store_explicit(&s->has_news, false, memory_order_seq_cst); /* before all else */
    const struct weir_published *seen = atomic_load_explicit(current, memory_order_seq_cst);
    do {
        p = seen;
        /* Pairs with weir_publish(), which stores current and then reads held. */
        atomic_store_explicit(&s->held, p, memory_order_seq_cst);
        seen = atomic_load_explicit(current, memory_order_seq_cst);
    } while (seen != p);
    s->mine = p;
    s->domain_len = 0;        /* what it found was of the version before, */
    s->is_recallable = false; /* and so was this; */
    s->plain_ns = WEIR_NEVER; /* keys may have got limits of their own */
    return p;
}
