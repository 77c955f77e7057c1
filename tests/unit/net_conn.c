/* Connections over the loopback: bytes, turns, finishing, draining.
 * SPDX-License-Identifier: Apache-2.0 */
#include "net_rig.h"

#include <sys/stat.h>

static const struct weir_listen_options echo = {.protocol = &rig_echo_protocol};

static void what_is_sent_comes_back(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1, &echo);
    int fd = rig_client(&rig);
    rig_write(fd, "hello", 5);
    rig_expect(fd, "hello");
    rig_write(fd, " world", 6);
    rig_expect(fd, " world");
    close(fd);
    rig_await(&rig.closed, 1);
    rig_stop(&rig, 1000);
}

static void the_turn_has_a_time(void **state)
{
    struct rig rig;
    (void)state;
    uint64_t before = rig_clock(NULL);
    rig_start(&rig, 1, &echo);
    int fd = rig_client(&rig);
    for (int i = 0; i < 3; i++) {
        rig_write(fd, "a", 1);
        rig_expect(fd, "a");
        uint64_t now = atomic_load(&rig.last_now);
        assert_true(now > before);
        before = now;
    }
    close(fd);
    rig_stop(&rig, 1000);
}

struct flood {
    int fd;
    size_t len;
    uint8_t *bytes;
};

static void *write_flood(void *ctx)
{
    struct flood *flood = ctx;
    rig_write(flood->fd, flood->bytes, flood->len);
    return NULL;
}

static void megabytes_arrive_in_order(void **state)
{
    struct rig rig;
    pthread_t writer;
    struct flood flood = {.len = 8u << 20};
    (void)state;
    rig_start(&rig, 1, &echo);
    flood.fd = rig_client(&rig);
    flood.bytes = malloc(flood.len);
    uint8_t *got = malloc(flood.len);
    assert_non_null(flood.bytes);
    assert_non_null(got);
    for (size_t i = 0; i < flood.len; i++)
        flood.bytes[i] = (uint8_t)(i * 31 >> 8 | 0x80); /* never a 'q' */
    assert_int_equal(pthread_create(&writer, NULL, write_flood, &flood), 0);
    assert_int_equal(rig_read(flood.fd, got, flood.len), flood.len);
    pthread_join(writer, NULL);
    assert_memory_equal(got, flood.bytes, flood.len);
    close(flood.fd);
    free(got);
    free(flood.bytes);
    rig_stop(&rig, 1000);
}

static void a_big_answer_arrives_whole(void **state)
{
    struct rig rig;
    size_t len = 3u << 20;
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_babble_protocol});
    rig.answer_len = len;
    int fd = rig_client(&rig);
    char *got = malloc(len);
    assert_non_null(got);
    rig_write(fd, "x", 1);
    assert_int_equal(rig_read(fd, got, len), len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(got[i], 'b');
    free(got);
    close(fd);
    rig_stop(&rig, 1000);
}

static void a_negative_feed_sends_its_answer_and_closes(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1, &echo);
    int fd = rig_client(&rig);
    rig_write(fd, "so q", 4);
    rig_expect(fd, "so q");
    rig_expect_end(fd);
    assert_true(atomic_load(&rig.turns) > 0);
    close(fd);
    rig_await(&rig.closed, 1);
    rig_stop(&rig, 1000);
}

/* A reset would make the kernel throw away the answer that has not been read yet. */
static void unread_input_does_not_spoil_the_last_answer(void **state)
{
    struct rig rig;
    char more[1000];
    (void)state;
    rig_start(&rig, 1, &echo);
    int fd = rig_client(&rig);
    memset(more, 'm', sizeof(more));
    rig_write(fd, "q", 1);
    for (int i = 0; i < 100; i++)
        rig_write(fd, more, sizeof(more));
    char first;
    assert_int_equal(rig_read(fd, &first, 1), 1);
    assert_int_equal(first, 'q');
    close(fd);
    rig_stop(&rig, 5000);
}

static void who_stops_sending_still_hears_the_answer(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1, &echo);
    int fd = rig_client(&rig);
    rig_write(fd, "last words", 10);
    shutdown(fd, SHUT_WR);
    rig_expect(fd, "last words");
    rig_expect_end(fd);
    close(fd);
    rig_await(&rig.closed, 1);
    rig_stop(&rig, 1000);
}

static void a_turn_may_speak_to_who_has_ended(void **state)
{
    struct rig rig;
    char got[64];
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_talk_protocol});
    int fd = rig_client(&rig);
    rig_expect(fd, "t"); /* the turn of the opening */
    shutdown(fd, SHUT_WR);
    assert_true(rig_read(fd, got, sizeof(got)) > 0);
    close(fd);
    rig_await(&rig.closed, 1);
    rig_stop(&rig, 1000);
}

static void waking_gives_another_turn(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_wake_protocol});
    int fd = rig_client(&rig);
    rig_await(&rig.turns, 4); /* without a byte from us */
    close(fd);
    rig_await(&rig.closed, 1);
    rig_stop(&rig, 1000);
}

static void draining_lets_protocols_say_goodbye(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 2, &(struct weir_listen_options){.protocol = &rig_polite_protocol});
    int one = rig_client(&rig), two = rig_client(&rig);
    rig_write(one, "a", 1);
    rig_expect(one, "a");
    rig_write(two, "a", 1);
    rig_expect(two, "a");
    for (uint32_t i = 0; i < rig.loop_count; i++)
        weir_loop_stop(rig.loops[i], RIG_PATIENCE_S * 1000);
    rig_expect(one, "bye");
    rig_expect(two, "bye");
    rig_expect_end(one);
    rig_expect_end(two);
    close(one);
    close(two);
    rig_join(&rig);
    assert_int_equal(atomic_load(&rig.drained), 2);
}

/* The kernel has said yes to it: so it is heard once, though we are leaving. */
static void who_has_just_come_is_heard_before_the_end(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 2, &(struct weir_listen_options){.protocol = &rig_polite_protocol});
    int silent = rig_client(&rig), late = rig_client(&rig);
    rig_await(&rig.opened, 2);
    for (uint32_t i = 0; i < rig.loop_count; i++)
        weir_loop_stop(rig.loops[i], RIG_PATIENCE_S * 1000);
    rig_write(late, "late", 4);
    rig_expect(late, "latebye");
    rig_expect_end(late);
    rig_expect_end(silent);
    close(late);
    close(silent);
    rig_join(&rig);
}

static void the_last_call_hears_a_request_and_ends_the_silent(void **state)
{
    struct rig rig;
    int fds[4];
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_patient_protocol});
    for (int i = 0; i < 4; i++) {
        fds[i] = rig_client(&rig);
        rig_write(fds[i], "a", 1);
        rig_expect(fds[i], "a");
    }
    weir_loop_stop(rig.loops[0], RIG_PATIENCE_S * 1000);
    rig_await(&rig.drained, 4);
    rig_write(fds[1], "one", 3);
    rig_expect(fds[1], "one");
    rig_write(fds[2], "q", 1);
    rig_expect(fds[2], "q");
    for (int i = 0; i < 4; i++) {
        rig_expect_end(fds[i]);
        close(fds[i]);
    }
    rig_join(&rig);
    assert_int_equal(atomic_load(&rig.drained), 5); /* again for who spoke and stayed */
}

/* Clients come and go while the loops stop, one after the other: none is forgotten on its way. */
static void connections_on_their_way_are_not_lost(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct rig rig;
        int fds[8];
        rig_start(&rig, 3, &(struct weir_listen_options){.protocol = &rig_polite_protocol});
        for (int i = 0; i < 8; i++)
            fds[i] = rig_client(&rig);
        for (uint32_t i = rig.loop_count; i-- > 0;)
            weir_loop_stop(rig.loops[i], RIG_PATIENCE_S * 1000);
        for (int i = 0; i < 8; i++) {
            rig_write(fds[i], "x", 1);
            rig_expect(fds[i], "xbye");
            close(fds[i]);
        }
        rig_join(&rig);
    }
}

static void grace_ends(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_stubborn_protocol});
    int fd = rig_client(&rig);
    rig_write(fd, "a", 1);
    rig_expect(fd, "a");
    uint64_t before = rig_ms();
    rig_stop(&rig, 50);
    assert_true(rig_ms() - before >= 40);
    assert_int_equal(atomic_load(&rig.drained), 1);
    rig_expect_end(fd);
    close(fd);
}

static void a_second_stop_shortens_the_grace(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_stubborn_protocol});
    int fd = rig_client(&rig);
    rig_write(fd, "a", 1);
    rig_expect(fd, "a");
    weir_loop_stop(rig.loops[0], 3600 * 1000);
    rig_await(&rig.drained, 1);
    rig_stop(&rig, 0);
    close(fd);
}

static void a_closed_listener_keeps_its_connections(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 2, &echo);
    int fd = rig_client(&rig);
    rig_await(&rig.opened, 1);
    weir_listener_close(rig.listener);
    uint64_t until = rig_ms() + RIG_PATIENCE_S * 1000;
    for (int late; (late = rig_connect(weir_listener_address(rig.listener))) >= 0; close(late))
        assert_true(rig_ms() < until);
    rig_write(fd, "still", 5);
    rig_expect(fd, "still");
    close(fd);
    rig_stop(&rig, 1000);
}

static void loops_that_never_ran_can_be_freed(void **state)
{
    struct weir_loop *loop;
    struct weir_listener *listener;
    struct weir_listen_options options = echo;
    char why[256];
    (void)state;
    options.address = "127.0.0.1:0";
    assert_int_equal(weir_loop_new(&loop), 0);
    assert_int_equal(weir_listener_new(&listener, &loop, 1, &options, why, sizeof(why)), 0);
    weir_listener_free(listener);
    weir_loop_free(loop);
}

static void count_one(void *ctx)
{
    atomic_fetch_add((_Atomic uint64_t *)ctx, 1);
}

#define POSTS 1000

static struct {
    struct weir_post post;
    _Atomic uint64_t posted; /* as the poster counts */
    uint64_t seen;           /* of that, when it was run last */
} posts[POSTS];
static _Atomic uint64_t runs, up_to_date;

static void count_post(struct weir_post *post, struct weir_loop *loop)
{
    size_t i = (size_t)((char *)post - (char *)posts) / sizeof(posts[0]);
    /* relaxed: that posting makes it seen is what is tested */
    uint64_t posted = atomic_load_explicit(&posts[i].posted, memory_order_relaxed);
    atomic_fetch_add(&up_to_date, posted - posts[i].seen);
    posts[i].seen = posted;
    atomic_fetch_add(&runs, loop != NULL);
}

static void posts_run_in_the_loop(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 2, &echo);
    for (size_t i = 0; i < POSTS; i++) {
        posts[i].post.run = count_post;
        weir_loop_post(rig.loops[i % 2], &posts[i].post);
    }
    rig_await(&runs, POSTS);
    rig_stop(&rig, 1000);
    assert_int_equal(atomic_load(&runs), POSTS);
}

static void what_is_posted_again_is_seen_though_it_may_run_once(void **state)
{
    struct rig rig;
    (void)state;
    atomic_store(&runs, 0);
    for (size_t i = 0; i < 4; i++)
        posts[i].post.run = count_post;
    rig_start(&rig, 2, &echo);
    for (size_t i = 0; i < 100 * POSTS; i++) {
        size_t which = i % 4; /* of loop which % 2 */
        atomic_fetch_add_explicit(&posts[which].posted, 1, memory_order_relaxed);
        weir_loop_post(rig.loops[which % 2], &posts[which].post);
    }
    rig_await(&up_to_date, 100 * POSTS);
    rig_stop(&rig, 1000);
    assert_in_range(atomic_load(&runs), 4, 100 * POSTS);
}

static void timers_tick(void **state)
{
    struct rig rig = {.loop_count = 1};
    _Atomic uint64_t count = 0;
    struct weir_loop_timer *timer;
    (void)state;
    assert_int_equal(weir_loop_new(&rig.loops[0]), 0);
    assert_int_equal(weir_loop_every(rig.loops[0], &timer, 1, count_one, &count), 0);
    assert_int_equal(pthread_create(&rig.threads[0], NULL, rig_thread, rig.loops[0]), 0);
    rig_await(&count, 3);
    rig_stop(&rig, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_comes_back),
        cmocka_unit_test(the_turn_has_a_time),
        cmocka_unit_test(megabytes_arrive_in_order),
        cmocka_unit_test(a_big_answer_arrives_whole),
        cmocka_unit_test(a_negative_feed_sends_its_answer_and_closes),
        cmocka_unit_test(unread_input_does_not_spoil_the_last_answer),
        cmocka_unit_test(who_stops_sending_still_hears_the_answer),
        cmocka_unit_test(a_turn_may_speak_to_who_has_ended),
        cmocka_unit_test(waking_gives_another_turn),
        cmocka_unit_test(draining_lets_protocols_say_goodbye),
        cmocka_unit_test(who_has_just_come_is_heard_before_the_end),
        cmocka_unit_test(the_last_call_hears_a_request_and_ends_the_silent),
        cmocka_unit_test(connections_on_their_way_are_not_lost),
        cmocka_unit_test(grace_ends),
        cmocka_unit_test(a_second_stop_shortens_the_grace),
        cmocka_unit_test(a_closed_listener_keeps_its_connections),
        cmocka_unit_test(loops_that_never_ran_can_be_freed),
        cmocka_unit_test(posts_run_in_the_loop),
        cmocka_unit_test(what_is_posted_again_is_seen_though_it_may_run_once),
        cmocka_unit_test(timers_tick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
