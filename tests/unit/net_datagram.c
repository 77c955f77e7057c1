/* Messages one way: over UDP, to a path, to an abstract name; and to nobody.
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/datagram.h"
#include "net_rig.h"

static void udp_messages_arrive(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    char address[64], why[128], got[16] = "";
    int fd, server = socket(AF_INET, SOCK_DGRAM, 0);
    (void)state;
    assert_int_equal(bind(server, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&at, &len), 0);
    snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(weir_datagram_open(&fd, address, why, sizeof(why)), 0);
    assert_int_equal(weir_datagram_send(fd, "hello", 5), 0);
    assert_int_equal(recv(server, got, sizeof(got), 0), 5);
    assert_string_equal(got, "hello");
    close(fd);
    close(server);
}

static void unix_messages_arrive(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char dir[] = "/tmp/weir-dgram-XXXXXX", address[128], why[128], got[16] = "";
    int fd, server = socket(AF_UNIX, SOCK_DGRAM, 0);
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", dir);
    assert_int_equal(bind(server, (struct sockaddr *)&at, sizeof(at)), 0);
    snprintf(address, sizeof(address), "unix:%s", at.sun_path);
    assert_int_equal(weir_datagram_open(&fd, address, why, sizeof(why)), 0);
    assert_int_equal(weir_datagram_send(fd, "READY=1", 7), 0);
    assert_int_equal(recv(server, got, sizeof(got), 0), 7);
    close(server);
    assert_int_equal(weir_datagram_send(fd, "READY=1", 7), WEIR_ERR_IO); /* lost, not waited for */
    close(fd);
    unlink(at.sun_path);
    rmdir(dir);
}

static void abstract_names_have_an_at(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char address[128], why[128], got[4];
    int fd, server = socket(AF_UNIX, SOCK_DGRAM, 0);
    (void)state;
    int len = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "weir-%d", (int)getpid());
    socklen_t at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    assert_int_equal(bind(server, (struct sockaddr *)&at, at_len), 0);
    snprintf(address, sizeof(address), "unix:@%s", at.sun_path + 1);
    assert_int_equal(weir_datagram_open(&fd, address, why, sizeof(why)), 0);
    assert_int_equal(weir_datagram_send(fd, "a", 1), 0);
    assert_int_equal(recv(server, got, sizeof(got), 0), 1);
    close(fd);
    close(server);
}

static void wrong_addresses_are_named(void **state)
{
    static const char *const wrong[] = {"",
                                        "localhost",
                                        ":8125",
                                        "unix:",
                                        "unix:/nowhere/s",
                                        "[::1",
                                        "127.0.0.1:no-such-port",
                                        "::1:8125"};
    char why[128];
    int fd;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_true(weir_datagram_open(&fd, wrong[i], why, sizeof(why)) < 0);
        assert_non_null(strstr(why, wrong[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(udp_messages_arrive),
        cmocka_unit_test(unix_messages_arrive),
        cmocka_unit_test(abstract_names_have_an_at),
        cmocka_unit_test(wrong_addresses_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
