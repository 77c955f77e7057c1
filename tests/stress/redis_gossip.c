/* redis_gossip.c - what nodes tell each other, through a real Redis: order, repetition and loss do
 * no harm, and what slipped through is told once.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "redis_rig.h"

#include "store/redis/gossip.h"

static struct redis_rig rig;
static struct weir_redis_gossip_answer heard;

static int start(void **state)
{
    (void)state;
    redis_rig_start(&rig);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    redis_rig_stop(&rig);
    return 0;
}

static void ask(const struct weir_redis_gossip *gossip)
{
    weir_redis_put_gossip(&rig.out, rig.how, gossip);
    redis_rig_send(&rig);
    redis_rig_next(&rig);
    if (rig.nodes[0].type == WEIR_REDIS_ERROR)
        fail_msg("%.*s", WEIR_STR_ARG(redis_rig_text(&rig)));
    assert_int_equal(weir_redis_gossip_read(rig.reader, rig.nodes, rig.count, &heard), 0);
}

/* Of one key, with room for 100 in a window. */
static uint64_t tell(const char *name, uint64_t index, uint64_t id, uint64_t hits)
{
    struct weir_redis_gossip gossip = {.name = weir_str_of(name),
                                       .index = index,
                                       .looks_back = true,
                                       .id = id,
                                       .hits = hits,
                                       .most = 100,
                                       .keep_ms = 100000};
    ask(&gossip);
    return heard.over;
}

static uint64_t hits_of(const struct weir_redis_heard *all, uint64_t id)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->list[i].id == id)
            return all->list[i].hits;
    }
    return 0;
}

static void load(enum weir_redis_how how)
{
    rig.how = how;
    redis_rig_load(&rig);
}

static void check_talk(const char *name)
{
    assert_int_equal(tell(name, 7, 1, 10), 0);
    assert_int_equal(heard.now.count, 1);
    assert_int_equal(tell(name, 7, UINT64_MAX, 20), 0);
    assert_int_equal(hits_of(&heard.now, 1), 10);
    assert_int_equal(tell(name, 7, 1, 4), 0); /* overtaken, or from before a restart of Redis */
    assert_int_equal(hits_of(&heard.now, 1), 10);
    assert_int_equal(hits_of(&heard.now, UINT64_MAX), 20);
    assert_int_equal(heard.before.count, 0);
    assert_int_equal(tell(name, 8, 1, 3), 0);
    assert_int_equal(heard.now.count, 1);
    assert_int_equal(heard.before.count, 2);
    assert_int_equal(hits_of(&heard.before, UINT64_MAX), 20);
}

static void nodes_hear_what_all_have_admitted(void **state)
{
    (void)state;
    load(WEIR_REDIS_FCALL);
    check_talk("weir:{a}x");
    load(WEIR_REDIS_EVALSHA);
    check_talk("weir:{b}x");
}

static void what_slipped_through_is_told_once(void **state)
{
    (void)state;
    assert_int_equal(tell("over", 1, 1, 60), 0);
    assert_int_equal(tell("over", 1, 2, 40), 0); /* all that may pass */
    assert_int_equal(tell("over", 1, 3, 1), 1);
    assert_int_equal(tell("over", 1, 3, 1), 0); /* again */
    assert_int_equal(tell("over", 1, 2, 45), 5);
    assert_int_equal(tell("over", 1, 1, 60), 0);
    assert_int_equal(heard.now.count, 3); /* the note of it is no node */
    assert_int_equal(tell("over", 2, 1, 101), 1);
}

static void a_hash_goes_when_it_is_of_no_more_use(void **state)
{
    (void)state;
    (void)tell("weir:{c}x", 5, 1, 1);
    redis_rig_ask(&rig, "PTTL weir:{c}x@5");
    assert_int_equal(rig.nodes[0].type, WEIR_REDIS_INTEGER);
    assert_in_range(rig.nodes[0].number, 1, 100000);
    (void)tell("weir:{d}x", 5, 1, 0); /* who only listens makes none */
    redis_rig_ask(&rig, "EXISTS weir:{d}x@5");
    assert_int_equal(rig.nodes[0].number, 0);
}

static void large_numbers_are_whole(void **state)
{
    (void)state;
    uint64_t most = (UINT64_C(1) << 43) - 1;
    assert_int_equal(tell("large", 1, 1, most), most - 100);
    assert_int_equal(tell("large", 1, 2, most), most);
    assert_int_equal(hits_of(&heard.now, 1), most);
}

static void nodes_beyond_the_maximum_are_taken_as_one(void **state)
{
    (void)state;
    for (uint64_t id = 1; id <= WEIR_REDIS_PEERS_MAX; id++)
        (void)tell("many", 1, id, 1);
    assert_int_equal(heard.now.count, WEIR_REDIS_PEERS_MAX);
    (void)tell("many", 1, WEIR_REDIS_PEERS_MAX + 1, 5);
    assert_int_equal(heard.now.count, WEIR_REDIS_PEERS_MAX);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < heard.now.count; i++)
        sum += heard.now.list[i].hits;
    assert_int_equal(sum, WEIR_REDIS_PEERS_MAX + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_hear_what_all_have_admitted),
        cmocka_unit_test(what_slipped_through_is_told_once),
        cmocka_unit_test(a_hash_goes_when_it_is_of_no_more_use),
        cmocka_unit_test(large_numbers_are_whole),
        cmocka_unit_test(nodes_beyond_the_maximum_are_taken_as_one),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
