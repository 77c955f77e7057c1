/* table_clock.c - the table's clock while the wall clock is set, slewed and lost in a reboot.
 *
 * The two clocks of the system are the test's own: clock_gettime() is wrapped when this program is
 * linked.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"
#include "table/internal.h"

#include <fcntl.h>

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

static uint64_t wall_ns, boot_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    uint64_t now_ns = id == CLOCK_REALTIME ? wall_ns : boot_ns;
    *out = (struct timespec){.tv_sec = (time_t)(now_ns / S), .tv_nsec = (long)(now_ns % S)};
    return 0;
}

static void pass(uint64_t ns)
{
    wall_ns += ns;
    boot_ns += ns;
}

static struct weir_table *begin(char *path, size_t path_len)
{
    static const struct weir_table_geometry small = {.file_bytes = 1 << 20};
    wall_ns = RIG_START_NS;
    boot_ns = 1000 * S;
    rig_path(path, path_len);
    return rig_open(path, &small);
}

static void end(struct weir_table *table, const char *path)
{
    weir_table_close(table);
    unlink(path);
}

static void it_follows_the_wall_clock(void **state)
{
    (void)state;
    char path[128];
    struct weir_table *table = begin(path, sizeof path);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(weir_table_now(table), wall_ns);
        pass(77 * MS + 1);
    }
    end(table, path);
}

static void a_wall_clock_set_forward_is_followed_in_one_step(void **state)
{
    (void)state;
    char path[128];
    struct weir_table *table = begin(path, sizeof path);
    wall_ns += 3600 * S;
    pass(200 * MS);
    assert_int_equal(weir_table_now(table), wall_ns);
    /* A second and less is left to the system, which slews. */
    wall_ns += S;
    pass(200 * MS);
    assert_int_equal(weir_table_now(table), wall_ns - S);
    end(table, path);
}

/* Set back by a minute: nothing repeats, and the clock runs at nine tenths for ten minutes. */
static void a_wall_clock_set_back_is_waited_for(void **state)
{
    (void)state;
    char path[128];
    struct weir_table *table = begin(path, sizeof path);
    uint64_t last_ns = weir_table_now(table);
    wall_ns -= 60 * S;
    pass(200 * MS);
    last_ns = weir_table_now(table); /* here it begins to be slow */
    for (int i = 0; i < 5900; i++) {
        pass(100 * MS);
        uint64_t now_ns = weir_table_now(table);
        assert_int_equal(now_ns - last_ns, 90 * MS);
        last_ns = now_ns;
    }
    for (int i = 0; i < 200; i++) {
        pass(100 * MS);
        uint64_t now_ns = weir_table_now(table);
        assert_true(now_ns > last_ns);
        last_ns = now_ns;
    }
    assert_in_range(last_ns, wall_ns, wall_ns + 10 * MS);
    pass(100 * MS);
    assert_int_equal(weir_table_now(table) - last_ns, 100 * MS);
    end(table, path);
}

static void whoever_looks_all_see_one_time(void **state)
{
    (void)state;
    char path[128];
    struct weir_table *one = begin(path, sizeof path), *other = rig_open(path, NULL);
    for (int i = 0; i < 1000; i++) {
        if (i % 200 == 50)
            wall_ns += 5 * S;
        if (i % 200 == 150)
            wall_ns -= 3 * S;
        pass(70 * MS);
        uint64_t first = weir_table_now(i % 2 == 0 ? one : other);
        uint64_t second = weir_table_now(i % 2 == 0 ? other : one);
        /* Only the step itself may fall between the two. */
        assert_true(second == first || (second > first && second - first >= S));
    }
    weir_table_close(other);
    end(one, path);
}

/* What a table that outlives a reboot finds: another boot id, and a boot time that began anew. */
static void forget_the_boot(const char *path)
{
    uint8_t other[16] = "another boot id";
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t at = (off_t)offsetof(struct weir_table_header, clock_boot_id);
    assert_int_equal(pwrite(fd, other, sizeof other, at), sizeof other);
    close(fd);
    boot_ns = 5 * S;
}

static void after_a_reboot_it_goes_on_from_the_wall_clock(void **state)
{
    (void)state;
    char path[128];
    struct weir_table *table = begin(path, sizeof path);
    pass(200 * MS);
    assert_int_equal(weir_table_now(table), wall_ns);
    weir_table_close(table);
    forget_the_boot(path);
    wall_ns += 300 * S;
    table = rig_open(path, NULL);
    assert_int_equal(weir_table_now(table), wall_ns);
    end(table, path);
}

static void after_a_reboot_with_a_dead_battery_from_the_last_time_seen(void **state)
{
    (void)state;
    char path[128];
    struct weir_table *table = begin(path, sizeof path);
    pass(200 * MS);
    uint64_t last_ns = weir_table_now(table);
    weir_table_close(table);
    forget_the_boot(path);
    wall_ns = 0;
    table = rig_open(path, NULL);
    assert_true(weir_table_now(table) >= last_ns);
    pass(S);
    assert_true(weir_table_now(table) > last_ns);
    end(table, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_follows_the_wall_clock),
        cmocka_unit_test(a_wall_clock_set_forward_is_followed_in_one_step),
        cmocka_unit_test(a_wall_clock_set_back_is_waited_for),
        cmocka_unit_test(whoever_looks_all_see_one_time),
        cmocka_unit_test(after_a_reboot_it_goes_on_from_the_wall_clock),
        cmocka_unit_test(after_a_reboot_with_a_dead_battery_from_the_last_time_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
