/* What was taken can be handed back: concurrency slots and places in a queue.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "engine_rig.h"

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - key: slots\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: concurrency}\n"
    "  - key: queue\n"
    "    rate_limit: {unit: second, requests_per_unit: 1, burst: 3, algorithm: leaky_bucket}\n"
    "  - key: both\n"
    "    rate_limit:\n"
    "      - {name: c, unit: minute, requests_per_unit: 2, algorithm: concurrency}\n"
    "      - {name: q, unit: second, requests_per_unit: 1, burst: 3, algorithm: leaky_bucket}\n"
    "      - {name: h, unit: hour, requests_per_unit: 100}\n"
    "  - key: address\n"
    "    ipv6_prefix: [64, {prefix: 48, times: 2}]\n"
    "    rate_limit: {unit: minute, requests_per_unit: 1, algorithm: concurrency}\n"
    "  - key: window\n"
    "    rate_limit: {unit: hour, requests_per_unit: 2}\n"
    "  - key: fixed\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3, count_if: {status: [401, 5xx]}}\n"
    "  - key: tokens\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3, algorithm: token_bucket,\n"
    "                 count_if: {status: [401, 5xx]}}\n"
    "  - key: interval\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3, algorithm: token_bucket, refill: "
    "interval,\n"
    "                 count_if: {status: [401, 5xx]}}\n"
    "  - key: log\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding_window_log,\n"
    "                 count_if: {status: [401, 5xx]}}\n"
    "  - key: counter\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding_window_counter,\n"
    "                 count_if: {status: [401, 5xx]}}\n"
    "  - key: sub\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding_window_counter, "
    "buckets: 6,\n"
    "                 count_if: {status: [401, 5xx]}}\n"
    "  - key: mixed\n"
    "    rate_limit:\n"
    "      - {name: c, unit: minute, requests_per_unit: 2, algorithm: concurrency}\n"
    "      - {name: q, unit: second, requests_per_unit: 1, burst: 3, algorithm: leaky_bucket}\n"
    "      - {name: h, unit: hour, requests_per_unit: 100, count_if: {status: 403}}\n";

static int open_rules(void **state)
{
    *state = rig_open(RULES, NULL);
    return 0;
}

static int close_rules(void **state)
{
    rig_close(*state);
    return 0;
}

static struct weir_ticket taken(struct rig *r, const char *text)
{
    assert_int_equal(ask(r, "t", text), WEIR_CODE_OK);
    return r->statuses[0].ticket;
}

static void a_released_slot_can_be_taken_again(void **state)
{
    struct rig *r = *state;
    struct weir_ticket a = taken(r, "slots=x"), b = taken(r, "slots=x");
    assert_int_equal(ask(r, "t", "slots=x"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[0].ticket.count, 0);
    weir_release(r->s, &a, r->now_ns);
    assert_int_equal(ask_times(r, "t", "slots=x", 2), 1);
    weir_release(r->s, &b, r->now_ns);
    assert_int_equal(ask_times(r, "t", "slots=x", 2), 1);
}

static void releasing_twice_gives_back_once(void **state)
{
    struct rig *r = *state;
    struct weir_ticket a = taken(r, "slots=x");
    taken(r, "slots=x");
    weir_release(r->s, &a, r->now_ns);
    assert_int_equal(a.count, 0);
    weir_release(r->s, &a, r->now_ns);
    assert_int_equal(ask_times(r, "t", "slots=x", 3), 1);
}

static void a_slot_comes_back_by_itself_unless_it_is_renewed(void **state)
{
    struct rig *r = *state;
    struct weir_ticket a = taken(r, "slots=x"), b = taken(r, "slots=x");
    r->now_ns += 50 * RIG_SECOND;
    assert_int_equal(weir_renew(r->s, &a, r->now_ns), 0);
    r->now_ns += 50 * RIG_SECOND; /* b's lease of at most 90 seconds is over */
    assert_int_equal(weir_renew(r->s, &b, r->now_ns), WEIR_ERR_NOT_FOUND);
    assert_int_equal(ask_times(r, "t", "slots=x", 3), 1);
    weir_release(r->s, &a, r->now_ns);
    assert_int_equal(ask_times(r, "t", "slots=x", 3), 1);
}

static void the_last_place_in_a_queue_can_be_given_back_and_no_other(void **state)
{
    struct rig *r = *state;
    taken(r, "queue=x");
    struct weir_ticket second = taken(r, "queue=x"), third = taken(r, "queue=x");
    assert_int_equal(r->statuses[0].delay_ns, 2 * RIG_SECOND);
    weir_release(r->s, &second, r->now_ns); /* somebody waits behind it */
    ask(r, "t", "queue=x +0");
    assert_status(r, 0, WEIR_CODE_OK, 4, 1);
    weir_release(r->s, &third, r->now_ns);
    taken(r, "queue=x");
    assert_int_equal(r->statuses[0].delay_ns, 2 * RIG_SECOND);
}

static void one_ticket_stands_for_all_limits_of_a_descriptor(void **state)
{
    struct rig *r = *state;
    struct weir_ticket a = taken(r, "both=x");
    assert_int_equal(a.count, 2); /* a window needs none */
    weir_release(r->s, &a, r->now_ns);
    taken(r, "both=x");
    assert_int_equal(r->statuses[0].delay_ns, 0);
    assert_int_equal(ask_times(r, "t", "both=x", 5), 1);
}

static void all_tiers_of_a_slot_are_given_back(void **state)
{
    struct rig *r = *state;
    for (int i = 0; i < 5; i++) {
        struct weir_ticket a = taken(r, "address=2001:db8:0:1::1");
        struct weir_ticket b = taken(r, "address=2001:db8:0:2::1");
        assert_int_equal(ask(r, "t", "address=2001:db8:0:3::1"), WEIR_CODE_OVER_LIMIT);
        weir_release(r->s, &a, r->now_ns);
        weir_release(r->s, &b, r->now_ns);
    }
}

static void a_window_gives_no_ticket_and_an_empty_one_does_nothing(void **state)
{
    struct rig *r = *state;
    struct weir_ticket none = taken(r, "window=x");
    assert_int_equal(none.count, 0);
    weir_release(r->s, &none, r->now_ns);
    assert_int_equal(weir_renew(r->s, &none, r->now_ns), WEIR_ERR_NOT_FOUND);
    ask(r, "t", "window=x +0");
    assert_status(r, 0, WEIR_CODE_OK, 2, 1);
}

static void a_forged_ticket_does_no_harm(void **state)
{
    struct rig *r = *state;
    struct weir_ticket good = taken(r, "slots=x");
    struct weir_ticket forged = good;
    forged.places[0].window_class = 255;
    weir_release(r->s, &forged, r->now_ns);
    forged = good;
    forged.places[0].algorithm = 77;
    weir_release(r->s, &forged, r->now_ns);
    forged = good;
    forged.places[0].record = UINT32_MAX - 1;
    weir_release(r->s, &forged, r->now_ns);
    forged = good;
    forged.places[0].generation = 255;
    weir_release(r->s, &forged, r->now_ns);
    forged = good;
    forged.places[0].window_s = 0;
    weir_release(r->s, &forged, r->now_ns);
    assert_int_equal(ask_times(r, "t", "slots=x +2", 3), 0); /* still held */
    forged = good;
    forged.count = UINT32_MAX;
    memset(&forged.places[1], 0xff, sizeof(forged.places) - sizeof(forged.places[0]));
    weir_release(r->s, &forged, r->now_ns); /* the good place in it is released, once */
    assert_int_equal(ask_times(r, "t", "slots=x", 3), 2);
}

static void hits_are_given_back_unless_the_answer_counts(void **state)
{
    struct rig *r = *state;
    static const char *const keys[] = {"fixed=x", "tokens=x",  "interval=x",
                                       "log=x",   "counter=x", "sub=x"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        static const int statuses[] = {200, 403, 401, 404, 429, 503, 499};
        for (size_t k = 0; k < sizeof(statuses) / sizeof(statuses[0]); k++) {
            struct weir_ticket ticket = taken(r, keys[i]);
            assert_int_equal(ticket.count, 1);
            assert_int_equal(ticket.renew_ns, 0);
            weir_settle(r->s, &ticket, statuses[k], r->now_ns);
            assert_int_equal(ticket.count, 0);
        }
        struct weir_ticket last = taken(r, keys[i]); /* 401 and 503 have counted */
        assert_int_equal(ask_times(r, "t", keys[i], 3), 0);
        weir_settle(r->s, &last, 200, r->now_ns);
        last = taken(r, keys[i]); /* refusals have not */
        weir_settle(r->s, &last, 0, r->now_ns);
        assert_int_equal(ask_times(r, "t", keys[i], 3), 0); /* who did not wait has */
    }
}

static void many_at_once_all_count_until_they_are_answered(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask_times(r, "t", "fixed=y", 100), 3);
}

static void settling_uses_places_and_leaves_slots_to_be_released(void **state)
{
    struct rig *r = *state;
    struct weir_ticket a = taken(r, "mixed=x"), b = taken(r, "mixed=x");
    assert_int_equal(a.count, 3);
    assert_int_equal(a.renew_ns, 30 * WEIR_NS_PER_S);
    weir_settle(r->s, &a, 403, r->now_ns);
    weir_settle(r->s, &b, 200, r->now_ns);
    assert_int_equal(a.count, 1);
    assert_int_equal(ask(r, "t", "mixed=x"), WEIR_CODE_OVER_LIMIT); /* for want of a slot */
    weir_release(r->s, &a, r->now_ns);
    weir_release(r->s, &b, r->now_ns);
    struct weir_ticket c = taken(r, "mixed=x");
    assert_int_equal(r->statuses[0].delay_ns, 2 * WEIR_NS_PER_S); /* two places before it */
    ask(r, "t", "mixed=x +0");
    assert_int_equal(ask(r, "t", "mixed=x"), WEIR_CODE_OK); /* the second slot */
    assert_int_equal(ask(r, "t", "mixed=x"), WEIR_CODE_OVER_LIMIT);
    weir_release(r->s, &c, r->now_ns);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_rules, close_rules)
    const struct CMUnitTest tests[] = {
        T(a_released_slot_can_be_taken_again),
        T(releasing_twice_gives_back_once),
        T(a_slot_comes_back_by_itself_unless_it_is_renewed),
        T(the_last_place_in_a_queue_can_be_given_back_and_no_other),
        T(one_ticket_stands_for_all_limits_of_a_descriptor),
        T(all_tiers_of_a_slot_are_given_back),
        T(a_window_gives_no_ticket_and_an_empty_one_does_nothing),
        T(a_forged_ticket_does_no_harm),
        T(hits_are_given_back_unless_the_answer_counts),
        T(many_at_once_all_count_until_they_are_answered),
        T(settling_uses_places_and_leaves_slots_to_be_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
