/* store_gossip.c - tallies: what is reserved, settled, told, and let go; a map that is full.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/gossip.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define W (60 * WEIR_NS_PER_S)
#define MAX 16u
#define SELF (UINT64_C(1) << 32 | 7)

static struct weir_gossip *gossip_new(uint32_t tallies_max)
{
    struct weir_gossip *gossip;
    assert_int_equal(weir_gossip_new(&gossip, tallies_max), 0);
    return gossip;
}

static struct weir_tally *add(struct weir_gossip *gossip, uint64_t key, uint64_t index)
{
    static const struct weir_limit limit = {
        .algorithm = WEIR_FIXED_WINDOW, .window_ns = W, .requests = 100};
    char name[24];
    snprintf(name, sizeof(name), "key %" PRIu64, key);
    struct weir_tally_of of = {
        .key = key, .index = index, .limit = &limit, .name = {.ptr = name, .len = strlen(name)}};
    return weir_gossip_add(gossip, &of);
}

static enum weir_reserved reserve(struct weir_tally *tally, uint64_t hits, uint64_t most)
{
    return weir_tally_reserve(tally, weir_gossip_tag(tally->key, tally->index), hits, most);
}

static void admit(struct weir_tally *tally, uint64_t hits)
{
    assert_int_equal(reserve(tally, hits, UINT64_MAX), WEIR_RESERVED);
    (void)weir_tally_settle(tally, hits, true);
}

static void count_one(void *ctx, struct weir_tally *tally)
{
    assert_non_null(tally);
    ++*(uint32_t *)ctx;
}

static uint32_t count_marked(struct weir_gossip *gossip, bool is_urgent)
{
    uint32_t count = 0;
    weir_gossip_each_marked(gossip, is_urgent, count_one, &count);
    return count;
}

static void who_would_go_beyond_what_may_be_unacked_is_held_back(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    struct weir_tally *tally = add(gossip, 7, 1);
    assert_int_equal(reserve(tally, 6, 10), WEIR_RESERVED);
    assert_int_equal(reserve(tally, 4, 10), WEIR_RESERVED);
    assert_int_equal(reserve(tally, 1, 10), WEIR_HELD_BACK);
    assert_int_equal(weir_tally_settle(tally, 6, false), 0); /* the table refused it */
    assert_int_equal(weir_tally_settle(tally, 4, true), 4);
    assert_int_equal(weir_tally_own(tally), 4);
    assert_int_equal(reserve(tally, 7, 10), WEIR_HELD_BACK);
    weir_tally_ack(tally, 3);
    weir_tally_ack(tally, 1); /* an answer that was overtaken */
    assert_int_equal(reserve(tally, 9, 10), WEIR_RESERVED);
    assert_int_equal(reserve(tally, 1, 10), WEIR_HELD_BACK);
    assert_int_equal(weir_tally_settle(tally, 9, true), 13);
    weir_gossip_free(gossip);
}

static void a_request_larger_than_may_be_unacked_passes_alone(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    struct weir_tally *tally = add(gossip, 7, 1);
    assert_int_equal(reserve(tally, 50000, 10), WEIR_RESERVED);
    assert_int_equal(reserve(tally, 1, 10), WEIR_HELD_BACK);
    (void)weir_tally_settle(tally, 50000, true);
    assert_int_equal(reserve(tally, 1, 10), WEIR_HELD_BACK);
    weir_tally_ack(tally, 50000);
    assert_int_equal(reserve(tally, 1, 10), WEIR_RESERVED);
    weir_gossip_free(gossip);
}

static void the_count_of_a_tally_has_an_end(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    struct weir_tally *tally = add(gossip, 7, 1);
    uint64_t most = (UINT64_C(1) << 43) - 1;
    assert_int_equal(reserve(tally, most + 1, UINT64_MAX), WEIR_HELD_BACK);
    admit(tally, most);
    assert_int_equal(weir_tally_own(tally), most);
    weir_tally_ack(tally, most);
    assert_int_equal(reserve(tally, 1, UINT64_MAX), WEIR_HELD_BACK);
    assert_int_equal(weir_tally_own(tally), most);
    weir_gossip_free(gossip);
}

static void the_unit_is_a_tenth_and_at_least_one(void **state)
{
    (void)state;
    struct weir_limit limit = {.requests = 1};
    assert_int_equal(weir_tally_unit(&limit), 1);
    limit.requests = 19;
    assert_int_equal(weir_tally_unit(&limit), 1);
    limit.requests = 20;
    assert_int_equal(weir_tally_unit(&limit), 2);
    limit.requests = UINT32_MAX;
    assert_int_equal(weir_tally_unit(&limit), UINT32_MAX / 10);
    limit.burst = 50;
    limit.requests = 1;
    assert_int_equal(weir_tally_unit(&limit), 5);
}

static void a_window_is_as_long_as_a_bucket_takes_to_fill(void **state)
{
    (void)state;
    struct weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .window_ns = W, .cap_ns = W};
    assert_int_equal(weir_gossip_window_ns(&limit), W);
    limit.cap_ns = W + 1;
    assert_int_equal(weir_gossip_window_ns(&limit), 2 * W);
    limit.algorithm = WEIR_LEAKY_BUCKET;
    limit.cap_ns = 9 * W;
    assert_int_equal(weir_gossip_window_ns(&limit), 9 * W);
    limit.algorithm = WEIR_SLIDING_WINDOW_LOG;
    assert_int_equal(weir_gossip_window_ns(&limit), W);
}

static void a_key_has_one_tally_for_each_window(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    struct weir_tally *tally = add(gossip, 7, 1);
    assert_ptr_equal(add(gossip, 7, 1), tally);
    assert_ptr_equal(weir_gossip_find(gossip, weir_gossip_tag(7, 1)), tally);
    assert_ptr_not_equal(add(gossip, 7, 2), tally);
    assert_ptr_not_equal(add(gossip, 8, 1), tally);
    assert_null(weir_gossip_find(gossip, weir_gossip_tag(8, 2)));
    assert_int_equal(weir_gossip_used(gossip), 3);
    assert_int_equal(tally->name_len, 5);
    assert_memory_equal(tally->name, "key 7", 5);
    weir_gossip_free(gossip);
}

static void a_full_map_takes_no_more_and_keeps_what_it_has(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    assert_false(weir_gossip_is_short(gossip));
    for (uint64_t key = 1; key <= MAX; key++)
        admit(add(gossip, key, 1), key);
    assert_null(add(gossip, MAX + 1, 1));
    assert_true(weir_gossip_is_short(gossip));
    for (uint64_t key = 1; key <= MAX; key++)
        assert_int_equal(weir_tally_own(add(gossip, key, 1)), key);
    weir_gossip_free(gossip);
}

static void a_tally_goes_when_it_is_over_and_told(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    struct weir_tally *told = add(gossip, 1, 1), *untold = add(gossip, 2, 1);
    struct weir_tally *asked = add(gossip, 3, 1), *reserved = add(gossip, 4, 1);
    struct weir_tally *marked = add(gossip, 5, 1), *live = add(gossip, 6, 2);
    admit(told, 3);
    weir_tally_ack(told, 3);
    admit(untold, 3);
    asked->is_asked = true;
    assert_int_equal(reserve(reserved, 1, 10), WEIR_RESERVED);
    assert_false(weir_gossip_mark(gossip, marked, false));
    uint64_t tag = weir_gossip_tag(1, 1), over_ns = 2 * W;
    weir_gossip_sweep(gossip, over_ns + WEIR_NS_PER_S, WEIR_NS_PER_S);
    assert_int_equal(weir_gossip_used(gossip), 6);
    weir_gossip_sweep(gossip, over_ns + WEIR_NS_PER_S + 1, WEIR_NS_PER_S);
    assert_int_equal(weir_gossip_used(gossip), 5);
    assert_null(weir_gossip_find(gossip, tag));
    assert_int_equal(weir_tally_reserve(told, tag, 1, 10), WEIR_TALLY_GONE);
    assert_false(weir_gossip_drop(gossip, reserved));
    assert_false(weir_gossip_drop(gossip, asked));
    assert_false(weir_gossip_drop(gossip, marked));
    assert_true(weir_gossip_drop(gossip, untold));
    assert_int_equal(weir_gossip_used(gossip), 4);
    assert_int_equal(weir_tally_over_ns(live, 3 * W), 0);
    assert_int_equal(weir_tally_over_ns(live, 3 * W + 1), 1);
    live->limit.algorithm = WEIR_TOKEN_BUCKET; /* looks back at the window before */
    assert_int_equal(weir_tally_over_ns(live, 4 * W), 0);
    weir_gossip_free(gossip);
}

static void memory_that_is_used_again_remembers_nothing(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(1);
    struct weir_tally *tally = add(gossip, 1, 1);
    const struct weir_peer heard = {.id = UINT64_C(9) << 32, .hits = 5};
    admit(tally, 3);
    assert_int_equal(weir_peers_merge(&tally->peers, &heard, 1, 0), 5);
    assert_true(weir_gossip_drop(gossip, tally));
    assert_ptr_equal(add(gossip, 2, 1), tally);
    assert_int_equal(weir_tally_own(tally), 0);
    assert_int_equal(weir_peers_merge(&tally->peers, &heard, 1, 0), 5);
    assert_int_equal(weir_tally_reserve(tally, weir_gossip_tag(1, 1), 1, 10), WEIR_TALLY_GONE);
    weir_gossip_free(gossip);
}

static void what_is_marked_is_told_once(void **state)
{
    (void)state;
    struct weir_gossip *gossip = gossip_new(MAX);
    struct weir_tally *one = add(gossip, 1, 1), *two = add(gossip, 2, 1);
    assert_false(weir_gossip_mark(gossip, one, false));
    assert_false(weir_gossip_mark(gossip, one, false));
    assert_false(weir_gossip_mark(gossip, two, false));
    assert_true(weir_gossip_mark(gossip, two, true)); /* wakes the keeper, once */
    assert_false(weir_gossip_mark(gossip, two, true));
    assert_int_equal(count_marked(gossip, false), 2);
    assert_int_equal(count_marked(gossip, false), 0);
    assert_int_equal(count_marked(gossip, true), 1);
    assert_true(weir_gossip_mark(gossip, two, true));
    assert_int_equal(count_marked(gossip, true), 1);
    weir_gossip_free(gossip);
}

static void nodes_beyond_the_list_are_known_by_their_sum(void **state)
{
    (void)state;
    struct weir_peers peers = {0};
    struct weir_peer heard[WEIR_TALLY_PEERS + 3];
    const uint32_t all = WEIR_TALLY_PEERS + 3;
    for (uint32_t i = 0; i < all; i++)
        heard[i] = (struct weir_peer){.id = (uint64_t)(i + 1) << 32 | 5, .hits = 10};
    assert_int_equal(weir_peers_merge(&peers, heard, all, SELF), 10 * (all - 1));
    assert_int_equal(weir_peers_merge(&peers, heard, all, SELF), 0);
    heard[all - 1].hits = 13;
    heard[1].hits = 11;
    heard[0].hits = 99; /* we, before we were started anew */
    assert_int_equal(weir_peers_merge(&peers, heard, all, SELF), 4);
    assert_int_equal(weir_peers_merge(&peers, heard, 0, SELF), 0); /* the store has lost all */
    assert_int_equal(weir_peers_merge(&peers, heard, all, SELF), 0);
    weir_gossip_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_would_go_beyond_what_may_be_unacked_is_held_back),
        cmocka_unit_test(a_request_larger_than_may_be_unacked_passes_alone),
        cmocka_unit_test(the_count_of_a_tally_has_an_end),
        cmocka_unit_test(the_unit_is_a_tenth_and_at_least_one),
        cmocka_unit_test(a_window_is_as_long_as_a_bucket_takes_to_fill),
        cmocka_unit_test(a_key_has_one_tally_for_each_window),
        cmocka_unit_test(a_full_map_takes_no_more_and_keeps_what_it_has),
        cmocka_unit_test(a_tally_goes_when_it_is_over_and_told),
        cmocka_unit_test(memory_that_is_used_again_remembers_nothing),
        cmocka_unit_test(what_is_marked_is_told_once),
        cmocka_unit_test(nodes_beyond_the_list_are_known_by_their_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
