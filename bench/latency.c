/* latency.c - how long answers take at a given rate.
 *
 *     latency grpc|http|resp PORT SECONDS RATE
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
#define OPEN_MAX 256u /* questions open on a connection */
#define LINE_MAX 512  /* bytes of a question */
#define PATIENCE_NS (5 * NS_PER_S)
#define NS_PER_S UINT64_C(1000000000)

struct conn {
    int fd;
    uint32_t asked, answered;
    uint64_t due_ns[OPEN_MAX]; /* of question number i, at i % OPEN_MAX */
    uint8_t frame[9];          /* gRPC: the head of a frame, as far as it has come, */
    uint32_t frame_len;        /* so far, */
    uint32_t skip;             /* and how much of its payload is yet to come */
    uint32_t seen;             /* HTTP, RESP: how much of an answer's end was seen */
};

/* How a protocol asks, and finds answers among the bytes that come. */
struct protocol {
    const char *name;
    size_t (*hello)(uint8_t *to);
    size_t (*ask)(uint8_t *to, uint32_t question);
    void (*read)(struct conn *conn, const uint8_t *bytes, size_t len);
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

static void answer(struct conn *conn, uint32_t question)
{
    if (question >= conn->asked)
        give_up("an answer to no question");
    if (run.answers < run.cap)
        run.answers_ns[run.answers] = run.now_ns - conn->due_ns[question % OPEN_MAX];
    run.answers++;
    conn->answered++;
}

/* ---- HTTP and RESP: text ---- */

static size_t no_hello(uint8_t *to)
{
    (void)to;
    return 0;
}

static size_t put(uint8_t *to, const char *text)
{
    size_t len = strlen(text);
    memcpy(to, text, len);
    return len;
}

static size_t http_ask(uint8_t *to, uint32_t question)
{
    (void)question;
    return put(to, "GET /check HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.9\r\n"
                   "X-Forwarded-Method: GET\r\nX-Forwarded-Proto: https\r\n"
                   "X-Forwarded-Host: api.example.com\r\n"
                   "X-Forwarded-Uri: /api/v1/items/4711?page=2\r\n\r\n");
}

/* Answers without a body: each ends with an empty line. */
static void http_read(struct conn *conn, const uint8_t *bytes, size_t len)
{
    static const uint8_t end[] = "\r\n\r\n";
    for (size_t i = 0; i < len; i++) {
        conn->seen = bytes[i] == end[conn->seen] ? conn->seen + 1 : bytes[i] == '\r';
        if (conn->seen == 4) {
            conn->seen = 0;
            answer(conn, conn->answered);
        }
    }
}

static size_t resp_ask(uint8_t *to, uint32_t question)
{
    char text[LINE_MAX];
    snprintf(text, sizeof(text),
             "*5\r\n$11\r\nCL.THROTTLE\r\n$12\r\nkey:%08u\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n",
             question * 2654435761u % 100000);
    return put(to, text);
}

/* Six lines: how many numbers follow, and five of them. */
static void resp_read(struct conn *conn, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n' && ++conn->seen == 6) {
            conn->seen = 0;
            answer(conn, conn->answered);
        }
    }
}

/* ---- gRPC: frames, as RFC 9113 and RFC 7541 have them ---- */

enum { FRAME_DATA, FRAME_HEADERS, FRAME_RST = 3, FRAME_SETTINGS, FRAME_GOAWAY = 7, FRAME_WINDOW };
enum { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4 };

static size_t put_frame(uint8_t *to, size_t len, int type, int flags, uint32_t stream)
{
    uint8_t head[9] = {0, (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type, (uint8_t)flags};
    uint32_t id = htonl(stream);
    memcpy(head + 5, &id, 4);
    memcpy(to, head, sizeof(head));
    return sizeof(head);
}

static size_t grpc_hello(uint8_t *to)
{
    static const uint8_t window[] = {0x7f, 0, 0, 0};
    size_t len = put(to, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    len += put_frame(to + len, 0, FRAME_SETTINGS, 0, 0);
    len += put_frame(to + len, sizeof(window), FRAME_WINDOW, 0, 0);
    memcpy(to + len, window, sizeof(window)); /* enough for all answers: none is asked for again */
    return len + sizeof(window);
}

static size_t put_word(uint8_t *to, const char *word)
{
    to[0] = (uint8_t)strlen(word); /* below 127, not Huffman-coded */
    return 1 + put(to + 1, word);
}

static size_t put_message(uint8_t *to)
{
    static const uint8_t message[] = "\0\0\0\0\x37"
                                     "\x0a\x05"
                                     "bench"
                                     "\x12\x2e"
                                     "\x0a\x15"
                                     "\x0a\x06"
                                     "tenant"
                                     "\x12\x0b"
                                     "customer-42"
                                     "\x0a\x15"
                                     "\x0a\x04"
                                     "path"
                                     "\x12\x0d"
                                     "/api/v1/items";
    memcpy(to, message, sizeof(message) - 1);
    return sizeof(message) - 1;
}

static size_t grpc_ask(uint8_t *to, uint32_t question)
{
    uint32_t stream = 2 * question + 1;
    uint8_t fields[LINE_MAX], message[LINE_MAX];
    size_t len = 0;
    fields[len++] = 0x83; /* :method: POST */
    fields[len++] = 0x86; /* :scheme: http */
    fields[len++] = 0x04; /* :path, as these below: its value follows, and is not to be indexed */
    len += put_word(fields + len, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    fields[len++] = 0x01; /* :authority */
    len += put_word(fields + len, "localhost");
    fields[len++] = 0x0f; /* number 15 + 16: content-type */
    fields[len++] = 0x10;
    len += put_word(fields + len, "application/grpc");
    fields[len++] = 0x00; /* a name of its own */
    len += put_word(fields + len, "te");
    len += put_word(fields + len, "trailers");
    size_t message_len = put_message(message);
    size_t at = put_frame(to, len, FRAME_HEADERS, FLAG_END_HEADERS, stream);
    memcpy(to + at, fields, len);
    at += len;
    at += put_frame(to + at, message_len, FRAME_DATA, FLAG_END_STREAM, stream);
    memcpy(to + at, message, message_len);
    return at + message_len;
}

static void send_all(const struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (send(conn->fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        give_up("a connection takes no more");
}

static void grpc_frame(struct conn *conn)
{
    const uint8_t *head = conn->frame;
    uint32_t id;
    memcpy(&id, head + 5, 4);
    if (head[3] == FRAME_RST || head[3] == FRAME_GOAWAY)
        give_up("a stream or a connection was ended");
    if (head[3] == FRAME_HEADERS && (head[4] & FLAG_END_STREAM))
        answer(conn, (ntohl(id) - 1) / 2);
    if (head[3] == FRAME_SETTINGS && !(head[4] & FLAG_ACK)) {
        uint8_t ack[9];
        send_all(conn, ack, put_frame(ack, 0, FRAME_SETTINGS, FLAG_ACK, 0));
    }
}

static void grpc_read(struct conn *conn, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        size_t step = conn->skip > 0 ? conn->skip : sizeof(conn->frame) - conn->frame_len;
        if (step > len)
            step = len;
        if (conn->skip > 0) {
            conn->skip -= (uint32_t)step;
        } else {
            memcpy(conn->frame + conn->frame_len, bytes, step);
            conn->frame_len += (uint32_t)step;
        }
        bytes += step;
        len -= step;
        if (conn->frame_len < sizeof(conn->frame))
            continue;
        conn->skip =
            (uint32_t)conn->frame[0] << 16 | (uint32_t)conn->frame[1] << 8 | conn->frame[2];
        conn->frame_len = 0;
        grpc_frame(conn);
    }
}

static const struct protocol protocols[] = {
    {"grpc", grpc_hello, grpc_ask, grpc_read},
    {"http", no_hello, http_ask, http_read},
    {"resp", no_hello, resp_ask, resp_read},
};

/* ---- asking on schedule ---- */

static void connect_all(struct conn *conns, int poll, const struct protocol *protocol, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        uint8_t hello[LINE_MAX];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conns[i]};
        conns[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (conns[i].fd < 0 || connect(conns[i].fd, (void *)&address, sizeof(address)) != 0 ||
            setsockopt(conns[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0 ||
            epoll_ctl(poll, EPOLL_CTL_ADD, conns[i].fd, &event) != 0)
            give_up("cannot connect");
        send_all(&conns[i], hello, protocol->hello(hello));
    }
}

static void read_all(int poll, const struct protocol *protocol)
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
        protocol->read(conn, bytes, (size_t)got);
    }
}

static void ask(struct conn *conn, const struct protocol *protocol, uint64_t due_ns)
{
    uint8_t question[2 * LINE_MAX];
    conn->due_ns[conn->asked % OPEN_MAX] = due_ns;
    send_all(conn, question, protocol->ask(question, conn->asked++));
}

/* Every connection has one question open, always. */
static uint64_t flood(struct conn *conns, int poll, const struct protocol *protocol,
                      uint64_t end_ns)
{
    uint64_t begin_ns = run.now_ns = monotonic_ns();
    while (run.now_ns < end_ns) {
        for (uint32_t i = 0; i < CONNECTIONS; i++)
            if (conns[i].asked == conns[i].answered)
                ask(&conns[i], protocol, run.now_ns);
        read_all(poll, protocol);
        run.now_ns = monotonic_ns();
    }
    return run.now_ns - begin_ns;
}

static uint64_t follow(struct conn *conns, int poll, const struct protocol *protocol,
                       uint64_t end_ns, uint64_t rate)
{
    uint64_t begin_ns = run.now_ns = monotonic_ns(), asked = 0, due_ns = begin_ns;
    while (due_ns < end_ns || run.answers < asked) {
        struct conn *conn = &conns[asked % CONNECTIONS];
        if (due_ns <= run.now_ns && due_ns < end_ns && conn->asked - conn->answered < OPEN_MAX) {
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
    const struct protocol *protocol = NULL;
    for (size_t i = 0; argc == 5 && i < sizeof(protocols) / sizeof(protocols[0]); i++)
        if (strcmp(argv[1], protocols[i].name) == 0)
            protocol = &protocols[i];
    if (protocol == NULL) {
        fprintf(stderr, "usage: latency grpc|http|resp PORT SECONDS RATE\n");
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
