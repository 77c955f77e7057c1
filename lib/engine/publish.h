/* publish.h - rules change while others decide: how a version appears, and when it is freed.
 *
 *     reload                               session that has news
 *     ------                               ---------------------
 *     current = new                        has_news = no
 *     each session: has_news = yes         held = p            (what it read from current)
 *     each session: is old held?           is current still p? no: again
 *
 * Both sides write first and read afterwards, all sequentially consistent; so either the session
 * sees that current has moved on, or the reload sees that the old version is held.  News that
 * come while it looks are there again afterwards.  A session without news reads that one word,
 * which lies among its own, and writes none.
 *
 * A session goes on holding its version between two calls, because what a status borrows (its rule)
 * is good until then.  Old versions are looked through at every reload and when a session
 * closes: there are never more of them than sessions.
 *
 * Rejected: counting references on every check, which makes all threads write to one line.
 *
 * Threads: hold() in the session's own; all else anywhere.  Allocation: at publishing only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PUBLISH_H
#define WEIR_ENGINE_PUBLISH_H

#include "base/hot.h"
#include "engine/engine.h"

/* Binds all limits to the table and makes the rules current.  The rules are the engine's from
 * then on; on failure they stay the caller's, and why has gone to the log. */
WEIR_MUST_CHECK int weir_publish(struct weir *w, struct weir_rules *take_rules);

/* Frees what nobody holds.  With the engine's lock held. */
void weir_publish_sweep(struct weir *w);

/* Frees everything: when there are no sessions any more. */
void weir_publish_fini(struct weir *w);

/* For readers without a session: the current version stays until it is returned. */
struct weir_published *weir_publish_borrow(struct weir *w);
/* The version that the session holds now, for longer than that. */
struct weir_published *weir_publish_keep(struct weir_session *s);
void weir_publish_return(struct weir *w, struct weir_published *p);

/* The id of the rule that counts under this number; empty: none does, or it is "other". */
struct weir_str weir_publish_rule_id(const struct weir_published *p, uint32_t stat);

/* All sessions look again, before their next decision, at what holds. */
void weir_publish_news(struct weir *w);
const struct weir_published *weir_publish_hold_anew(struct weir_session *s);

/* The version that this call works with; good until the session's next call. */
static inline const struct weir_published *weir_publish_hold(struct weir_session *s)
{
    /* Acquire pairs with tell_all() in publish.c: who has heard sees what there is. */
    bool has_news = atomic_load_explicit(&s->has_news, memory_order_acquire);
    return WEIR_SELDOM(has_news) ? weir_publish_hold_anew(s) : s->mine;
}

/* weir_check() with the version that weir_publish_hold() gave last: for requests that borrow from
 * that version's rules, as those made from shapes do. */
WEIR_MUST_CHECK int weir_check_held(struct weir_session *s, const struct weir_request *request,
                                    uint64_t now_ns, struct weir_decision *out);

#endif
