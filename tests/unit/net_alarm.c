/* One-shot alarms: in order, never early, bounded, and gone when cancelled.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/alarm.h"
#include "net_rig.h"

#define ALARMS_MAX 500
#define MS UINT64_C(1000000)

static struct rig rig;
static struct weir_alarm alarms[ALARMS_MAX + 1];
static uint64_t due_ns[ALARMS_MAX + 1];
static _Atomic uint64_t rung, faults;
static uint64_t last_due_ns;

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void on_ring(void *ctx)
{
    const struct weir_alarm *alarm = ctx;
    uint64_t due = due_ns[alarm - alarms];
    /* 1 ms: due_ns was read before the alarm read the clock itself */
    atomic_fetch_add(&faults, monotonic_ns() < due || due + MS < last_due_ns);
    last_due_ns = due;
    atomic_fetch_add(&rung, 1);
}

static void set(uint32_t i, uint64_t delay_ns, bool is_expected)
{
    alarms[i] = (struct weir_alarm){.ring = on_ring, .ctx = &alarms[i]};
    due_ns[i] = monotonic_ns() + delay_ns;
    atomic_fetch_add(&faults, weir_alarm_set(rig.loops[0], &alarms[i], delay_ns) != is_expected);
}

/* As many as there is room for, in an order of chance; every third is taken back. */
static void set_many(struct weir_post *post, struct weir_loop *loop)
{
    uint32_t chance = 12345;
    (void)post;
    (void)loop;
    for (uint32_t i = 0; i < ALARMS_MAX; i++) {
        chance = chance * 1664525 + 1013904223;
        set(i, (chance >> 8) % (100 * MS), true);
    }
    set(ALARMS_MAX, 0, false);
    for (uint32_t i = 0; i < ALARMS_MAX; i += 3)
        weir_alarm_cancel(rig.loops[0], &alarms[i]);
    weir_alarm_cancel(rig.loops[0], &alarms[0]); /* twice is as good as once */
    atomic_fetch_add(&faults, weir_alarm_left(&alarms[0]) != 0);
    atomic_fetch_add(&faults, weir_alarm_left(&alarms[1]) > 100 * MS);
}

static void start(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(&rig, 0, sizeof(rig));
    rig.loop_count = 1;
    assert_int_equal(weir_loop_new(&rig.loops[0]), 0);
    assert_int_equal(weir_loop_reserve_alarms(rig.loops[0], ALARMS_MAX), 0);
    assert_int_equal(pthread_create(&rig.threads[0], NULL, rig_thread, rig.loops[0]), 0);
}

static void alarms_ring_in_order_and_never_early(void **state)
{
    const uint64_t kept = ALARMS_MAX - (ALARMS_MAX + 2) / 3;
    struct weir_post post = {.run = set_many};
    (void)state;
    start();
    for (uint64_t round = 1; round <= 3; round++) {
        last_due_ns = 0;
        weir_loop_post(rig.loops[0], &post);
        rig_await(&rung, round * kept);
    }
    rig_stop(&rig, 0);
    assert_int_equal(atomic_load(&rung), 3 * kept);
    assert_int_equal(atomic_load(&faults), 0);
}

static void set_late_ones(struct weir_post *post, struct weir_loop *loop)
{
    (void)post;
    (void)loop;
    for (uint32_t i = 0; i < 10; i++)
        set(i, 3600 * 1000 * MS, true);
    atomic_fetch_add(&rung, 1);
}

static void a_loop_that_stops_does_not_wait_for_them(void **state)
{
    struct weir_post post = {.run = set_late_ones};
    (void)state;
    start();
    atomic_store(&rung, 0);
    weir_loop_post(rig.loops[0], &post);
    rig_await(&rung, 1);
    rig_stop(&rig, 0);
    assert_int_equal(atomic_load(&rung), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alarms_ring_in_order_and_never_early),
        cmocka_unit_test(a_loop_that_stops_does_not_wait_for_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
