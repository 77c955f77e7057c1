/* turns.c - HTTP servers are loaded by turns, and each turn's CPU time is told.
 *
 *     turns ROUNDS REQUESTS KEYS PID:PORT...
 *
 * In each round every server has a turn of REQUESTS requests, over 16 connections that it keeps;
 * who is first changes by chance.  Turns should take milliseconds: what a busy neighbour does to
 * the processor, it does to all then.  KEYS 0: all requests are alike; else each asks for the next
 * of so many keys, in an order that no cache can guess, and the same of every server.
 *
 * Prints one line for each round: nanoseconds of each server's CPU a request, in their order here.
 * Servers have one thread, as nginx does.
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
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 16u
#define SERVERS_MAX 16u
#define PATIENCE_MS 10000
#define KEY_STRIDE 618033u /* no divisor of a power of ten: all keys come before any comes again */

struct server {
    char *name;
    char cpu_path[32];
    int epoll;
    int fds[CONNECTIONS];
    uint64_t next_key;
    double cpu_ns; /* a request, of the last turn */
};

static struct {
    struct server servers[SERVERS_MAX];
    uint32_t server_count;
    uint64_t rounds, requests, keys;
} run;

static void give_up(const char *who, const char *why)
{
    fprintf(stderr, "turns: %s: %s\n", who, why);
    exit(3);
}

/* What the server has had of the processor so far. */
static uint64_t cpu_ns(const struct server *s)
{
    uint64_t ns = 0;
    FILE *file = fopen(s->cpu_path, "r");
    if (file == NULL || fscanf(file, "%lu", &ns) != 1)
        give_up(s->cpu_path, "cannot be read");
    fclose(file);
    return ns;
}

static int connected(const struct server *s, uint16_t port)
{
    const int one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0)
        give_up(s->name, strerror(errno));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void open_server(struct server *s, char *name)
{
    char *colon = strchr(name, ':');
    s->name = name;
    if (colon == NULL)
        give_up(name, "PID:PORT is wanted");
    (void)snprintf(s->cpu_path, sizeof(s->cpu_path), "/proc/%lu/schedstat",
                   strtoul(name, NULL, 10));
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        event.data.fd = s->fds[i] = connected(s, (uint16_t)strtoul(colon + 1, NULL, 10));
        if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->fds[i], &event) != 0)
            give_up(name, strerror(errno));
    }
}

static void ask(struct server *s, int fd)
{
    char text[96];
    uint64_t key = run.keys > 0 ? s->next_key++ * KEY_STRIDE % run.keys : 0;
    int len =
        snprintf(text, sizeof(text), "GET /index.html?key=%lu HTTP/1.1\r\nHost: a\r\n\r\n", key);
    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        give_up(s->name, "does not take requests");
}

/* An answer comes whole: it is short, and nginx writes it at once. */
static void hear(const struct server *s, int fd)
{
    static const char ok[] = "HTTP/1.1 200 ";
    char text[2048];
    ssize_t len = recv(fd, text, sizeof(text) - 1, 0);
    if (len <= 0)
        give_up(s->name, "has closed a connection");
    text[len] = '\0';
    const char *length = strstr(text, "Content-Length: "), *body = strstr(text, "\r\n\r\n");
    if (memcmp(text, ok, sizeof(ok) - 1) != 0 || length == NULL || body == NULL ||
        body + 4 + strtoul(length + 16, NULL, 10) != text + len)
        give_up(s->name, "answers something else than 200");
}

/* Asks until so many are asked, and hears all. */
static void ask_all(struct server *s)
{
    uint64_t asked = 0, heard = 0;
    for (; asked < CONNECTIONS && asked < run.requests; asked++)
        ask(s, s->fds[asked]);
    while (heard < run.requests) {
        struct epoll_event events[CONNECTIONS];
        int count = epoll_wait(s->epoll, events, CONNECTIONS, PATIENCE_MS);
        if (count <= 0)
            give_up(s->name, "does not answer");
        for (int i = 0; i < count; i++, heard++) {
            hear(s, events[i].data.fd);
            if (asked < run.requests) {
                ask(s, events[i].data.fd);
                asked++;
            }
        }
    }
}

static void turn(struct server *s)
{
    const struct timespec rest = {.tv_nsec = 200000}; /* the server is done with the last, too */
    uint64_t before_ns = cpu_ns(s);
    ask_all(s);
    (void)nanosleep(&rest, NULL);
    s->cpu_ns = (double)(cpu_ns(s) - before_ns) / (double)run.requests;
}

/* Begins anywhere: who comes behind whom makes a difference, and must not be the same each time. */
static uint64_t draw(void)
{
    static uint64_t state;
    if (state == 0 && getrandom(&state, sizeof(state), 0) != sizeof(state))
        give_up("turns", strerror(errno));
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}

static void play_round(void)
{
    struct server *order[SERVERS_MAX] = {NULL};
    for (uint32_t i = 0; i < run.server_count; i++) {
        uint32_t at = (uint32_t)(draw() % (i + 1));
        order[i] = order[at];
        order[at] = &run.servers[i];
    }
    for (uint32_t i = 0; i < run.server_count; i++)
        turn(order[i]);
    for (uint32_t i = 0; i < run.server_count; i++)
        printf("%.1f%c", run.servers[i].cpu_ns, i + 1 < run.server_count ? ' ' : '\n');
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 4 + (int)SERVERS_MAX) {
        fprintf(stderr, "usage: turns ROUNDS REQUESTS KEYS PID:PORT...\n");
        return 2;
    }
    run.rounds = strtoull(argv[1], NULL, 10);
    run.requests = strtoull(argv[2], NULL, 10);
    run.keys = strtoull(argv[3], NULL, 10);
    for (int i = 4; i < argc; i++)
        open_server(&run.servers[run.server_count++], argv[i]);
    for (uint64_t i = 0; i < run.rounds; i++)
        play_round();
    return 0;
}
