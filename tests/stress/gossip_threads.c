/* gossip_threads.c - seven threads admit, the eighth keeps: nothing is lost, nothing told twice, no
 * more is ever unacked than may be, though tallies come and go all the time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/gossip.h"
#include "store_rig.h"

#define KEYS 40u
#define TALLIES 48u /* fewer than keys and windows: some find no room */
#define MOST 8u
#define W WEIR_NS_PER_S

struct shared {
    struct weir_gossip *gossip;
    _Atomic uint64_t admitted, told, no_room, windows, above;
    _Atomic uint32_t working;
};

/* False: it is the keeper's turn. */
static bool admit(struct shared *all, uint64_t *random)
{
    static const struct weir_limit limit = {
        .algorithm = WEIR_FIXED_WINDOW, .window_ns = W, .requests = 40};
    struct weir_tally_of of = {.key = rig_random(random) % KEYS,
                               .index = atomic_load(&all->windows),
                               .limit = &limit,
                               .name = {.ptr = "name", .len = 4}};
    uint64_t hits = 1 + rig_random(random) % 3, tag = weir_gossip_tag(of.key, of.index);
    struct weir_tally *tally = weir_gossip_find(all->gossip, tag);
    if (tally == NULL)
        tally = weir_gossip_add(all->gossip, &of);
    if (tally == NULL) {
        atomic_fetch_add(&all->no_room, 1);
        return false;
    }
    if (weir_tally_reserve(tally, tag, hits, MOST) != WEIR_RESERVED)
        return false;
    bool is_admitted = rig_random(random) % 4 != 0;
    uint64_t untold = weir_tally_settle(tally, hits, is_admitted);
    if (!is_admitted)
        return true;
    atomic_fetch_add(&all->admitted, hits);
    (void)weir_gossip_mark(all->gossip, tally, false);
    if (untold >= MOST / 2)
        (void)weir_gossip_mark(all->gossip, tally, true);
    return true;
}

/* The store answers at once. */
static void tell(void *ctx, struct weir_tally *tally)
{
    struct shared *all = ctx;
    uint64_t own = weir_tally_own(tally), acked = atomic_load(&tally->acked);
    if (own - acked > MOST)
        atomic_fetch_add(&all->above, 1);
    atomic_fetch_add(&all->told, own - acked);
    atomic_store(&tally->sent, own);
    weir_tally_ack(tally, own);
}

static void keep(struct shared *all, bool is_last)
{
    weir_gossip_each_marked(all->gossip, true, tell, all);
    weir_gossip_each_marked(all->gossip, false, tell, all);
    uint64_t index = is_last ? UINT32_MAX : atomic_fetch_add(&all->windows, 1);
    weir_gossip_sweep(all->gossip, (index + 1) * W, 0);
}

static void work(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    struct shared *all = crew->shared;
    uint64_t random = rig_seed() + worker;
    (void)table;
    rig_meet(crew->barrier, RIG_CREW);
    if (worker == 0) {
        for (; atomic_load(&all->working) < RIG_CREW - 1; sched_yield())
            keep(all, false);
        keep(all, true);
        return;
    }
    for (uint64_t left = rig_scaled(50000, 1000); left > 0;) {
        if (admit(all, &random))
            left--;
        else
            sched_yield();
    }
    atomic_fetch_add(&all->working, 1);
}

static void what_threads_admit_is_told_once(void **state)
{
    (void)state;
    static const struct weir_table_geometry geometry = {.file_bytes = 4 << 20};
    char path[128];
    struct shared *all = rig_shared(sizeof(*all));
    assert_int_equal(weir_gossip_new(&all->gossip, TALLIES), 0);
    struct rig_crew crew = {.path = path, .geometry = &geometry, .work = work, .shared = all};
    rig_path(path, sizeof(path));
    rig_run(&crew, RIG_THREADS);
    uint64_t windows = all->windows, no_room = all->no_room, told = all->told;
    printf("# %" PRIu64 " hits, %" PRIu64 " windows, %" PRIu64 " times no room\n", told, windows,
           no_room);
    assert_int_equal(all->told, all->admitted);
    assert_int_equal(all->above, 0);
    assert_int_equal(weir_gossip_used(all->gossip), 0);
    weir_gossip_free(all->gossip);
    munmap(all, sizeof(*all));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_threads_admit_is_told_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
