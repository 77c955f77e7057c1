/* Maxima, timeouts and addresses: what goes beyond is closed, and nobody else notices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "net_rig.h"

#include <sys/resource.h>
#include <sys/stat.h>

static struct weir_listener_stats stats_of(const struct rig *rig)
{
    struct weir_listener_stats stats;
    weir_listener_stats(rig->listener, &stats);
    return stats;
}

static void an_answer_of_the_output_maximum_is_sent(void **state)
{
    struct rig rig;
    size_t max = 100000;
    (void)state;
    rig_start(&rig, 1,
              &(struct weir_listen_options){.protocol = &rig_babble_protocol,
                                            .limits.output_max = (uint32_t)max});
    rig.answer_len = max;
    int fd = rig_client(&rig);
    char *got = malloc(max);
    assert_non_null(got);
    rig_write(fd, "x", 1);
    assert_int_equal(rig_read(fd, got, max), max);
    free(got);
    close(fd);
    rig_stop(&rig, 1000);
    assert_int_equal(atomic_load(&rig.events[WEIR_NET_OVERFLOW]), 0);
}

static void one_byte_more_closes_the_connection(void **state)
{
    struct rig rig;
    size_t max = 100000;
    (void)state;
    rig_start(&rig, 1,
              &(struct weir_listen_options){.protocol = &rig_babble_protocol,
                                            .limits.output_max = (uint32_t)max});
    int other = rig_client(&rig);
    int fd = rig_client(&rig);
    rig.answer_len = max + 1;
    rig_write(fd, "x", 1);
    rig_expect_end(fd);
    rig_await(&rig.events[WEIR_NET_OVERFLOW], 1);
    assert_int_equal(stats_of(&rig).overflowed, 1);
    rig.answer_len = 2;
    rig_write(other, "x", 1);
    rig_expect(other, "bb");
    close(fd);
    close(other);
    rig_stop(&rig, 1000);
}

/* Answers that nobody reads fill the socket, then a quarter of output_max, and then we stop
 * reading: the peer is slowed down, not thrown out. */
static void who_does_not_read_is_not_read_from(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1,
              &(struct weir_listen_options){.protocol = &rig_echo_protocol,
                                            .limits.output_max = 1u << 20});
    int fd = rig_client(&rig);
    struct timeval short_patience = {.tv_usec = 300000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &short_patience, sizeof(short_patience));
    char *block = malloc(1u << 16);
    assert_non_null(block);
    memset(block, 'x', 1u << 16);
    size_t sent = 0;
    ssize_t n;
    while ((n = send(fd, block, 1u << 16, MSG_NOSIGNAL)) > 0 && sent < 256u << 20)
        sent += (size_t)n;
    assert_true(sent < 256u << 20); /* the kernel's buffers and ours were full before */
    assert_int_equal(atomic_load(&rig.events[WEIR_NET_OVERFLOW]), 0);
    for (size_t left = sent; left > 0;) {
        size_t got = rig_read(fd, block, left < 1u << 16 ? left : 1u << 16);
        assert_true(got > 0);
        left -= got;
    }
    free(block);
    close(fd);
    rig_stop(&rig, 1000);
}

static void silence_is_closed_after_the_first_timeout(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1,
              &(struct weir_listen_options){.protocol = &rig_deaf_protocol, .limits.first_ms = 30});
    int silent = rig_client(&rig), senseless = rig_client(&rig);
    rig_write(senseless, "???", 3);
    rig_expect_end(silent);
    rig_expect_end(senseless);
    assert_int_equal(stats_of(&rig).timed_out, 2);
    assert_int_equal(atomic_load(&rig.events[WEIR_NET_FIRST_LATE]), 2);
    close(silent);
    close(senseless);
    rig_stop(&rig, 1000);
}

static void the_idle_are_closed_and_the_busy_stay(void **state)
{
    struct rig rig;
    (void)state;
    rig_start(&rig, 1,
              &(struct weir_listen_options){.protocol = &rig_echo_protocol, .limits.idle_ms = 200});
    int idle = rig_client(&rig), busy = rig_client(&rig);
    rig_write(idle, "i", 1);
    rig_expect(idle, "i");
    while (atomic_load(&rig.events[WEIR_NET_IDLE]) == 0) {
        rig_write(busy, "b", 1);
        rig_expect(busy, "b");
    }
    rig_expect_end(idle);
    rig_write(busy, "b", 1);
    rig_expect(busy, "b");
    assert_int_equal(stats_of(&rig).timed_out, 1);
    close(idle);
    close(busy);
    rig_stop(&rig, 1000);
}

static void one_connection_more_is_refused(void **state)
{
    struct rig rig;
    int fds[3];
    (void)state;
    rig_start(
        &rig, 2,
        &(struct weir_listen_options){.protocol = &rig_echo_protocol, .limits.connections_max = 3});
    for (int i = 0; i < 3; i++) {
        fds[i] = rig_client(&rig);
        rig_write(fds[i], "a", 1);
        rig_expect(fds[i], "a");
    }
    int more = rig_client(&rig);
    rig_expect_end(more);
    assert_int_equal(stats_of(&rig).refused, 1);
    assert_int_equal(stats_of(&rig).open, 3);
    assert_int_equal(stats_of(&rig).accepted, 3);
    close(more);
    close(fds[0]);
    rig_await(&rig.closed, 1);
    uint64_t until = rig_ms() + RIG_PATIENCE_S * 1000;
    while (stats_of(&rig).open > 2)
        assert_true(rig_ms() < until);
    more = rig_client(&rig);
    rig_write(more, "b", 1);
    rig_expect(more, "b");
    close(more);
    close(fds[1]);
    close(fds[2]);
    rig_stop(&rig, 1000);
}

static void loops_share_the_connections(void **state)
{
    struct rig rig;
    int fds[40];
    (void)state;
    rig_start(&rig, 2, &(struct weir_listen_options){.protocol = &rig_echo_protocol});
    for (int i = 0; i < 40; i++) {
        fds[i] = rig_client(&rig);
        rig_write(fds[i], "a", 1);
        rig_expect(fds[i], "a");
    }
    assert_int_equal(weir_loop_load(rig.loops[0]), 20);
    assert_int_equal(weir_loop_load(rig.loops[1]), 20);
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    rig_await(&rig.closed, 40);
    rig_stop(&rig, 1000);
}

/* Out of descriptors: those who are here go on, and who comes later is served when one is free. */
static void no_descriptors_left_is_survived(void **state)
{
    struct rig rig;
    struct rlimit before, tight;
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_echo_protocol});
    int here = rig_client(&rig);
    rig_write(here, "a", 1);
    rig_expect(here, "a");
    int waiting = rig_client(&rig); /* takes a descriptor for each of us */
    rig_await(&rig.opened, 2);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    tight.rlim_cur = (rlim_t)late + 1; /* no number above ours */
    int filler[64], fillers = 0;
    setrlimit(RLIMIT_NOFILE, &tight);
    while (fillers < 64 && (filler[fillers] = dup(here)) >= 0)
        fillers++;
    const char *colon = strrchr(weir_listener_address(rig.listener), ':');
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof(to)), 0);
    rig_await(&rig.events[WEIR_NET_NO_FILES], 1);
    rig_write(here, "b", 1);
    rig_expect(here, "b");
    setrlimit(RLIMIT_NOFILE, &before);
    while (fillers > 0)
        close(filler[--fillers]);
    rig_write(late, "c", 1);
    rig_expect(late, "c");
    close(late);
    close(waiting);
    close(here);
    rig_stop(&rig, 1000);
}

/* ---- addresses ---- */

static int try_address(const char *address, bool is_shared, char *why, size_t why_len)
{
    struct weir_loop *loop;
    struct weir_listener *listener = NULL;
    struct weir_listen_options options = {
        .address = address, .protocol = &rig_echo_protocol, .is_shared = is_shared};
    assert_int_equal(weir_loop_new(&loop), 0);
    int err = weir_listener_new(&listener, &loop, 1, &options, why, why_len);
    weir_listener_free(listener);
    weir_loop_free(loop);
    return err;
}

static void addresses_are_understood(void **state)
{
    char why[256];
    (void)state;
    assert_int_equal(try_address("127.0.0.1:0", false, why, sizeof(why)), 0);
    assert_int_equal(try_address(":0", false, why, sizeof(why)), 0);
    assert_int_equal(try_address("localhost:0", false, why, sizeof(why)), 0);
    static const char *const wrong[] = {
        "",      "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",  "::1:80", ":65536", "127.0.0.1:-1",
        "unix:", "1:2:3:4:5", ":999999",    "127.0.0.1: 80"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(try_address(wrong[i], false, why, sizeof(why)), WEIR_ERR_INVALID);
}

static void a_taken_port_is_said(void **state)
{
    struct rig rig;
    char why[256];
    (void)state;
    rig_start(&rig, 1, &(struct weir_listen_options){.protocol = &rig_echo_protocol});
    const char *address = weir_listener_address(rig.listener);
    assert_int_equal(try_address(address, false, why, sizeof(why)), WEIR_ERR_IO);
    assert_non_null(strstr(why, "address already in use"));
    assert_non_null(strstr(why, address));
    assert_int_equal(try_address(address, true, why, sizeof(why)), WEIR_ERR_IO);
    rig_stop(&rig, 0);
}

static void shared_ports_can_be_listened_on_twice(void **state)
{
    struct rig rig;
    char why[256];
    (void)state;
    rig_start(&rig, 1,
              &(struct weir_listen_options){.protocol = &rig_echo_protocol, .is_shared = true});
    assert_int_equal(try_address(weir_listener_address(rig.listener), true, why, sizeof(why)), 0);
    rig_stop(&rig, 0);
}

static void unix_sockets_serve_and_vanish(void **state)
{
    struct rig rig;
    struct stat is;
    char dir[] = "/tmp/weir-net-XXXXXX", address[128], why[256];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(address, sizeof(address), "unix:%s/s", dir);
    rig_start(&rig, 2,
              &(struct weir_listen_options){.protocol = &rig_echo_protocol, .address = address});
    assert_int_equal(stat(address + 5, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0660);
    int fd = rig_client(&rig);
    rig_write(fd, "hello", 5);
    rig_expect(fd, "hello");
    assert_int_equal(try_address(address, false, why, sizeof(why)), WEIR_ERR_IO);
    assert_non_null(strstr(why, "in use"));
    close(fd);
    rig_stop(&rig, 1000);
    assert_int_equal(stat(address + 5, &is), -1);
    assert_int_equal(rmdir(dir), 0);
}

static void a_stale_socket_is_replaced_and_a_file_is_not(void **state)
{
    char dir[] = "/tmp/weir-net-XXXXXX", address[128], why[256];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(address, sizeof(address), "unix:%s/s", dir);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", dir);
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&at, sizeof(at)), 0);
    close(dead);
    assert_int_equal(try_address(address, false, why, sizeof(why)), 0);
    FILE *file = fopen(at.sun_path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(try_address(address, true, why, sizeof(why)), WEIR_ERR_IO);
    assert_int_equal(unlink(at.sun_path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void a_successor_takes_a_unix_socket_over(void **state)
{
    struct rig old, new;
    char dir[] = "/tmp/weir-net-XXXXXX", address[128];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(address, sizeof(address), "unix:%s/s", dir);
    struct weir_listen_options options = {
        .protocol = &rig_echo_protocol, .address = address, .is_shared = true};
    rig_start(&old, 1, &options);
    int before = rig_client(&old);
    rig_await(&old.opened, 1);
    rig_start(&new, 1, &options);
    int after = rig_client(&new);
    rig_await(&new.opened, 1);
    rig_write(before, "b", 1);
    rig_expect(before, "b");
    close(before);
    rig_stop(&old, 1000); /* must not take the new one's socket away */
    rig_write(after, "a", 1);
    rig_expect(after, "a");
    int later = rig_client(&new);
    rig_write(later, "l", 1);
    rig_expect(later, "l");
    close(later);
    close(after);
    rig_stop(&new, 1000);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_of_the_output_maximum_is_sent),
        cmocka_unit_test(one_byte_more_closes_the_connection),
        cmocka_unit_test(who_does_not_read_is_not_read_from),
        cmocka_unit_test(silence_is_closed_after_the_first_timeout),
        cmocka_unit_test(the_idle_are_closed_and_the_busy_stay),
        cmocka_unit_test(one_connection_more_is_refused),
        cmocka_unit_test(loops_share_the_connections),
        cmocka_unit_test(no_descriptors_left_is_survived),
        cmocka_unit_test(addresses_are_understood),
        cmocka_unit_test(a_taken_port_is_said),
        cmocka_unit_test(shared_ports_can_be_listened_on_twice),
        cmocka_unit_test(unix_sockets_serve_and_vanish),
        cmocka_unit_test(a_stale_socket_is_replaced_and_a_file_is_not),
        cmocka_unit_test(a_successor_takes_a_unix_socket_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
