/* What an HTTP request becomes: shapes, attributes, if_absent, and the /64 of an address.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules/shapes.h"
#include "rules_rig.h"

#define HEAD "domain: d\ndescriptors:\n"
#define LIMIT "rate_limit: {unit: hour, requests_per_unit: 9}"

/* A request as the attributes that it has: "user=ann path=/x". */
static int look_up(void *ctx, struct weir_str name, struct weir_str *value)
{
    static char work[512];
    struct weir_entry entries[16];
    uint32_t count = read_entries(ctx, work, entries);
    for (uint32_t i = 0; i < count; i++) {
        if (!weir_str_eq(entries[i].key, name))
            continue;
        *value = entries[i].value;
        return true;
    }
    return false;
}

/* The descriptors of a request, written "k=v k=v; k=v". */
static const char *describe(const struct weir_rules *rules, const char *request, bool *is_denied)
{
    static char text[4096];
    struct weir_descriptor descriptors[WEIR_SHAPES_MAX];
    struct weir_entry entries[256];
    char addresses[8][WEIR_ADDRESS_TEXT_MAX], copy[256];
    struct weir_shape_room room = {descriptors, entries, addresses, WEIR_SHAPES_MAX, 256, 8};
    struct weir_http http = {.attribute = look_up, .ctx = copy};
    uint32_t count = 0;
    size_t len = 0;
    snprintf(copy, sizeof(copy), "%s", request);
    const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
    assert_int_equal(weir_shapes_describe(domain, &http, &room, &count, is_denied), 0);
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < descriptors[i].entry_count; j++) {
            const struct weir_entry *e = &descriptors[i].entries[j];
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s=%.*s",
                                    j   ? " "
                                    : i ? "; "
                                        : "",
                                    WEIR_STR_ARG(e->key), WEIR_STR_ARG(e->value));
        }
    return text;
}

static void each_chain_that_ends_in_a_limit_is_a_shape(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded(HEAD "  - {key: generic_key, value: all, " LIMIT "}\n"
                    "  - {key: generic_key, value: more, " LIMIT "}\n"
                    "  - key: path\n    value: /v1/*\n    match: path\n"
                    "    descriptors: [{key: user, " LIMIT "}]\n"
                    "  - {key: path, value: /x, descriptors: [{key: user, " LIMIT "}]}\n"
                    "  - {key: path, " LIMIT "}\n"
                    "  - {key: nothing, value: here}\n");
    bool is_denied;
    const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
    assert_int_equal(weir_shapes_count(domain), 4);
    assert_int_equal(weir_shapes_at(domain, 2)->part_count, 2);
    assert_string_equal(describe(rules, "path=/v1/a user=ann", &is_denied),
                        "generic_key=all; generic_key=more; path=/v1/a user=ann; path=/v1/a");
    assert_string_equal(describe(rules, "path=/v1/a", &is_denied),
                        "generic_key=all; generic_key=more; path=/v1/a");
    assert_string_equal(describe(rules, "user=ann", &is_denied),
                        "generic_key=all; generic_key=more");
    assert_false(is_denied);
    weir_rules_free(rules);
}

static void an_absent_attribute_is_what_the_rule_says(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(HEAD "  - key: user\n    if_absent: anon\n"
                                           "    descriptors: [{key: remote_address, " LIMIT "}]\n"
                                           "  - {key: header.Key, if_absent: deny, " LIMIT "}\n");
    bool is_denied;
    assert_string_equal(describe(rules, "remote_address=192.0.2.1 header.Key=x", &is_denied),
                        "user=anon remote_address=192.0.2.1; header.Key=x");
    assert_false(is_denied);
    assert_string_equal(describe(rules, "user=ann remote_address=192.0.2.1", &is_denied),
                        "user=ann remote_address=192.0.2.1");
    assert_true(is_denied);
    weir_rules_free(rules);
    assert_refused(HEAD "  - {key: user, value: a, if_absent: deny, " LIMIT "}\n"
                        "  - {key: user, value: b, if_absent: anon, " LIMIT "}\n",
                   "says something else");
    rules = loaded(HEAD "  - {key: user, if_absent: 'deny', " LIMIT "}\n"); /* quoted: a value */
    assert_string_equal(describe(rules, "", &is_denied), "user=deny");
    weir_rules_free(rules);
}

static void an_ipv6_address_is_counted_by_its_64(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD "  - {key: remote_address, id: bare, " LIMIT "}\n"
             "  - {key: remote_address, value: '2001:db8:9::/48', match: cidr, id: net, " LIMIT
             "}\n");
    bool is_denied;
    assert_string_equal(describe(rules, "remote_address=2001:db8:1:2:3:4:5:6", &is_denied),
                        "remote_address=2001:db8:1:2::/64");
    assert_string_equal(describe(rules, "remote_address=2001:db8:9::7", &is_denied),
                        "remote_address=2001:db8:9::7");
    assert_string_equal(describe(rules, "remote_address=192.0.2.7", &is_denied),
                        "remote_address=192.0.2.7");
    assert_string_equal(id_of(rules, "remote_address=2001:db8:1:2::/64"), "bare");
    weir_rules_free(rules);
    rules = loaded(HEAD "  - {key: remote_address, ipv6_prefix: 56, " LIMIT "}\n");
    assert_string_equal(describe(rules, "remote_address=2001:db8::7", &is_denied),
                        "remote_address=2001:db8::7"); /* the engine cuts it */
    weir_rules_free(rules);
}

static void shapes_are_at_most_64(void **state)
{
    static char text[WEIR_SHAPES_MAX * 128];
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        size_t len = (size_t)snprintf(text, sizeof(text), HEAD);
        for (unsigned i = 0; i < WEIR_SHAPES_MAX + more; i++)
            len +=
                (size_t)snprintf(text + len, sizeof(text) - len, "  - {key: k%u, " LIMIT "}\n", i);
        struct weir_rules *rules = loaded(text);
        struct weir_shape_room room = {0};
        struct weir_http http = {.attribute = look_up, .ctx = text};
        uint32_t count;
        bool is_denied;
        const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
        assert_int_equal(weir_shapes_count(domain), WEIR_SHAPES_MAX);
        assert_int_equal(said.warnings, more);
        assert_int_equal(weir_shapes_describe(domain, &http, &room, &count, &is_denied),
                         WEIR_ERR_TOO_LARGE); /* no room at all, or too many */
        weir_rules_free(rules);
    }
}

static bool is_user_late(void *ctx, struct weir_str key)
{
    (void)ctx;
    return weir_str_eq(key, WEIR_STR("user"));
}

static uint32_t count_at(const struct weir_rules *rules, enum weir_stage stage)
{
    struct weir_descriptor descriptors[WEIR_SHAPES_MAX];
    struct weir_entry entries[256];
    char addresses[8][WEIR_ADDRESS_TEXT_MAX], request[] = "path=/x user=ann remote_address=1.2.3.4";
    struct weir_shape_room room = {descriptors, entries, addresses, WEIR_SHAPES_MAX, 256, 8};
    struct weir_http http = {
        .attribute = look_up, .ctx = request, .is_late = is_user_late, .stage = stage};
    uint32_t count = 0;
    bool is_denied;
    const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
    assert_int_equal(weir_shapes_describe(domain, &http, &room, &count, &is_denied), 0);
    return count;
}

static void what_is_known_late_is_asked_late_and_only_once(void **state)
{
    (void)state;
    static const char *const heads[] = {"domain: d\n", "domain: d\natomic: true\n"};
    for (int is_atomic = 0; is_atomic < 2; is_atomic++) {
        char text[1024];
        snprintf(text, sizeof(text),
                 "%sdescriptors:\n"
                 "  - {key: remote_address, " LIMIT "}\n"
                 "  - {key: path, descriptors: [{key: user, " LIMIT "}]}\n"
                 "  - {key: user, " LIMIT "}\n",
                 heads[is_atomic]);
        struct weir_rules *rules = loaded(text);
        assert_int_equal(count_at(rules, WEIR_STAGE_ALL), 3);
        assert_int_equal(count_at(rules, WEIR_STAGE_EARLY), is_atomic ? 0 : 1);
        assert_int_equal(count_at(rules, WEIR_STAGE_LATE), is_atomic ? 3 : 2);
        weir_rules_free(rules);
    }
    struct weir_rules *rules = loaded(
        HEAD
        "  - {key: remote_address, rate_limit: {name: a, unit: hour, requests_per_unit: 9}}\n"
        "  - {key: user, rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: a}]}}\n");
    assert_int_equal(count_at(rules, WEIR_STAGE_EARLY), 0);
    assert_int_equal(count_at(rules, WEIR_STAGE_LATE), 2);
    weir_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chain_that_ends_in_a_limit_is_a_shape),
        cmocka_unit_test(an_absent_attribute_is_what_the_rule_says),
        cmocka_unit_test(an_ipv6_address_is_counted_by_its_64),
        cmocka_unit_test(shapes_are_at_most_64),
        cmocka_unit_test(what_is_known_late_is_asked_late_and_only_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
