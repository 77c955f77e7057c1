/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lease_board.h"

#include "algo/math.h"
#include "base/hash.h"

#include <stdatomic.h>
#include <stdlib.h>

#define BUSY UINT64_MAX

/* Sequentially consistent, all of it: the key is taken away before and set after what it stands
 * for.  Of two that write at once one goes without: it heard nothing much newer. */
struct place {
    _Atomic uint64_t key; /* 0: none.  BUSY: being written */
    _Atomic uint64_t left, reset_ns, mark;
};

struct weir_lease_board {
    uint32_t count;
    struct place places[];
};

/* alloc: once for a service. */
int weir_lease_board_new(struct weir_lease_board **out, uint32_t count)
{
    size_t bytes = sizeof(**out) + count * sizeof((*out)->places[0]);
    struct weir_lease_board *board = calloc(1, bytes);
    if (board == NULL)
        return WEIR_ERR_NOMEM;
    board->count = count;
    *out = board;
    return 0;
}

void weir_lease_board_free(struct weir_lease_board *board)
{
    free(board);
}

void weir_lease_board_write(struct weir_lease_board *board, uint64_t key,
                            struct weir_lease_word said)
{
    struct place *place = &board->places[weir_mix64(key) & (board->count - 1)];
    uint64_t was = atomic_load(&place->key);
    if (was == BUSY || !atomic_compare_exchange_strong(&place->key, &was, BUSY))
        return;
    atomic_store(&place->left, said.left);
    atomic_store(&place->reset_ns, said.reset_ns);
    if (said.mark != 0 || was != key)
        atomic_store(&place->mark, said.mark);
    atomic_store(&place->key, key);
}

bool weir_lease_board_read(const struct weir_lease_board *board, uint64_t key,
                           struct weir_lease_word *out)
{
    const struct place *place = &board->places[weir_mix64(key) & (board->count - 1)];
    if (atomic_load(&place->key) != key)
        return false;
    *out = (struct weir_lease_word){.left = atomic_load(&place->left),
                                    .reset_ns = atomic_load(&place->reset_ns),
                                    .mark = atomic_load(&place->mark)};
    return atomic_load(&place->key) == key;
}

struct weir_verdict weir_lease_board_verdict(const struct weir_lease_board *board, uint64_t key,
                                             const struct weir_limit *limit, uint64_t hits,
                                             const struct weir_lease_taken *taken, uint64_t now_ns)
{
    struct weir_lease_word said = {0};
    (void)weir_lease_board_read(board, key, &said);
    struct weir_verdict v = {
        .allowed = taken->said == WEIR_LEASE_SPENT,
        .limit = limit->algorithm == WEIR_TOKEN_BUCKET ? limit->burst : limit->requests,
        .retry_after_ns = taken->retry_after_ns,
        .reset_after_ns = weir_max(taken->retry_after_ns, weir_sat_sub(said.reset_ns, now_ns)),
    };
    if (v.allowed)
        v.remaining = weir_min(taken->left + said.left, v.limit);
    v.before = weir_sat_sub(v.limit, v.remaining + (v.allowed ? hits : 0));
    return v;
}
