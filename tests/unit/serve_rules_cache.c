/* Rules of a database in memory and on disk: what is good, what they are called, what is kept.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "serve/rules_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define ID "0123456789abcdef0123456789abcdef"

static char folder[64], why[5000];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weir-cache-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static const char *in_folder(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof(path[0]), "%s/%s", folder, name);
    return out;
}

static void add(struct weir_rules_set *set, const char *domain, const char *text)
{
    weir_rules_set_add(set, weir_str_of(domain),
                       &(const struct weir_redis_rules_entry){.text = weir_str_of(text)}, NULL);
}

static void begin(struct weir_rules_set *set, uint64_t version)
{
    weir_rules_set_init(set);
    weir_rules_set_reserve(set, 4);
    set->head.version = version;
    snprintf(set->head.id, sizeof(set->head.id), "%s", ID);
}

static const char *name_of(const char *domain, size_t len)
{
    static char name[WEIR_RULES_FILE_NAME_LEN];
    weir_rules_set_file_name((struct weir_str){domain, len}, name);
    return name;
}

/* ---- names ---- */

static void a_name_of_a_file_is_plain_and_its_own(void **state)
{
    (void)state;
    char longest[WEIR_DOMAIN_LEN_MAX];
    memset(longest, 'x', sizeof(longest));
    assert_string_equal(name_of("api", 3), "api.yaml");
    assert_string_equal(name_of("a.b", 3), "a.b.yaml");
    assert_string_equal(name_of("../x", 4), "%2E.%2Fx.yaml");
    assert_string_equal(name_of("\xff\0%", 3), "%FF%00%25.yaml");
    assert_int_equal(strncmp(name_of("", 0), "%sha256-E3B0C442", 16), 0);
    /* The longest that is written out, and one more. */
    size_t most = 0;
    while (most < sizeof(longest) && name_of(longest, most + 1)[0] == 'x')
        most++;
    assert_int_equal(strlen(name_of(longest, most)), most + 5);
    assert_int_equal(strncmp(name_of(longest, most + 1), "%sha256-", 8), 0);
    assert_true(strlen(name_of(longest, sizeof(longest))) < WEIR_RULES_FILE_NAME_LEN);
}

/* ---- sets ---- */

static void a_set_is_good_as_a_whole_or_not_at_all(void **state)
{
    (void)state;
    struct weir_rules_set set;
    begin(&set, 1);
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), 0); /* nothing is limited */
    add(&set, "api", "domain: api\n");
    add(&set, "web", "domain: web\n");
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), 0);
    set.domains[1].entry.text =
        WEIR_STR("domain: api\n"); /* twice one domain, and never the other */
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), WEIR_ERR_RULES);
    set.domains[1].entry.text = WEIR_STR("domain: shop\n");
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), WEIR_ERR_RULES);
    struct weir_redis_rules_change change = {.domain = WEIR_STR("web"), .is_delete = true};
    weir_rules_set_change(&set, &change, "here");
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), 0);
    set.domains[0].wrong = "by hand";
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), WEIR_ERR_RULES);
    change = (struct weir_redis_rules_change){.domain = WEIR_STR("api"),
                                              .text = WEIR_STR("domain: api\n")};
    weir_rules_set_change(&set, &change, "here"); /* what was wrong is replaced */
    assert_int_equal(weir_rules_set_check(&set, NULL, NULL), 0);
    weir_rules_set_fini(&set);
}

/* ---- on disk ---- */

static void the_last_set_is_there_for_the_next_start(void **state)
{
    (void)state;
    struct weir_rules_cache cache, next;
    struct weir_rules_set set;
    struct stat st;
    assert_int_equal(weir_rules_cache_init(&cache, in_folder("deep/down/rules/"), why, sizeof(why)),
                     0);
    assert_true(weir_rules_cache_head(&cache).version == 0);
    assert_true(weir_rules_cache_lock(&cache));
    for (uint64_t version = 7; version < 10; version++) {
        begin(&set, version);
        add(&set, version == 8 ? "web" : "api", "domain: api\n");
        assert_int_equal(weir_rules_cache_keep(&cache, &set, why, sizeof(why)), 0);
        assert_true(weir_rules_cache_head(&cache).version == version);
        weir_rules_set_fini(&set);
    }
    assert_int_equal(stat(in_folder("deep/down/rules/api.yaml"), &st), 0);
    assert_int_not_equal(stat(in_folder("deep/down/rules/web.yaml"), &st), 0);
    assert_int_equal(weir_rules_cache_init(&next, in_folder("deep/down/rules"), why, sizeof(why)),
                     0);
    assert_string_equal(weir_rules_cache_head(&next).id, ID);
    assert_false(weir_rules_cache_lock(&next)); /* the first has it */
    weir_rules_cache_fini(&cache);
    assert_true(weir_rules_cache_lock(&next));
    weir_rules_cache_fini(&next);
}

static void a_head_that_makes_no_sense_is_none(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",      "x",        ID,           ID " ",
        ID " 7", ID " 7x\n", ID ID " 7\n", ID " 99999999999999999999999999999999999999999\n"};
    struct weir_rules_cache cache;
    struct weir_rules_set set;
    assert_int_equal(weir_rules_cache_init(&cache, in_folder("rules"), why, sizeof(why)), 0);
    assert_true(weir_rules_cache_lock(&cache));
    begin(&set, 7);
    assert_int_equal(weir_rules_cache_keep(&cache, &set, why, sizeof(why)), 0);
    weir_rules_set_fini(&set);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        FILE *file = fopen(in_folder("rules/.head"), "w");
        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        assert_int_equal(weir_rules_cache_head(&cache).version, 0);
    }
    weir_rules_cache_fini(&cache);
}

static void what_is_not_ours_is_not_touched(void **state)
{
    (void)state;
    struct weir_rules_cache cache;
    assert_int_equal(mkdir(in_folder("mine"), 0755), 0);
    assert_int_equal(symlink("mine", in_folder("link")), 0);
    assert_int_equal(symlink("nowhere", in_folder("dangling")), 0);
    static const char *const names[] = {"mine", "link", "dangling"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(weir_rules_cache_init(&cache, in_folder(names[i]), why, sizeof(why)),
                         WEIR_ERR_INVALID);
    assert_int_equal(weir_rules_cache_init(&cache, "/proc/none/rules", why, sizeof(why)),
                     WEIR_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_of_a_file_is_plain_and_its_own),
        cmocka_unit_test(a_set_is_good_as_a_whole_or_not_at_all),
        cmocka_unit_test_setup_teardown(the_last_set_is_there_for_the_next_start, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_head_that_makes_no_sense_is_none, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_is_not_ours_is_not_touched, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
