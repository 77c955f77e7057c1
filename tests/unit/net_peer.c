/* Connections that we make, and chores at the end of a turn.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "identity_rig.h"
#include "net/peer.h"
#include "net_rig.h"

#define OUTPUT_MAX (8u << 20)

static struct rig rig; /* its first loop has the listener, its second the peer */
static char address[128];

static struct heard {
    struct weir_peer *peer;
    struct weir_tls *tls;
    char why[160];
    size_t queued, unsent;
    int opened, too_large;
    bool closes_when_up, closes_when_fed;
    _Atomic uint64_t ups, downs, bytes, posts, wrong;
} heard;

/* ---- in the loop's thread ---- */

static void close_peer(void)
{
    weir_peer_close(heard.peer); /* NULL is fine */
    heard.peer = NULL;
}

static void on_up(void *ctx)
{
    (void)ctx;
    if (heard.closes_when_up)
        close_peer();
    else
        atomic_fetch_add(&heard.wrong, weir_peer_write(heard.peer, "hello", 5) != 0);
    atomic_fetch_add(&heard.ups, 1); /* last: who awaits it may go on */
}

static int on_feed(void *ctx, const uint8_t *bytes, size_t len)
{
    (void)ctx;
    (void)bytes;
    if (heard.closes_when_fed)
        close_peer();
    atomic_fetch_add(&heard.bytes, len);
    return 0;
}

static void on_down(void *ctx, const char *why)
{
    (void)ctx;
    snprintf(heard.why, sizeof(heard.why), "%s", why);
    close_peer();
    atomic_fetch_add(&heard.downs, 1);
}

static const struct weir_peer_events events = {.up = on_up, .feed = on_feed, .down = on_down};

static void open_it(struct weir_post *post, struct weir_loop *loop)
{
    const struct weir_peer_options options = {
        .address = address, .tls = heard.tls, .events = &events, .output_max = OUTPUT_MAX};
    (void)post;
    heard.opened = weir_peer_open(&heard.peer, loop, &options, heard.why, sizeof(heard.why));
    atomic_fetch_add(&heard.posts, 1);
}

static void close_it(struct weir_post *post, struct weir_loop *loop)
{
    (void)post;
    (void)loop;
    close_peer();
    atomic_fetch_add(&heard.posts, 1);
}

/* As much as fits, and what cannot. */
static void fill_it(struct weir_post *post, struct weir_loop *loop)
{
    static const char block[1 << 20];
    size_t given = 0;
    (void)post;
    (void)loop;
    while ((heard.too_large = weir_peer_write(heard.peer, block, sizeof(block))) == 0)
        given += sizeof(block);
    heard.queued = weir_peer_queued(heard.peer);
    heard.unsent = weir_peer_unsent(heard.peer);
    atomic_fetch_add(&heard.wrong, heard.unsent > given);
    close_peer();
    atomic_fetch_add(&heard.posts, 1);
}

/* ---- in the test's ---- */

static void run(void (*what)(struct weir_post *post, struct weir_loop *loop))
{
    struct weir_post post = {.run = what};
    uint64_t before = atomic_load(&heard.posts);
    weir_loop_post(rig.loops[1], &post);
    rig_await(&heard.posts, before + 1);
}

static void start(const struct weir_listen_options *options)
{
    rig_start(&rig, 2, options);
    heard = (struct heard){0};
    snprintf(address, sizeof(address), "%s", weir_listener_address(rig.listener));
}

static void stop(void)
{
    rig_stop(&rig, 0);
    assert_int_equal(heard.wrong, 0);
}

static void bytes_go_and_come(void **state)
{
    static const char *const listeners[] = {"127.0.0.1:0", "unix:/tmp/weir-peer-test"};
    char path[64];
    (void)state;
    snprintf(path, sizeof(path), "%s-%d", listeners[1], (int)getpid());
    for (int i = 0; i < 2; i++) {
        start(&(const struct weir_listen_options){.address = i == 0 ? listeners[0] : path,
                                                  .protocol = &rig_echo_protocol});
        run(open_it);
        assert_int_equal(heard.opened, 0);
        rig_await(&heard.bytes, 5);
        run(close_it);
        rig_await(&rig.closed, 1);
        stop();
        assert_int_equal(heard.ups, 1);
        assert_int_equal(heard.downs, 0);
    }
}

static void names_are_looked_up(void **state)
{
    (void)state;
    start(&(const struct weir_listen_options){.protocol = &rig_echo_protocol});
    snprintf(address, sizeof(address), "localhost:%s",
             strrchr(weir_listener_address(rig.listener), ':') + 1);
    run(open_it);
    rig_await(&heard.bytes, 5);
    run(close_it);
    snprintf(address, sizeof(address), "no-such-host.invalid:1");
    run(open_it);
    rig_await(&heard.downs, 1);
    assert_true(heard.why[0] != '\0');
    stop();
}

/* While the name is looked up, while it connects. */
static void it_may_be_closed_at_any_time(void **state)
{
    (void)state;
    start(&(const struct weir_listen_options){.protocol = &rig_echo_protocol});
    for (int i = 0; i < 3; i++) {
        run(open_it);
        run(close_it);
    }
    heard.closes_when_up = true;
    run(open_it);
    rig_await(&heard.ups, 1);
    heard.closes_when_up = false;
    heard.closes_when_fed = true;
    run(open_it);
    rig_await(&heard.bytes, 5);
    heard.closes_when_fed = false;
    snprintf(address, sizeof(address), "localhost:1");
    run(open_it);
    run(close_it);
    stop();
}

static void what_cannot_be_reached_says_why(void **state)
{
    (void)state;
    start(&(const struct weir_listen_options){.protocol = &rig_echo_protocol});
    snprintf(address, sizeof(address), "127.0.0.1:1");
    run(open_it);
    rig_await(&heard.downs, 1);
    assert_string_equal(heard.why, "connection refused");
    snprintf(address, sizeof(address), "unix:/no/such/socket");
    run(open_it);
    rig_await(&heard.downs, 2);
    assert_string_equal(heard.why, "no such file or directory");
    snprintf(address, sizeof(address), "nonsense");
    run(open_it);
    assert_int_equal(heard.opened, WEIR_ERR_INVALID);
    memset(address, 'u', sizeof(address) - 1);
    memcpy(address, "unix:/", 6);
    run(open_it);
    assert_int_equal(heard.opened, WEIR_ERR_INVALID);
    stop();
}

/* A server that the kernel connects us to, and that never reads. */
static int listen_only(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    return fd;
}

static void output_has_a_maximum(void **state)
{
    (void)state;
    start(&(const struct weir_listen_options){.protocol = &rig_echo_protocol});
    int fd = listen_only();
    run(open_it);
    rig_await(&heard.ups, 1);
    run(fill_it);
    assert_int_equal(heard.too_large, WEIR_ERR_TOO_LARGE);
    assert_true(heard.queued <= OUTPUT_MAX && heard.unsent == heard.queued);
    stop();
    close(fd);
}

static void a_server_that_leaves_is_noticed(void **state)
{
    (void)state;
    start(&(const struct weir_listen_options){.protocol = &rig_polite_protocol});
    run(open_it);
    rig_await(&heard.bytes, 5);
    weir_loop_stop(rig.loops[0], 1000);
    rig_await(&heard.downs, 1);
    assert_string_equal(heard.why, "it closed the connection");
    stop();
}

/* ---- TLS ---- */

static void tls_is_between(void **state)
{
    char cert[64], key[64], ca[64], why[256] = "";
    struct identity authority = make_identity("authority", NULL);
    struct identity server = make_identity_of("server", "DNS:localhost", &authority);
    struct weir_tls *tls, *client;
    (void)state;
    snprintf(cert, sizeof(cert), "/tmp/weir-peer-%d.cert", (int)getpid());
    snprintf(key, sizeof(key), "/tmp/weir-peer-%d.key", (int)getpid());
    snprintf(ca, sizeof(ca), "/tmp/weir-peer-%d.ca", (int)getpid());
    write_identity(&server, cert, key);
    write_identity(&authority, ca, NULL);
    const struct weir_tls_options options = {.cert_path = cert, .key_path = key};
    assert_int_equal(weir_tls_new(&tls, &options, why, sizeof(why)), 0);
    const struct weir_tls_client_options client_options = {.ca_path = ca};
    assert_int_equal(weir_tls_client_new(&client, &client_options, why, sizeof(why)), 0);
    start(&(const struct weir_listen_options){.protocol = &rig_echo_protocol, .tls = tls});
    heard.tls = client;
    run(open_it); /* by its address, which the certificate does not bear */
    rig_await(&heard.downs, 1);
    assert_string_equal(heard.why, "certificate verify failed");
    assert_int_equal(heard.ups, 0);
    snprintf(address, sizeof(address), "localhost:%s",
             strrchr(weir_listener_address(rig.listener), ':') + 1);
    run(open_it);
    rig_await(&heard.bytes, 5);
    run(close_it);
    stop();
    const struct weir_tls_client_options half = {.cert_path = cert};
    assert_int_equal(weir_tls_client_new(&client, &half, why, sizeof(why)), WEIR_ERR_INVALID);
    weir_tls_free(heard.tls);
    weir_tls_free(tls);
    free_identity(&authority);
    free_identity(&server);
    unlink(cert);
    unlink(key);
    unlink(ca);
}

/* ---- chores ---- */

static struct weir_chore chores[4];
static char order[16];
static size_t order_len;

static void note(struct weir_chore *chore)
{
    if (order_len < sizeof(order) - 1)
        order[order_len++] = (char)('a' + (chore - chores));
    if (chore == &chores[1] && order_len < 6)
        weir_chore_set(rig.loops[1], &chores[3]); /* which is run, too */
    atomic_fetch_add(&heard.bytes, 1);
}

static void set_chores(struct weir_post *post, struct weir_loop *loop)
{
    (void)post;
    for (int i = 0; i < 3; i++) {
        chores[i].run = note;
        weir_chore_set(loop, &chores[i]);
        weir_chore_set(loop, &chores[i]); /* once for both */
    }
    chores[3].run = note;
    weir_chore_cancel(loop, &chores[2]);
    weir_chore_cancel(loop, &chores[2]);
    weir_chore_cancel(loop, &chores[3]);
    weir_chore_set(loop, &chores[2]);
    weir_chore_cancel(loop, &chores[0]);
    atomic_fetch_add(&heard.posts, 1);
}

static void chores_are_done_at_the_end_of_the_turn(void **state)
{
    (void)state;
    start(&(const struct weir_listen_options){.protocol = &rig_echo_protocol});
    run(set_chores);
    rig_await(&heard.bytes, 3);
    stop();
    assert_string_equal(order, "bcd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_and_come),
        cmocka_unit_test(names_are_looked_up),
        cmocka_unit_test(it_may_be_closed_at_any_time),
        cmocka_unit_test(what_cannot_be_reached_says_why),
        cmocka_unit_test(output_has_a_maximum),
        cmocka_unit_test(a_server_that_leaves_is_noticed),
        cmocka_unit_test(tls_is_between),
        cmocka_unit_test(chores_are_done_at_the_end_of_the_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
