/* desk_owe.c - what passed while nobody was there, told to the service when it is back.
 *
 * Kept as the frames that will be sent, so that nothing needs to be remembered of a rule: a request
 * that passes again within a second is one frame, which says how often.  The service charges it to
 * the store as it does what it decided itself while that was away (serve/ask_debts.c).  The buffer
 * is bounded; what is beyond is forgotten, and has passed uncharged.
 *
 * Of a request that was asked for, and not answered in time, nobody knows whether the store has
 * counted it: it is owed, and so may count twice, but not too little.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/hash.h"
#include "desk/desk.h"

#include <string.h>

/* Of a request within a second. */
static uint64_t hash_of(const struct weir_desk *desk, const char *frame, size_t len,
                        uint64_t now_ns)
{
    const struct weir_hash_key *key = weir_table_hash_key(desk->session->engine->table);
    size_t skipped = WEIR_DESK_OWE_SKIPPED; /* how often, and when */
    return weir_siphash13(key, frame + skipped, len - skipped) ^ weir_mix64(now_ns / WEIR_NS_PER_S);
}

void weir_desk_owe(struct weir_desk *desk, const struct weir_request *request, uint64_t now_ns)
{
    const struct weir_desk_owed once = {.times = 1, .since_ns = now_ns};
    size_t from = desk->owed.len;
    if (request->descriptor_count == 0 || !weir_desk_put_owe(&desk->owed, &once, request))
        return;
    uint64_t hash = hash_of(desk, desk->owed.ptr + from, desk->owed.len - from, now_ns);
    struct weir_desk_debt *debt = &desk->debts[hash % WEIR_DESK_DEBTS];
    if (debt->hash == hash && debt->at < from) {
        weir_buf_cut(&desk->owed, from);
        weir_desk_owe_again(desk->owed.ptr + debt->at, now_ns);
    } else {
        *debt = (struct weir_desk_debt){.hash = hash, .at = from};
    }
}

void weir_desk_pay(struct weir_desk *desk)
{
    if (desk->welcome.has_store)
        weir_buf_add(&desk->out, weir_buf_str(&desk->owed));
    weir_buf_cut(&desk->owed, 0);
    memset(desk->debts, 0, sizeof(desk->debts));
}
