/* No decision allocates, whatever it meets.  Under a sanitizer there is nothing to count with, and
 * nothing is tested.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "count_allocations.h"
#include "engine_rig.h"

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - key: fixed\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5}\n"
    "  - key: token\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5, algorithm: token_bucket}\n"
    "  - key: leaky\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5, algorithm: leaky_bucket}\n"
    "  - key: log\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_window_log}\n"
    "  - key: counter\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_window_counter}\n"
    "  - key: sub\n"
    "    rate_limit:\n"
    "      {unit: hour, requests_per_unit: 5, algorithm: sliding_window_counter, buckets: 4}\n"
    "  - key: slots\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5, algorithm: concurrency}\n"
    "  - key: several\n"
    "    rate_limit:\n"
    "      - {name: a, unit: hour, requests_per_unit: 5}\n"
    "      - {name: b, unit: day, requests_per_unit: 6, algorithm: token_bucket}\n"
    "  - key: wild\n"
    "    value: x*y*\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5}\n"
    "  - key: regex\n"
    "    value: ^a+b$\n"
    "    match: regex\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5}\n"
    "  - {key: named, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 5}}\n"
    "  - key: net\n"
    "    ipv6_prefix: [64, 48]\n"
    "    rate_limit: {unit: hour, requests_per_unit: 5}\n";

static const char *const ASKED[] = {
    "fixed=a",     "token=a",         "leaky=a",
    "log=a",       "counter=a",       "sub=a",
    "slots=a",     "several=a",       "wild=xxyy",
    "regex=aaab",  "net=2001:db8::1", "named=a",
    "none=a",      "fixed=a +0",      "log=a -1",
    "token=a +99", "several=a -1",    "fixed=a; log=a; token=a; slots=b",
};

static void no_decision_allocates(void **state)
{
    (void)state;
    struct rig *r = rig_open(RULES, NULL);
    struct weir_override override = {3, WEIR_UNIT_HOUR};
    unsigned long before = allocations;
    for (int turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < sizeof(ASKED) / sizeof(ASKED[0]); i++) {
            r->override = turn % 2 ? &override : NULL;
            ask(r, "t", ASKED[i]);
            struct weir_ticket ticket = r->statuses[0].ticket;
            int results[1];
            assert_int_equal(weir_refund(r->s, &r->request, r->now_ns, &r->decision), 0);
            weir_check_many(r->s, &r->request, 1, r->now_ns, &r->decision, results);
            if (turn % 3 == 0 && ticket.count > 0)
                weir_release(r->s, &ticket, r->now_ns);
        }
        r->now_ns += 600 * RIG_SECOND;
    }
    assert_int_equal(allocations, before);
    rig_close(r);
    if (IS_COUNTED)
        assert_true(allocations > 0);
}

static void no_decision_allocates_in_an_atomic_domain(void **state)
{
    (void)state;
    struct rig *r = rig_open("domain: a\n"
                             "atomic: true\n"
                             "descriptors:\n"
                             "  - key: one\n"
                             "    rate_limit: {unit: hour, requests_per_unit: 5}\n"
                             "  - key: two\n"
                             "    rate_limit: {unit: hour, requests_per_unit: 3}\n",
                             NULL);
    unsigned long before = allocations;
    assert_int_equal(ask_times(r, "a", "one=x; two=x", 9), 3);
    assert_int_equal(allocations, before);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_decision_allocates),
        cmocka_unit_test(no_decision_allocates_in_an_atomic_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
