/* Statistics under names with values in them: bounded, and counted by many threads at once.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/value_stats.h"

#include "engine_rig.h"

#include <pthread.h>

#define THREADS 4
#define ROUNDS 2000

struct setting {
    struct weir_rules *rules;
    const struct weir_domain *domain;
    struct weir_value_stats *stats;
};

static const struct weir_hash_key SECRET = {1, 2};

static int set_up(void **state)
{
    static struct setting setting;
    const struct weir_rules_options options = {0};
    assert_int_equal(
        weir_rules_load_text(&setting.rules,
                             WEIR_STR("domain: d\ndescriptors:\n"
                                      "  - {key: k, detailed_metric: true, rate_limit: "
                                      "{unit: day, requests_per_unit: 5}}\n"),
                             "rules.yaml", &options),
        0);
    setting.domain = weir_rules_domain(setting.rules, WEIR_STR("d"));
    assert_int_equal(weir_value_stats_new(&setting.stats), 0);
    *state = &setting;
    return 0;
}

static int tear_down(void **state)
{
    struct setting *setting = *state;
    weir_value_stats_free(setting->stats);
    weir_rules_free(setting->rules);
    return 0;
}

static struct weir_value_stat *find(const struct setting *setting, const char *value)
{
    const struct weir_entry entry = {.key = WEIR_STR("k"), .value = weir_str_of(value)};
    const struct weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    return weir_value_stats_find(setting->stats, &SECRET, setting->domain, &descriptor);
}

static struct weir_value_stat *find_number(const struct setting *setting, uint32_t number)
{
    char value[16];
    snprintf(value, sizeof(value), "%u", number);
    return find(setting, value);
}

static uint32_t count_names(const struct weir_value_stats *stats)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEIR_VALUE_PLACES; i++)
        count += weir_value_stats_at(stats, i) != NULL;
    return count;
}

static void a_name_has_one_place(void **state)
{
    struct weir_value_stat *stat = find(*state, "one");
    assert_non_null(stat);
    assert_ptr_equal(find(*state, "one"), stat);
    assert_ptr_not_equal(find(*state, "other"), stat);
    assert_int_equal(stat->len, strlen("d.k_one"));
    assert_memory_equal(stat->name, "d.k_one", stat->len);
}

static void there_are_at_most_so_many_names(void **state)
{
    const struct setting *setting = *state;
    for (uint32_t i = 0; i < WEIR_VALUE_STATS_MAX; i++)
        assert_non_null(find_number(setting, i));
    assert_null(find_number(setting, WEIR_VALUE_STATS_MAX));
    assert_non_null(find_number(setting, 0)); /* those that are there stay */
    assert_int_equal(count_names(setting->stats), WEIR_VALUE_STATS_MAX);
}

static void a_name_has_at_most_so_many_bytes(void **state)
{
    char value[WEIR_VALUE_NAME_MAX];
    size_t most = WEIR_VALUE_NAME_MAX - strlen("d.k_");
    memset(value, 'v', sizeof(value));
    value[most] = '\0';
    assert_int_equal(find(*state, value)->len, WEIR_VALUE_NAME_MAX);
    value[most] = 'v';
    value[most + 1] = '\0';
    assert_null(find(*state, value));
}

static void *count_all(void *ctx)
{
    const uint64_t amounts[WEIR_COUNTERS] = {[WEIR_COUNTER_TOTAL_HITS] = 1};
    for (uint32_t i = 0; i < ROUNDS; i++)
        weir_value_stats_add(find_number(ctx, i % 100), amounts);
    return NULL;
}

static void threads_lose_nothing_and_name_nothing_twice(void **state)
{
    const struct setting *setting = *state;
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_all, *state), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(count_names(setting->stats), 100);
    for (uint32_t i = 0; i < 100; i++)
        sum += find_number(setting, i)->counts[WEIR_COUNTER_TOTAL_HITS];
    assert_int_equal(sum, THREADS * ROUNDS);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_name_has_one_place),
        CASE(there_are_at_most_so_many_names),
        CASE(a_name_has_at_most_so_many_bytes),
        CASE(threads_lose_nothing_and_name_nothing_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
