/* latency.c - how long answers take at a given rate.
 *
 *     latency grpc|check|resp PORT SECONDS RATE
 *
 * Asks on schedule, whether or not earlier questions were answered, over 16 connections; the time
 * of an answer counts from when its question was due.  RATE 0: as fast as answers come, to find out
 * how fast that is.  Prints an object: the rate reached, and p50, p99 and p99.9 of the answers and
 * of a control timer, which is the same schedule without a server: how late this process is by
 * itself.
 *
 * It looks at its sockets without ever sleeping, so it wants a processor of its own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 16u
#define PATIENCE_NS (5 * NS_PER_S)
#define NS_PER_S UINT64_C(1000000000)

struct conn {
    struct wire wire;
    int fd;
    uint64_t due_ns[WIRE_OPEN_MAX]; /* of question number i, at i % WIRE_OPEN_MAX */
};

static struct {
    uint64_t *answers_ns, *timers_ns;
    size_t answers, timers, cap;
    uint64_t now_ns;
} run;

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void give_up(const char *why)
{
    fprintf(stderr, "latency: %s\n", why);
    exit(3);
}

static void answer(struct wire *wire, uint32_t question, enum wire_verdict verdict)
{
    struct conn *conn = (struct conn *)wire;
    if (question >= wire->asked)
        give_up("an answer to no question");
    if (verdict == WIRE_ERROR)
        give_up("an answer that is an error");
    if (run.answers < run.cap)
        run.answers_ns[run.answers] = run.now_ns - conn->due_ns[question % WIRE_OPEN_MAX];
    run.answers++;
    wire->answered++;
}

static void send_all(struct wire *wire, const uint8_t *bytes, size_t len)
{
    if (send(((struct conn *)wire)->fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        give_up("a connection takes no more");
}

/* ---- asking on schedule ---- */

static void connect_all(struct conn *conns, int poll, const struct wire_protocol *protocol,
                        int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        uint8_t hello[WIRE_QUESTION_MAX];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conns[i]};
        conns[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (conns[i].fd < 0 || connect(conns[i].fd, (void *)&address, sizeof(address)) != 0 ||
            setsockopt(conns[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0 ||
            epoll_ctl(poll, EPOLL_CTL_ADD, conns[i].fd, &event) != 0)
            give_up("cannot connect");
        conns[i].wire.answer = answer;
        conns[i].wire.send = send_all;
        send_all(&conns[i].wire, hello, protocol->hello(hello));
    }
}

static void read_all(int poll, const struct wire_protocol *protocol)
{
    struct epoll_event events[CONNECTIONS];
    uint8_t bytes[65536];
    int ready = epoll_wait(poll, events, CONNECTIONS, 0);
    for (int i = 0; i < ready; i++) {
        struct conn *conn = events[i].data.ptr;
        ssize_t got = recv(conn->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got <= 0)
            give_up("a connection was closed");
        run.now_ns = monotonic_ns();
        protocol->read(&conn->wire, bytes, (size_t)got);
    }
}

static void ask(struct conn *conn, const struct wire_protocol *protocol, uint64_t due_ns)
{
    uint8_t bytes[WIRE_QUESTION_MAX];
    char key[16];
    struct wire_question question = {
        .domain = "bench",
        .entries = {{"tenant", "customer-42"}, {"path", "/api/v1/items"}},
        .entry_count = 2,
        .hits = 1,
        .throttle = {"15", "30", "60"},
    };
    if (strcmp(protocol->name, "check") == 0)
        question.entries[0].value = "203.0.113.9";
    if (strcmp(protocol->name, "resp") == 0) {
        snprintf(key, sizeof(key), "key:%08u", conn->wire.asked * 2654435761u % 100000);
        question.entries[0].value = key;
    }
    conn->due_ns[conn->wire.asked % WIRE_OPEN_MAX] = due_ns;
    send_all(&conn->wire, bytes, wire_ask(&conn->wire, protocol, bytes, &question));
}

/* Every connection has one question open, always. */
static uint64_t flood(struct conn *conns, int poll, const struct wire_protocol *protocol,
                      uint64_t end_ns)
{
    uint64_t begin_ns = run.now_ns = monotonic_ns();
    while (run.now_ns < end_ns) {
        for (uint32_t i = 0; i < CONNECTIONS; i++)
            if (conns[i].wire.asked == conns[i].wire.answered)
                ask(&conns[i], protocol, run.now_ns);
        read_all(poll, protocol);
        run.now_ns = monotonic_ns();
    }
    return run.now_ns - begin_ns;
}

static uint64_t follow(struct conn *conns, int poll, const struct wire_protocol *protocol,
                       uint64_t end_ns, uint64_t rate)
{
    uint64_t begin_ns = run.now_ns = monotonic_ns(), asked = 0, due_ns = begin_ns;
    while (due_ns < end_ns || run.answers < asked) {
        struct conn *conn = &conns[asked % CONNECTIONS];
        if (due_ns <= run.now_ns && due_ns < end_ns &&
            conn->wire.asked - conn->wire.answered < WIRE_OPEN_MAX) {
            run.timers_ns[run.timers++] = run.now_ns - due_ns;
            ask(conn, protocol, due_ns);
            due_ns = begin_ns + ++asked * NS_PER_S / rate;
        }
        read_all(poll, protocol);
        run.now_ns = monotonic_ns();
        if (run.now_ns > end_ns + PATIENCE_NS)
            give_up("answers are missing");
    }
    return run.now_ns - begin_ns;
}

/* ---- what it was ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_shares(const char *name, uint64_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_size);
    printf(", \"%s\": {\"p50\": %llu, \"p99\": %llu, \"p99.9\": %llu}", name,
           (unsigned long long)values[count / 2], (unsigned long long)values[count * 99 / 100],
           (unsigned long long)values[count * 999 / 1000]);
}

int main(int argc, char **argv)
{
    static struct conn conns[CONNECTIONS];
    const struct wire_protocol *protocol = argc == 5 ? wire_protocol_find(argv[1]) : NULL;
    if (protocol == NULL) {
        fprintf(stderr, "usage: latency grpc|check|resp PORT SECONDS RATE\n");
        return 2;
    }
    double seconds = strtod(argv[3], NULL);
    uint64_t rate = strtoull(argv[4], NULL, 10);
    run.cap = (size_t)((double)rate * seconds) + 2;
    run.answers_ns = calloc(run.cap, sizeof(uint64_t));
    run.timers_ns = calloc(run.cap, sizeof(uint64_t));
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (run.answers_ns == NULL || run.timers_ns == NULL || poll < 0)
        give_up(strerror(errno));
    connect_all(conns, poll, protocol, (int)strtol(argv[2], NULL, 10));
    uint64_t end_ns = monotonic_ns() + (uint64_t)(seconds * 1e9);
    uint64_t took_ns = rate == 0 ? flood(conns, poll, protocol, end_ns)
                                 : follow(conns, poll, protocol, end_ns, rate);
    printf("{\"protocol\": \"%s\", \"answers\": %zu, \"rate\": %.1f", protocol->name, run.answers,
           (double)run.answers * 1e9 / (double)took_ns);
    if (rate > 0) {
        print_shares("answer_ns", run.answers_ns, run.answers);
        print_shares("timer_ns", run.timers_ns, run.timers);
    }
    printf("}\n");
    return 0;
}
