/* Files and directories of rules: which are read, in which order, and what is said of bad ones.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules/shapes.h"
#include "rules_rig.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT "rate_limit: {unit: hour, requests_per_unit: 9}"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/weir-rules-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void path_of(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", root, name);
}

static void put_bytes(const char *name, const char *bytes, size_t len)
{
    char path[256];
    path_of(path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static int load_path(const char *name, bool merge, struct weir_rules **rules)
{
    char path[256];
    path_of(path, name);
    if (name[0] == '\0')
        snprintf(path, sizeof(path), "%s", root);
    struct weir_rules_options options = {.path = path, .log = say, .merge_domains = merge};
    said = (struct said){.len = 0};
    *rules = NULL;
    return weir_rules_load(rules, &options);
}

static void a_directory_is_read_as_a_whole_in_order(void **state)
{
    (void)state;
    char path[256], target[256];
    put("b.yaml", "domain: b\ndescriptors: [{key: k, " LIMIT "}]\n");
    put("a.conf", "domain: a\ndescriptors: [{key: k, " LIMIT "}]\n");
    put(".hidden", "not: rules\n");
    put("b.yaml~", "not: rules\n");
    put("c.swp", "not: rules\n");
    put("map.csv", "not,rules\n");
    path_of(path, "sub");
    assert_int_equal(mkdir(path, 0755), 0);
    put("sub/c.yml", "domain: c\ndescriptors: [{key: k, " LIMIT "}]\n");
    path_of(path, "..data");
    assert_int_equal(mkdir(path, 0755), 0);
    put("..data/d", "domain: d\ndescriptors: [{key: k, " LIMIT "}]\n");
    path_of(path, "d.yaml");
    path_of(target, "..data/d");
    assert_int_equal(symlink(target, path), 0);
    struct weir_rules *rules;
    assert_int_equal(load_path("", false, &rules), 0);
    assert_int_equal(said.len, 0);
    static const char *const ids[] = {"a.k", "b.k", "d.k", "c.k"};
    assert_int_equal(weir_rules_count(rules), 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(weir_str_eq(weir_rules_at(rules, i)->info.id, weir_str_of(ids[i])));
    weir_rules_free(rules);
}

static void errors_of_all_files_are_told(void **state)
{
    (void)state;
    struct weir_rules *rules;
    put("a.yaml", "domain: a\nfoo: 1\n");
    put("b.yaml", "domain: [\n");
    put("c.yaml", "domain: a\n");
    put_bytes("d.yaml", "domain: d\n\0", 11);
    put_bytes("e.yaml", "domain: d\n\xff\xfe", 12);
    put("f.yaml", "");
    assert_int_equal(load_path("", false, &rules), WEIR_ERR_RULES);
    assert_null(rules);
    assert_said("a.yaml:2:1: config error, unknown key 'foo'");
    assert_said("b.yaml:2:1: error loading config file: not valid YAML");
    assert_said("c.yaml:1:9: duplicate domain 'a' in config file; the first is a.yaml");
    assert_said("d.yaml:2:1: a NUL byte");
    assert_said("e.yaml:2:1: not valid UTF-8: byte 0xff");
    assert_said("f.yaml:1:1: config file cannot have empty domain");
    assert_int_equal(said.errors, 6);
}

static void several_files_may_speak_of_one_domain_when_asked_to(void **state)
{
    (void)state;
    struct weir_rules *rules;
    put("a.yaml", "domain: d\ndescriptors: [{key: a, " LIMIT "}]\n");
    put("b.yaml", "domain: d\ndescriptors: [{key: b, " LIMIT "}]\n");
    assert_int_equal(load_path("", false, &rules), WEIR_ERR_RULES);
    assert_int_equal(load_path("", true, &rules), 0);
    assert_string_equal(id_of(rules, "a=1"), "d.a");
    assert_string_equal(id_of(rules, "b=1"), "d.b");
    weir_rules_free(rules);
    put("b.yaml", "domain: d\ndescriptors: [{key: a, " LIMIT "}]\n");
    assert_int_equal(load_path("", true, &rules), WEIR_ERR_RULES);
    assert_said("b.yaml:2:15: duplicate descriptor composite key 'd.a'; the first is at a.yaml:2");
}

static void a_path_that_is_not_there_is_an_error_of_the_world(void **state)
{
    (void)state;
    struct weir_rules *rules;
    assert_int_equal(load_path("nope.yaml", false, &rules), WEIR_ERR_IO);
    assert_said("No such file or directory");
    assert_int_equal(load_path("", false, &rules), 0); /* an empty directory has no rules */
    assert_int_equal(weir_rules_count(rules), 0);
    assert_null(weir_rules_domain(rules, WEIR_STR("d")));
    weir_rules_free(rules);
}

static void overrides_and_attributes_come_from_files_beside_the_rules(void **state)
{
    (void)state;
    struct weir_rules *rules;
    put("tiers.csv", "# who pays\r\nann, gold\n\nbob,silver\n");
    put("o.csv", "ann,7\nbob,0\n");
    put("r.yaml", "domain: d\n"
                  "attributes: {tier: {from: user, map: tiers.csv, default: free}}\n"
                  "descriptors:\n"
                  "  - {key: tier, overrides: {file: o.csv, zoe: 8}, " LIMIT "}\n");
    assert_int_equal(load_path("r.yaml", false, &rules), 0);
    assert_int_equal(match(rules, "d", "tier=ann").limits->limit.requests, 7);
    assert_int_equal(match(rules, "d", "tier=zoe").limits->limit.requests, 8);
    assert_int_equal(match(rules, "d", "tier=eve").limits->limit.requests, 9);
    const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
    struct weir_str tier = WEIR_STR("tier"), ann = WEIR_STR("ann"), eve = WEIR_STR("eve"), value;
    assert_true(weir_attribute_find(domain, tier, &value) && weir_str_eq(value, WEIR_STR("user")));
    assert_true(weir_attribute_lookup(domain, tier, &ann, &value) &&
                weir_str_eq(value, WEIR_STR("gold")));
    assert_true(weir_attribute_lookup(domain, tier, &eve, &value) &&
                weir_str_eq(value, WEIR_STR("free")));
    assert_true(weir_attribute_lookup(domain, tier, NULL, &value));
    assert_false(weir_attribute_lookup(domain, WEIR_STR("nope"), &ann, &value));
    weir_rules_free(rules);
    put("o.csv", "ann;7\nbob,x\n");
    put("r.yaml", "domain: d\ndescriptors: [{key: a, overrides: {file: o.csv}, " LIMIT "},\n"
                  "{key: b, overrides: {file: gone.csv}, " LIMIT "}]\n");
    assert_int_equal(load_path("r.yaml", false, &rules), WEIR_ERR_RULES);
    assert_said("o.csv:1:1: a line must be 'key,value'");
    assert_said("o.csv:2:1: an override must be a number");
    assert_said("r.yaml:3:28: cannot read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_directory_is_read_as_a_whole_in_order, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(errors_of_all_files_are_told, make_root, remove_root),
        cmocka_unit_test_setup_teardown(several_files_may_speak_of_one_domain_when_asked_to,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_path_that_is_not_there_is_an_error_of_the_world,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(overrides_and_attributes_come_from_files_beside_the_rules,
                                        make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
