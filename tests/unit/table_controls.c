/* table_controls.c - overrides and captions in the table itself: places, versions, damage.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"
#include "table/controls.h"
#include "table/key_overrides.h"

#include <fcntl.h>

static const struct weir_table_geometry small = {.file_bytes = 1 << 20};
static const struct weir_key_words nobody = {.domain = {"d", 1}};

static int put(struct weir_table *table, uint64_t key, uint64_t name, uint32_t requests)
{
    const struct weir_key_override o = {.key = key,
                                        .name = name,
                                        .since_ns = RIG_START_NS,
                                        .until_ns = RIG_START_NS + 100,
                                        .requests = requests};
    return weir_key_override_put(table, &o, &nobody, RIG_START_NS);
}

static uint32_t number_of(const struct weir_table *table, uint64_t key, uint64_t now_ns)
{
    struct weir_key_override o;
    return weir_key_override_find(table, key, now_ns, &o) ? o.requests : UINT32_MAX;
}

static void a_word_in_the_header_says_whether_to_look(void **state)
{
    struct weir_table *table = rig_open(NULL, &small);
    (void)state;
    assert_false(weir_key_overrides_live(table, 1));
    assert_int_equal(put(table, 7, 1, 5), 0);
    assert_true(weir_key_overrides_live(table, RIG_START_NS + 99));
    assert_int_equal(number_of(table, 7, RIG_START_NS + 99), 5);
    assert_int_equal(number_of(table, 7, RIG_START_NS + 100), UINT32_MAX);
    assert_false(weir_key_overrides_live(table, RIG_START_NS + 100000000));
    assert_int_equal(put(table, 8, 2, 6), 0);
    assert_int_equal(weir_key_override_drop(table, 1, 0, RIG_START_NS), 1);
    assert_true(weir_key_overrides_live(table, RIG_START_NS));
    assert_int_equal(weir_key_override_drop(table, 2, 0, RIG_START_NS), 1);
    assert_false(weir_key_overrides_live(table, RIG_START_NS));
    weir_table_close(table);
}

static void numbers_of_before_are_known_by_generation(void **state)
{
    struct weir_table *table = rig_open(NULL, &small);
    struct weir_key_override o = {0};
    (void)state;
    for (uint32_t i = 1; i <= 4; i++) {
        assert_int_equal(put(table, 7, 1, 10 * i), 0);
        assert_true(weir_key_override_find(table, 7, RIG_START_NS, &o));
    }
    for (uint32_t before = 0; before < 4; before++) {
        uint32_t number = (weir_generation_number(o.generation) - before) % WEIR_GENERATIONS;
        uint32_t generation = weir_generation(number, WEIR_PLACE_KEY);
        assert_int_equal(weir_key_override_rate(table, 7, generation), 10 * (4 - before));
    }
    assert_int_equal(weir_key_override_drop(table, 1, 0, RIG_START_NS), 1);
    assert_int_equal(weir_key_override_rate(table, 7, o.generation), 40); /* still */
    assert_int_equal(weir_key_override_rate(table, 9, o.generation), 0);
    weir_table_close(table);
}

/* A table of 1 MiB has 16 places, the same for every key. */
static void a_place_is_taken_over_when_its_override_has_ended(void **state)
{
    struct weir_table *table = rig_open(NULL, &small);
    (void)state;
    for (uint64_t key = 1; key <= 16; key++)
        assert_int_equal(put(table, rig_key(1, key), key, (uint32_t)key), 0);
    assert_int_equal(put(table, rig_key(1, 17), 17, 17), WEIR_ERR_FULL);
    for (uint64_t key = 1; key <= 16; key++)
        assert_int_equal(number_of(table, rig_key(1, key), RIG_START_NS), key);
    assert_int_equal(weir_key_override_drop(table, 3, 0, RIG_START_NS), 1);
    assert_int_equal(put(table, rig_key(1, 17), 17, 17), 0);
    assert_int_equal(number_of(table, rig_key(1, 17), RIG_START_NS), 17);
    assert_int_equal(number_of(table, rig_key(1, 3), RIG_START_NS), UINT32_MAX);
    weir_table_close(table);
}

static void words_are_cut_where_a_character_begins(void **state)
{
    struct weir_table *table = rig_open(NULL, &small);
    struct weir_caption_text text;
    char value[256];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof value; i += 2)
        memcpy(value + i, "\xc3\xa9", 2);
    for (size_t len = 0; len < 9; len++) {
        struct weir_key_words words = {
            .domain = {"ddddddddd", len}, .entries = {{{"k", 1}, {value, 256}}}, .entry_count = 1};
        struct weir_caption *caption = &table->controls.overrides[0].caption;
        weir_caption_write(caption, 5, &words);
        assert_false(weir_caption_read(caption, 6, &text)); /* somebody else's */
        assert_true(weir_caption_read(caption, 5, &text));
        assert_true(text.words.is_cut);
        assert_int_equal(text.words.domain.len, len);
        assert_int_equal(text.words.entry_count, 1);
        assert_int_equal(text.words.entries[0].value.len % 2, 0);
        assert_in_range(text.words.entries[0].value.len, 150, WEIR_CAPTION_BYTES);
        caption->words[3] ^= 1;
        assert_false(weir_caption_read(caption, 5, &text));
    }
    weir_table_close(table);
}

/* Makes a file of version 1: the same without its end. */
static void age(const char *path)
{
    static const struct weir_hash_key key = {UINT64_C(0x7765697220746162), UINT64_C(0x6c65)};
    struct weir_table *table = rig_open(path, NULL);
    struct weir_table_header header = *table->header;
    header.version = 1;
    header.file_bytes = table->map.controls_at;
    header.checksum = weir_siphash13(&key, &header, offsetof(struct weir_table_header, checksum));
    weir_table_close(table);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &header, sizeof header, 0), sizeof header);
    assert_int_equal(ftruncate(fd, (off_t)header.file_bytes), 0);
    close(fd);
}

static void a_file_of_version_1_counts_on_and_has_no_controls(void **state)
{
    static const struct weir_limit_spec spec = {
        .algorithm = WEIR_TOKEN_BUCKET, .window_s = 60, .requests_per_unit = 5, .burst = 5};
    struct weir_table_geometry geometry = {.file_bytes = 2 << 20};
    char path[128], larger[160], why[256];
    (void)state;
    rig_path(path, sizeof path);
    struct weir_table *table = rig_open(path, &small);
    struct weir_limit limit = rig_limit(table, spec, 1);
    assert_true(rig_take(table, &limit, 77, RIG_START_NS, 4));
    weir_table_close(table);
    age(path);
    table = rig_open(path, NULL);
    limit = rig_limit(table, spec, 1);
    assert_true(rig_take(table, &limit, 77, RIG_START_NS, 1));
    assert_false(rig_take(table, &limit, 77, RIG_START_NS, 1));
    assert_int_equal(weir_enforced_percent(table, 0), 100);
    assert_int_equal(weir_enforced_set(table, 0, 5), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(put(table, 7, 1, 5), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(number_of(table, 7, RIG_START_NS), UINT32_MAX);
    assert_int_equal(weir_key_override_drop(table, 1, 0, RIG_START_NS), 0);
    weir_table_close(table);
    snprintf(larger, sizeof larger, "%s-larger", path);
    assert_int_equal(weir_table_resize(path, larger, &geometry, why, sizeof why), 0);
    table = rig_open(larger, NULL); /* a new one of the present version */
    assert_int_equal(put(table, 7, 1, 5), 0);
    assert_int_equal(weir_enforced_set(table, 0, 5), 0);
    weir_table_close(table);
    unlink(path);
    unlink(larger);
}

static void resizing_keeps_what_was_set(void **state)
{
    struct weir_table_geometry geometry = {.file_bytes = 4 << 20};
    char path[128], larger[160], why[256];
    struct weir_caption_text text;
    struct weir_key_override o = {0};
    (void)state;
    rig_path(path, sizeof path);
    struct weir_table *table = rig_open(path, &small);
    uint64_t now_ns = weir_table_now(table);
    uint32_t stat = weir_stats_claim(table, 99);
    assert_int_equal(weir_enforced_set(table, stat, 30), 0);
    o = (struct weir_key_override){.key = 7,
                                   .name = 1,
                                   .since_ns = now_ns,
                                   .until_ns = now_ns + 3600 * RIG_CREW * 1000000000,
                                   .requests = 5,
                                   .stat = stat};
    assert_int_equal(weir_key_override_put(table, &o, &nobody, now_ns), 0);
    weir_table_close(table);
    snprintf(larger, sizeof larger, "%s-larger", path);
    assert_int_equal(weir_table_resize(path, larger, &geometry, why, sizeof why), 0);
    table = rig_open(larger, NULL);
    stat = weir_stats_claim(table, 99);
    assert_int_equal(weir_enforced_percent(table, stat), 30);
    assert_int_equal(number_of(table, 7, now_ns), 5);
    uint32_t found = 0;
    for (uint32_t i = 0; i < table->controls.override_count; i++)
        found += weir_key_override_at(table, i, now_ns, &o, &text);
    assert_int_equal(found, 1);
    assert_int_equal(o.stat, stat);
    assert_int_equal(text.words.domain.len, 1);
    weir_table_close(table);
    unlink(path);
    unlink(larger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_in_the_header_says_whether_to_look),
        cmocka_unit_test(numbers_of_before_are_known_by_generation),
        cmocka_unit_test(a_place_is_taken_over_when_its_override_has_ended),
        cmocka_unit_test(words_are_cut_where_a_character_begins),
        cmocka_unit_test(a_file_of_version_1_counts_on_and_has_no_controls),
        cmocka_unit_test(resizing_keeps_what_was_set),
    };
    return cmocka_run_group_tests_name("table_controls", tests, NULL, NULL);
}
