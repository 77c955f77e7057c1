/* net_rig.h - loops in threads, a listener with a small protocol, and clients on blocking sockets.
 *
 * Every wait has a deadline; nothing sleeps for a fixed time and hopes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_NET_RIG_H
#define WEIR_TESTS_NET_RIG_H

#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RIG_LOOPS_MAX 4
#define RIG_PATIENCE_S 20

struct rig {
    struct weir_loop *loops[RIG_LOOPS_MAX];
    pthread_t threads[RIG_LOOPS_MAX];
    uint32_t loop_count;
    struct weir_listener *listener;
    _Atomic uint64_t opened, closed, fed, turns, drained, events[8];
    _Atomic uint64_t last_now;
    size_t answer_len; /* of the babbling protocol */
};

struct rig_conn {
    struct rig *rig;
    struct weir_conn *conn;
};

static inline uint64_t rig_clock(void *ctx)
{
    (void)ctx;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline int rig_open(void **state, void *ctx, struct weir_conn *conn)
{
    struct rig_conn *rc = malloc(sizeof(*rc));
    if (rc == NULL)
        return WEIR_ERR_NOMEM;
    *rc = (struct rig_conn){.rig = ctx, .conn = conn};
    atomic_fetch_add(&rc->rig->opened, 1);
    *state = rc;
    return 0;
}

static inline void rig_close(void *state)
{
    struct rig_conn *rc = state;
    atomic_fetch_add(&rc->rig->closed, 1);
    free(rc);
}

/* Sends back what comes; a 'q' among it ends the connection. */
static inline int rig_echo(void *state, const uint8_t *bytes, size_t len)
{
    struct rig_conn *rc = state;
    weir_conn_alive(rc->conn);
    atomic_fetch_add(&rc->rig->fed, len);
    atomic_store(&rc->rig->last_now, weir_loop_now(weir_conn_loop(rc->conn)));
    weir_conn_send(rc->conn, bytes, len);
    return memchr(bytes, 'q', len) != NULL ? -1 : 0;
}

static inline int rig_turn(void *state)
{
    struct rig_conn *rc = state;
    atomic_fetch_add(&rc->rig->turns, 1);
    return 0;
}

/* Speaks in every turn. */
static inline int rig_talk(void *state)
{
    struct rig_conn *rc = state;
    weir_conn_send(rc->conn, "t", 1);
    return 0;
}

/* Wants a turn after each, three times. */
static inline int rig_wake(void *state)
{
    struct rig_conn *rc = state;
    if (atomic_fetch_add(&rc->rig->turns, 1) < 3)
        weir_conn_wake(rc->conn);
    return 0;
}

/* Takes bytes and finds none of them sensible. */
static inline int rig_ignore(void *state, const uint8_t *bytes, size_t len)
{
    struct rig_conn *rc = state;
    (void)bytes;
    atomic_fetch_add(&rc->rig->fed, len);
    return 0;
}

/* Answers any byte with answer_len bytes. */
static inline int rig_babble(void *state, const uint8_t *bytes, size_t len)
{
    struct rig_conn *rc = state;
    char block[4096];
    (void)bytes;
    (void)len;
    weir_conn_alive(rc->conn);
    memset(block, 'b', sizeof(block));
    for (size_t left = rc->rig->answer_len; left > 0;) {
        size_t n = left < sizeof(block) ? left : sizeof(block);
        weir_conn_send(rc->conn, block, n);
        left -= n;
    }
    return 0;
}

/* Says goodbye before it goes. */
static inline void rig_drain(void *state)
{
    struct rig_conn *rc = state;
    atomic_fetch_add(&rc->rig->drained, 1);
    weir_conn_send(rc->conn, "bye", 3);
    weir_conn_finish(rc->conn);
}

/* Hears that it should go, and stays. */
static inline void rig_stay(void *state)
{
    struct rig_conn *rc = state;
    atomic_fetch_add(&rc->rig->drained, 1);
}

/* Hears one more request, if it comes soon. */
static inline void rig_last_call(void *state)
{
    struct rig_conn *rc = state;
    atomic_fetch_add(&rc->rig->drained, 1);
    weir_conn_last_call(rc->conn);
}

static const struct weir_protocol rig_echo_protocol = {
    .name = "echo", .open = rig_open, .feed = rig_echo, .turn = rig_turn, .close = rig_close};
static const struct weir_protocol rig_polite_protocol = {
    .name = "polite", .open = rig_open, .feed = rig_echo, .drain = rig_drain, .close = rig_close};
static const struct weir_protocol rig_stubborn_protocol = {
    .name = "stubborn", .open = rig_open, .feed = rig_echo, .drain = rig_stay, .close = rig_close};
static const struct weir_protocol rig_patient_protocol = {.name = "patient",
                                                          .open = rig_open,
                                                          .feed = rig_echo,
                                                          .drain = rig_last_call,
                                                          .close = rig_close};
static const struct weir_protocol rig_talk_protocol = {
    .name = "talk", .open = rig_open, .feed = rig_ignore, .turn = rig_talk, .close = rig_close};
static const struct weir_protocol rig_wake_protocol = {
    .name = "wake", .open = rig_open, .feed = rig_ignore, .turn = rig_wake, .close = rig_close};
static const struct weir_protocol rig_deaf_protocol = {
    .name = "deaf", .open = rig_open, .feed = rig_ignore, .close = rig_close};
static const struct weir_protocol rig_babble_protocol = {
    .name = "babble", .open = rig_open, .feed = rig_babble, .close = rig_close};

static inline void rig_event(void *ctx, enum weir_net_event event, const char *peer,
                             const char *detail)
{
    struct rig *rig = ctx;
    (void)peer;
    (void)detail;
    atomic_fetch_add(&rig->events[event], 1);
}

static inline void *rig_thread(void *ctx)
{
    weir_loop_run(ctx, rig_clock, NULL);
    return NULL;
}

/* With options->address NULL: a free port on the loopback. */
static inline void rig_start(struct rig *rig, uint32_t loop_count,
                             const struct weir_listen_options *options)
{
    struct weir_listen_options o = *options;
    char why[256] = "";
    signal(SIGPIPE, SIG_IGN);
    memset(rig, 0, sizeof(*rig));
    rig->loop_count = loop_count;
    for (uint32_t i = 0; i < loop_count; i++)
        assert_int_equal(weir_loop_new(&rig->loops[i]), 0);
    if (o.address == NULL)
        o.address = "127.0.0.1:0";
    o.protocol_ctx = rig;
    o.on_event = rig_event;
    o.event_ctx = rig;
    int err = weir_listener_new(&rig->listener, rig->loops, loop_count, &o, why, sizeof(why));
    if (err != 0)
        fail_msg("%s", why);
    for (uint32_t i = 0; i < loop_count; i++)
        assert_int_equal(pthread_create(&rig->threads[i], NULL, rig_thread, rig->loops[i]), 0);
}

static inline void rig_join(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->loop_count; i++)
        assert_int_equal(pthread_join(rig->threads[i], NULL), 0);
    weir_listener_free(rig->listener);
    for (uint32_t i = 0; i < rig->loop_count; i++)
        weir_loop_free(rig->loops[i]);
    assert_int_equal(atomic_load(&rig->opened), atomic_load(&rig->closed));
}

static inline void rig_stop(struct rig *rig, uint32_t grace_ms)
{
    for (uint32_t i = 0; i < rig->loop_count; i++)
        weir_loop_stop(rig->loops[i], grace_ms);
    rig_join(rig);
}

static inline uint64_t rig_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Waits until a counter is at least so high. */
static inline void rig_await(const _Atomic uint64_t *counter, uint64_t least)
{
    uint64_t until = rig_ms() + RIG_PATIENCE_S * 1000;
    while (atomic_load(counter) < least) {
        if (rig_ms() > until)
            fail_msg("%llu instead of %llu", (unsigned long long)atomic_load(counter),
                     (unsigned long long)least);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* ---- clients ---- */

static inline int rig_connect(const char *address)
{
    struct timeval patience = {.tv_sec = RIG_PATIENCE_S};
    int fd, err;
    if (strncmp(address, "unix:", 5) == 0) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        snprintf(to.sun_path, sizeof(to.sun_path), "%s", address + 5);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        err = connect(fd, (struct sockaddr *)&to, sizeof(to));
    } else {
        const char *colon = strrchr(address, ':');
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        err = connect(fd, (struct sockaddr *)&to, sizeof(to));
    }
    if (err != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return fd;
}

static inline int rig_client(const struct rig *rig)
{
    int fd = rig_connect(weir_listener_address(rig->listener));
    assert_true(fd >= 0);
    return fd;
}

static inline void rig_write(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        at += n;
        len -= (size_t)n;
    }
}

/* Reads until len bytes are there or the peer has ended; how many came. */
static inline size_t rig_read(int fd, void *to, size_t len)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = recv(fd, (char *)to + got, len - got, 0);
        if (n < 0 && errno == ECONNRESET)
            return got;
        assert_true(n >= 0);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static inline void rig_expect(int fd, const char *text)
{
    char got[256] = "";
    assert_true(strlen(text) < sizeof(got));
    assert_int_equal(rig_read(fd, got, strlen(text)), strlen(text));
    assert_string_equal(got, text);
}

/* The peer closes, and says nothing before. */
static inline void rig_expect_end(int fd)
{
    char byte;
    assert_int_equal(rig_read(fd, &byte, 1), 0);
}

#endif
