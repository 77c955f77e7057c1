/* hammer.c - asks several nodes on schedule, and writes down what came of every question.
 *
 *     hammer --protocol grpc|json|check|resp --nodes PORT,PORT --keys NAME[*COUNT],...
 *            [--rate 1000] [--seconds 1] [--on-ms N --off-ms N] [--hits 1] [--connections N]
 *            [--deadline-ms 15] [--throttle BURST,COUNT,SECONDS] HISTORY
 *
 * Open loop: a question is asked when it is due, whether or not earlier ones were answered.  Nodes
 * take turns.  Each question draws its descriptor among the keys, and its value among COUNT values
 * (k0, k1, ...; with check, addresses).  With --on-ms and --off-ms it falls silent between bursts.
 * A node that is gone is connected to again and again; questions meanwhile are lost, and recorded.
 *
 * A control timer is set for every question, at its deadline: when that fires shows how late this
 * machine was just then, and an answer is late only by what it is later than that.
 *
 * SIGTERM ends the schedule; what was asked is waited for.
 *
 * The format of a history is in history.py.  Prints how many answers there were of each kind.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../bench/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NODES_MAX 16u
#define KEYS_MAX 32u
#define CONNECTIONS_MAX 512u           /* to a node */
#define OUT_MAX (256u << 10)           /* bytes that a node may be slow to take */
#define GRAIN_NS (100 * 1000u)         /* questions due within it are asked together */
#define RETRY_NS (20 * NS_PER_MS)      /* between two tries to connect */
#define PATIENCE_NS (3 * NS_PER_S)     /* for answers after the last question */
#define OFFSET_EACH_NS (5 * NS_PER_MS) /* how often the two clocks are compared */

struct head {
    char magic[8];
    int64_t offset_least_ns, offset_most_ns;
    uint64_t count;
};

struct record {
    uint64_t due_ns, sent_ns, answered_ns, control_ns;
    uint32_t value, hits;
    uint16_t descriptor;
    uint8_t node, verdict;
    uint32_t zero;
};
_Static_assert(sizeof(struct head) == 32 && sizeof(struct record) == 48,
               "as history.py reads them");

struct key {
    char name[64];
    uint32_t count; /* of values */
};

struct conn {
    struct wire wire; /* first */
    struct node *node;
    int fd; /* -1: none */
    bool is_connected, is_full;
    uint64_t retry_ns;
    uint64_t records[WIRE_OPEN_MAX]; /* of question number i, at i % WIRE_OPEN_MAX */
    uint8_t *out;
    size_t out_len;
};

struct node {
    uint16_t port;
    uint64_t next; /* record to ask for: its own are every node_count-th */
    uint32_t turn;
    struct conn *conns;
};

static struct {
    const struct wire_protocol *protocol;
    struct node nodes[NODES_MAX];
    uint32_t node_count, key_count, connections, hits;
    struct key keys[KEYS_MAX];
    const char *throttle[3];
    uint64_t rate, on_ns, off_ns, deadline_ns;
    double seconds;

    struct head *head;
    struct record *records;
    uint64_t count, next_control, finished;
    uint64_t begin_ns, now_ns, offset_due_ns;
    int poll;
    volatile sig_atomic_t is_told_to_stop;
} run = {.rate = 1000, .seconds = 1, .hits = 1, .deadline_ns = 15 * NS_PER_MS};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void give_up(const char *why)
{
    fprintf(stderr, "hammer: %s\n", why);
    exit(3);
}

/* A number that follows from i alone (splitmix64). */
static uint64_t mix(uint64_t i)
{
    i = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    i = (i ^ i >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    i = (i ^ i >> 27) * UINT64_C(0x94d049bb133111eb);
    return i ^ i >> 31;
}

/* ---- the record ---- */

static uint64_t due_ns(uint64_t i)
{
    uint64_t at_ns = i * NS_PER_S / run.rate;
    if (run.on_ns > 0)
        at_ns = at_ns / run.on_ns * (run.on_ns + run.off_ns) + at_ns % run.on_ns;
    return run.begin_ns + at_ns;
}

static void finish(uint64_t i, enum wire_verdict verdict)
{
    struct record *record = &run.records[i];
    record->answered_ns = run.now_ns;
    record->verdict = (uint8_t)verdict;
    if (record->sent_ns == 0)
        record->sent_ns = run.now_ns;
    run.finished++;
}

/* What the wall clock, which is Redis's, is ahead of ours, as exactly as two readings can tell. */
static void compare_clocks(void)
{
    uint64_t before_ns = clock_ns(CLOCK_MONOTONIC), wall_ns = clock_ns(CLOCK_REALTIME);
    uint64_t after_ns = clock_ns(CLOCK_MONOTONIC);
    if (after_ns - before_ns > 2000) /* interrupted: says little */
        return;
    int64_t least = (int64_t)(wall_ns - after_ns), most = (int64_t)(wall_ns - before_ns);
    if (run.head->offset_least_ns == 0 || least < run.head->offset_least_ns)
        run.head->offset_least_ns = least;
    if (run.head->offset_most_ns == 0 || most > run.head->offset_most_ns)
        run.head->offset_most_ns = most;
    run.offset_due_ns = after_ns + OFFSET_EACH_NS;
}

static void make_history(const char *path)
{
    run.count = (uint64_t)((double)run.rate * run.seconds);
    size_t len = sizeof(struct head) + run.count * sizeof(struct record);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)len) != 0)
        give_up(strerror(errno));
    void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED)
        give_up(strerror(errno));
    (void)close(fd);
    run.head = map;
    run.records = (struct record *)(run.head + 1);
    memcpy(run.head->magic, "weirhist", sizeof(run.head->magic));
    run.head->count = run.count;
    for (uint64_t i = 0; i < run.count; i++) {
        struct record *record = &run.records[i];
        uint64_t drawn = mix(i);
        record->descriptor = (uint16_t)(drawn % run.key_count);
        record->value = (uint32_t)((drawn >> 32) % run.keys[record->descriptor].count);
        record->node = (uint8_t)(i % run.node_count);
        record->hits = run.hits;
    }
}

/* Nothing more is due: the history ends with what has been so far. */
static void cut_short(void)
{
    uint64_t count = 0;
    while (count < run.count && due_ns(count) <= run.now_ns)
        count++;
    run.count = run.head->count = count;
    run.is_told_to_stop = 0;
}

static void stop(int signal)
{
    (void)signal;
    run.is_told_to_stop = 1;
}

/* ---- connections ---- */

static void watch(struct conn *conn, int how)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (!conn->is_connected || conn->out_len > 0)
        event.events |= EPOLLOUT;
    if (epoll_ctl(run.poll, how, conn->fd, &event) != 0)
        give_up(strerror(errno));
}

static void hang_up(struct conn *conn)
{
    if (conn->fd >= 0)
        (void)close(conn->fd);
    for (uint32_t i = 0; i < WIRE_OPEN_MAX; i++) {
        if (conn->records[i] != UINT64_MAX)
            finish(conn->records[i], WIRE_LOST);
        conn->records[i] = UINT64_MAX;
    }
    conn->fd = -1;
    conn->out_len = 0;
    conn->is_connected = conn->is_full = false;
    conn->retry_ns = run.now_ns + RETRY_NS;
}

static void flush_out(struct conn *conn)
{
    size_t sent = 0;
    while (sent < conn->out_len) {
        ssize_t got = send(conn->fd, conn->out + sent, conn->out_len - sent, MSG_NOSIGNAL);
        if (got < 0 && errno == EAGAIN)
            break;
        if (got < 0) {
            hang_up(conn);
            return;
        }
        sent += (size_t)got;
    }
    memmove(conn->out, conn->out + sent, conn->out_len - sent);
    conn->out_len -= sent;
    if (conn->is_full != (conn->out_len > 0)) {
        conn->is_full = conn->out_len > 0;
        watch(conn, EPOLL_CTL_MOD);
    }
}

static void add_out(struct wire *wire, const uint8_t *bytes, size_t len)
{
    struct conn *conn = (struct conn *)wire;
    if (conn->out_len + len > OUT_MAX)
        give_up("a node takes no more");
    memcpy(conn->out + conn->out_len, bytes, len);
    conn->out_len += len;
}

static void answer(struct wire *wire, uint32_t number, enum wire_verdict verdict)
{
    struct conn *conn = (struct conn *)wire;
    uint64_t *record = &conn->records[number % WIRE_OPEN_MAX];
    if (number >= wire->asked || *record == UINT64_MAX)
        give_up("an answer to no question");
    finish(*record, verdict);
    *record = UINT64_MAX;
    wire->answered++;
}

static void dial(struct conn *conn)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(conn->node->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(&conn->wire, 0, sizeof(conn->wire));
    conn->wire.answer = answer;
    conn->wire.send = add_out;
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0 || setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
        give_up(strerror(errno));
    if (connect(conn->fd, (void *)&address, sizeof(address)) != 0 && errno != EINPROGRESS) {
        hang_up(conn);
        return;
    }
    watch(conn, EPOLL_CTL_ADD);
}

static void greet(struct conn *conn)
{
    int err = 0;
    socklen_t len = sizeof(err);
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0) {
        hang_up(conn);
        return;
    }
    conn->is_connected = conn->is_full = true;
    conn->out_len = run.protocol->hello(conn->out);
    flush_out(conn);
}

static void read_from(struct conn *conn)
{
    static uint8_t bytes[1 << 16];
    ssize_t got = recv(conn->fd, bytes, sizeof(bytes), 0);
    if (got < 0 && errno == EAGAIN)
        return;
    run.now_ns = clock_ns(CLOCK_MONOTONIC);
    if (got <= 0)
        hang_up(conn);
    else
        run.protocol->read(&conn->wire, bytes, (size_t)got);
}

/* ---- asking on schedule ---- */

static bool is_free(const struct conn *conn)
{
    return conn->is_connected && conn->wire.asked - conn->wire.answered < run.protocol->open_max &&
           conn->records[conn->wire.asked % WIRE_OPEN_MAX] == UINT64_MAX;
}

static struct conn *find_free(struct node *node, bool *is_gone)
{
    *is_gone = true;
    for (uint32_t i = 0; i < run.connections; i++) {
        struct conn *conn = &node->conns[node->turn++ % run.connections];
        if (is_free(conn))
            return conn;
        *is_gone = *is_gone && !conn->is_connected;
    }
    return NULL;
}

static void ask(struct conn *conn, uint64_t i)
{
    struct record *record = &run.records[i];
    uint8_t bytes[WIRE_QUESTION_MAX];
    char value[32];
    uint32_t number = record->value;
    if (strcmp(run.protocol->name, "check") == 0)
        snprintf(value, sizeof(value), "10.%u.%u.%u", number >> 16, number >> 8 & 255,
                 number & 255);
    else
        snprintf(value, sizeof(value), "k%u", number);
    struct wire_question question = {
        .domain = "chaos",
        .entries = {{run.keys[record->descriptor].name, value}},
        .entry_count = 1,
        .hits = record->hits,
        .throttle = {run.throttle[0], run.throttle[1], run.throttle[2]},
    };
    conn->records[conn->wire.asked % WIRE_OPEN_MAX] = i;
    record->sent_ns = run.now_ns;
    add_out(&conn->wire, bytes, wire_ask(&conn->wire, run.protocol, bytes, &question));
}

/* All that are due at a node, as far as a connection is free. */
static void ask_node(struct node *node)
{
    for (; node->next < run.count && due_ns(node->next) <= run.now_ns;
         node->next += run.node_count) {
        bool is_gone;
        struct conn *conn = find_free(node, &is_gone);
        if (conn == NULL && !is_gone)
            break;
        run.records[node->next].due_ns = due_ns(node->next);
        if (conn == NULL)
            finish(node->next, WIRE_LOST);
        else
            ask(conn, node->next);
    }
    for (uint32_t i = 0; i < run.connections; i++) {
        struct conn *conn = &node->conns[i];
        if (conn->fd < 0 && conn->retry_ns <= run.now_ns)
            dial(conn);
        else if (conn->is_connected && conn->out_len > 0 && !conn->is_full)
            flush_out(conn);
    }
}

static void fire_timers(void)
{
    for (; run.next_control < run.count; run.next_control++) {
        if (due_ns(run.next_control) + run.deadline_ns > run.now_ns)
            break;
        run.records[run.next_control].control_ns = run.now_ns;
    }
    if (run.offset_due_ns <= run.now_ns)
        compare_clocks();
}

/* Until the next question is due, or the next timer. */
static struct timespec pause_of(void)
{
    uint64_t wake_ns = run.now_ns + OFFSET_EACH_NS;
    for (uint32_t i = 0; i < run.node_count; i++)
        if (run.nodes[i].next < run.count && due_ns(run.nodes[i].next) < wake_ns)
            wake_ns = due_ns(run.nodes[i].next);
    if (run.next_control < run.count && due_ns(run.next_control) + run.deadline_ns < wake_ns)
        wake_ns = due_ns(run.next_control) + run.deadline_ns;
    if (wake_ns < run.now_ns + GRAIN_NS)
        wake_ns = run.now_ns + GRAIN_NS;
    return (struct timespec){.tv_nsec = (long)(wake_ns - run.now_ns)};
}

static void turn(void)
{
    struct epoll_event events[64];
    struct timespec pause = pause_of();
    int ready = epoll_pwait2(run.poll, events, 64, &pause, NULL);
    run.now_ns = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < ready; i++) {
        struct conn *conn = events[i].data.ptr;
        if (conn->fd >= 0 && !conn->is_connected)
            greet(conn);
        else if (conn->fd >= 0 && (events[i].events & EPOLLOUT))
            flush_out(conn);
        if (conn->fd >= 0 && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            read_from(conn);
    }
    run.now_ns = clock_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < run.node_count; i++)
        ask_node(&run.nodes[i]);
    fire_timers();
}

static void connect_all(void)
{
    uint32_t ready = 0;
    run.poll = epoll_create1(EPOLL_CLOEXEC);
    run.now_ns = clock_ns(CLOCK_MONOTONIC);
    run.begin_ns = run.now_ns + 3600 * NS_PER_S; /* nothing is due yet */
    for (uint32_t i = 0; i < run.node_count; i++) {
        struct node *node = &run.nodes[i];
        node->next = i;
        node->conns = calloc(run.connections, sizeof(*node->conns));
        for (uint32_t j = 0; node->conns != NULL && j < run.connections; j++) {
            struct conn *conn = &node->conns[j];
            conn->node = node;
            conn->fd = -1;
            conn->out = malloc(OUT_MAX + WIRE_QUESTION_MAX);
            memset(conn->records, 0xff, sizeof(conn->records));
        }
    }
    for (uint64_t end_ns = run.now_ns + PATIENCE_NS; ready < run.node_count * run.connections;) {
        turn();
        ready = 0;
        for (uint32_t i = 0; i < run.node_count; i++)
            for (uint32_t j = 0; j < run.connections; j++)
                ready += run.nodes[i].conns[j].is_connected;
        if (run.now_ns > end_ns)
            give_up("cannot connect");
    }
}

static void hammer(const char *path)
{
    (void)signal(SIGTERM, stop);
    compare_clocks();
    run.begin_ns = clock_ns(CLOCK_MONOTONIC) + NS_PER_MS;
    uint64_t end_ns = due_ns(run.count) + run.deadline_ns + PATIENCE_NS;
    while ((run.finished < run.count || run.next_control < run.count) && run.now_ns < end_ns) {
        turn();
        if (run.is_told_to_stop)
            cut_short();
    }
    for (uint64_t i = 0; i < run.count; i++) { /* who was never asked, or is not answered yet */
        struct record *record = &run.records[i];
        record->due_ns = due_ns(i);
        if (record->answered_ns == 0)
            record->answered_ns = run.now_ns;
        if (record->sent_ns == 0)
            record->sent_ns = run.now_ns;
    }
    if (truncate(path, (off_t)(sizeof(struct head) + run.count * sizeof(struct record))) != 0)
        give_up(strerror(errno));
}

/* ---- what is asked for ---- */

static void read_keys(char *text)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        struct key *key = &run.keys[run.key_count++];
        char *star = strchr(word, '*');
        if (run.key_count > KEYS_MAX)
            give_up("too many keys");
        key->count = star != NULL ? (uint32_t)strtoul(star + 1, NULL, 10) : 1;
        snprintf(key->name, sizeof(key->name), "%.*s",
                 star != NULL ? (int)(star - word) : (int)sizeof(key->name) - 1, word);
    }
}

static void read_nodes(char *text)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (run.node_count == NODES_MAX)
            give_up("too many nodes");
        run.nodes[run.node_count++].port = (uint16_t)strtoul(word, NULL, 10);
    }
}

static void read_throttle(char *text)
{
    char *rest = NULL;
    for (size_t i = 0; i < 3; i++)
        run.throttle[i] = strtok_r(i == 0 ? text : NULL, ",", &rest);
}

static bool read_option(int option, char *value)
{
    uint64_t number = strtoull(value, NULL, 10);
    switch (option) {
    case 'p':
        run.protocol = wire_protocol_find(value);
        return true;
    case 'n':
        read_nodes(value);
        return true;
    case 'k':
        read_keys(value);
        return true;
    case 't':
        read_throttle(value);
        return true;
    case 'r':
        run.rate = number;
        return true;
    case 's':
        run.seconds = strtod(value, NULL);
        return true;
    case 'o':
        run.on_ns = number * NS_PER_MS;
        return true;
    case 'f':
        run.off_ns = number * NS_PER_MS;
        return true;
    case 'h':
        run.hits = (uint32_t)number;
        return true;
    case 'c':
        run.connections = (uint32_t)number;
        return true;
    case 'd':
        run.deadline_ns = number * NS_PER_MS;
        return true;
    default:
        return false;
    }
}

static bool read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"protocol", 1, NULL, 'p'},    {"nodes", 1, NULL, 'n'},    {"keys", 1, NULL, 'k'},
        {"rate", 1, NULL, 'r'},        {"seconds", 1, NULL, 's'},  {"on-ms", 1, NULL, 'o'},
        {"off-ms", 1, NULL, 'f'},      {"hits", 1, NULL, 'h'},     {"connections", 1, NULL, 'c'},
        {"deadline-ms", 1, NULL, 'd'}, {"throttle", 1, NULL, 't'}, {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!read_option(option, optarg))
            return false;
    if (run.protocol == NULL || run.node_count == 0 || run.key_count == 0 || run.rate == 0)
        return false;
    if (run.connections == 0)
        run.connections = run.protocol->open_max > 1 ? 4 : 64;
    return run.connections <= CONNECTIONS_MAX && optind == argc - 1;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"open", "ok", "over", "error", "lost"};
    uint64_t counts[5] = {0};
    if (!read_options(argc, argv)) {
        fprintf(stderr, "usage: hammer --protocol grpc|json|check|resp --nodes PORT,... "
                        "--keys NAME[*COUNT],... [--rate N] [--seconds N] ... HISTORY\n");
        return 2;
    }
    make_history(argv[optind]);
    connect_all();
    hammer(argv[optind]);
    for (uint64_t i = 0; i < run.count; i++)
        counts[run.records[i].verdict]++;
    for (size_t i = 0; i < 5; i++)
        printf("%s\"%s\": %llu", i == 0 ? "{" : ", ", names[i], (unsigned long long)counts[i]);
    printf("}\n");
    return 0;
}
