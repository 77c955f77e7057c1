/* SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

void weir_ages_leave(struct weir_conn *conn)
{
    struct weir_side *side = conn->side;
    if (conn->older != NULL)
        conn->older->newer = conn->newer;
    else
        side->oldest[conn->phase] = conn->newer;
    if (conn->newer != NULL)
        conn->newer->older = conn->older;
    else
        side->newest[conn->phase] = conn->older;
    conn->older = conn->newer = NULL;
}

void weir_ages_enter(struct weir_conn *conn, enum phase phase)
{
    struct weir_side *side = conn->side;
    conn->phase = (uint8_t)phase;
    conn->stamp_ms = uv_now(&side->loop->uv);
    conn->older = side->newest[phase];
    conn->newer = NULL;
    if (conn->older != NULL)
        conn->older->newer = conn;
    else
        side->oldest[phase] = conn;
    side->newest[phase] = conn;
}

void weir_ages_touch(struct weir_conn *conn)
{
    /* A busy connection would move to the end of its list with every byte; a sixteenth of the
     * limit is exact enough. */
    if (conn->phase != PHASE_IDLE ||
        uv_now(&conn->side->loop->uv) - conn->stamp_ms < conn->side->grain_ms)
        return;
    weir_ages_leave(conn);
    weir_ages_enter(conn, PHASE_IDLE);
}

/* Whether its protocol has something to say before it must go. */
static bool has_words(struct weir_conn *conn)
{
    const struct weir_protocol *protocol = conn->side->listener->protocol;
    if (conn->phase != PHASE_IDLE && conn->phase != PHASE_AMID)
        return false;
    return protocol->expire != NULL && conn->is_open && !conn->is_finishing &&
           protocol->expire(conn->state, conn->phase == PHASE_AMID);
}

static void tell(struct weir_conn *conn)
{
    static const enum weir_net_event events[PHASES] = {
        [PHASE_FIRST] = WEIR_NET_FIRST_LATE,
        [PHASE_IDLE] = WEIR_NET_IDLE,
        [PHASE_AMID] = WEIR_NET_SLOW,
        [PHASE_ASKED] = WEIR_NET_IDLE,
    };
    struct weir_side *side = conn->side;
    if (conn->phase == PHASE_LINGER || conn->phase == PHASE_LATE || conn->phase == PHASE_OWED)
        return;
    /* relaxed: one writer, and readers only add up */
    atomic_fetch_add_explicit(&side->timed_out, 1, memory_order_relaxed);
    weir_listener_tell(side->listener, events[conn->phase], conn->peer, NULL);
}

static void expire(struct weir_conn *conn)
{
    if (conn->is_doomed)
        return;
    bool is_slow = conn->phase == PHASE_AMID;
    bool stays = has_words(conn);
    if (!stays || is_slow)
        tell(conn);
    if (stays) {
        weir_ages_leave(conn);
        weir_ages_enter(conn, PHASE_ASKED);
    }
    conn->is_doomed = !stays;
    weir_conn_mark(conn);
}

void weir_ages_tick(struct weir_loop *loop)
{
    uint64_t now_ms = uv_now(&loop->uv);
    for (struct weir_side *side = loop->sides; side != NULL; side = side->next) {
        for (int phase = 0; phase < PHASES; phase++) {
            struct weir_conn *conn = side->oldest[phase], *newer;
            for (; conn != NULL && now_ms - conn->stamp_ms >= side->limit_ms[phase]; conn = newer) {
                newer = conn->newer; /* expire() may move it to another phase */
                expire(conn);
            }
        }
    }
}
