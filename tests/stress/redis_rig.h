/* redis_rig.h - a real redis-server of the test's own, and a plain conversation with it.
 *
 *     struct redis_rig rig;
 *     redis_rig_start(&rig);
 *     weir_redis_put_call(&rig.out, rig.how, &call);      any number of commands
 *     redis_rig_send(&rig);
 *     redis_rig_next(&rig);                               the reply: rig.nodes, rig.count
 *
 * It listens on a unix socket in a folder of its own, keeps nothing on disk, and ends with us.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_REDIS_RIG_H
#define WEIR_TESTS_REDIS_RIG_H

#include "base/str.h"
#include "store/redis/reply.h"
#include "store_rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#define REDIS_RIG_OUT_MAX (64u << 20)

#define REDIS_RIG_ARGS_MAX 32

struct redis_rig {
    char folder[64];
    const char *args[REDIS_RIG_ARGS_MAX]; /* of the server, besides the usual; ends with NULL */
    pid_t server;
    int socket;
    enum weir_redis_how how;
    struct weir_buf out;
    struct weir_redis_reader *reader;
    const struct weir_redis_node *nodes; /* of the last reply */
    uint32_t count;
};

/* A port that was free just now, as text.  Below those that the kernel gives to connections: one of
 * these may go to somebody's connection before the server has come to listen. */
static inline const char *redis_rig_port(char out[static 8])
{
    for (;;) {
        uint16_t random;
        assert_int_equal(getrandom(&random, sizeof(random), 0), sizeof(random));
        unsigned port = 10000u + random % 22000u;
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        bool is_free = bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
        close(fd);
        if (is_free) {
            snprintf(out, 8, "%u", port);
            return out;
        }
    }
}

static inline void redis_rig_exec(const struct redis_rig *rig)
{
    char path[96], log[96];
    const char *args[REDIS_RIG_ARGS_MAX + 16] = {"redis-server",
                                                 "--port",
                                                 "0",
                                                 "--unixsocket",
                                                 path,
                                                 "--save",
                                                 "",
                                                 "--appendonly",
                                                 "no",
                                                 "--dir",
                                                 rig->folder,
                                                 "--logfile",
                                                 log,
                                                 "--enable-debug-command",
                                                 "yes"};
    snprintf(path, sizeof(path), "%.63s/socket", rig->folder);
    snprintf(log, sizeof(log), "%.63s/log", rig->folder);
    for (size_t i = 0; rig->args[i] != NULL; i++)
        args[15 + i] = rig->args[i]; /* the last of two that differ counts */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp("redis-server", (char *const *)(uintptr_t)args);
    _exit(127);
}

/* The server is there when it lets us in. */
static inline void redis_rig_connect(struct redis_rig *rig)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const struct timespec pause = {.tv_nsec = 10000000};
    snprintf(to.sun_path, sizeof(to.sun_path), "%.63s/socket", rig->folder);
    for (int tries = 0; tries < 3000; tries++) {
        rig->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(rig->socket >= 0);
        if (connect(rig->socket, (struct sockaddr *)&to, sizeof(to)) == 0)
            return;
        close(rig->socket);
        nanosleep(&pause, NULL);
    }
    fail_msg("no redis-server answers at %s", to.sun_path);
}

/* The server, and a conversation with it: the first, or after redis_rig_kill() another. */
static inline void redis_rig_launch(struct redis_rig *rig)
{
    fflush(stdout);
    rig->server = fork();
    assert_true(rig->server >= 0);
    if (rig->server == 0)
        redis_rig_exec(rig);
    redis_rig_connect(rig);
    assert_int_equal(weir_redis_reader_new(&rig->reader), 0);
}

static inline void redis_rig_kill(struct redis_rig *rig)
{
    int status;
    kill(rig->server, SIGKILL);
    assert_int_equal(waitpid(rig->server, &status, 0), rig->server);
    close(rig->socket);
    weir_redis_reader_free(rig->reader);
}

/* args is NULL, or ends with NULL. */
static inline void redis_rig_start_with(struct redis_rig *rig, const char *const *args)
{
    *rig = (struct redis_rig){.folder = "/tmp/weir-redis-XXXXXX"};
    for (size_t i = 0; args != NULL && args[i] != NULL; i++)
        rig->args[i] = args[i];
    assert_non_null(mkdtemp(rig->folder));
    weir_buf_init(&rig->out, REDIS_RIG_OUT_MAX);
    redis_rig_launch(rig);
}

static inline void redis_rig_start(struct redis_rig *rig)
{
    redis_rig_start_with(rig, NULL);
}

/* With all that a server leaves in it, half-written files included. */
static inline void redis_rig_remove(const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(folder), 0);
}

static inline void redis_rig_stop(struct redis_rig *rig)
{
    redis_rig_kill(rig);
    weir_buf_fini(&rig->out);
    redis_rig_remove(rig->folder);
}

/* All that was put.  Large pipelines would fill both directions: send no more than a few hundred
 * commands at once. */
static inline void redis_rig_send(struct redis_rig *rig)
{
    assert_false(rig->out.has_failed);
    for (size_t sent = 0; sent < rig->out.len;) {
        ssize_t n = send(rig->socket, rig->out.ptr + sent, rig->out.len - sent, MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EINTR);
        sent += n > 0 ? (size_t)n : 0;
    }
    weir_buf_cut(&rig->out, 0);
}

static inline void redis_rig_next(struct redis_rig *rig)
{
    char bytes[65536];
    int got;
    while ((got = weir_redis_reader_next(rig->reader, &rig->nodes, &rig->count)) == 0) {
        ssize_t n = recv(rig->socket, bytes, sizeof(bytes), 0);
        assert_true(n > 0);
        assert_int_equal(weir_redis_reader_feed(rig->reader, bytes, (size_t)n), 0);
    }
    assert_int_equal(got, 1);
}

/* The text of the last reply, if it is one. */
static inline struct weir_str redis_rig_text(const struct redis_rig *rig)
{
    return weir_redis_node_str(rig->reader, &rig->nodes[0]);
}

/* Words separated by blanks. */
static inline void redis_rig_ask(struct redis_rig *rig, const char *words)
{
    struct weir_str args[16];
    uint32_t count = 0;
    while (*words != '\0') {
        size_t len = strcspn(words, " ");
        assert_true(count < 16);
        args[count++] = (struct weir_str){.ptr = words, .len = len};
        words += len + (words[len] == ' ');
    }
    weir_redis_put_command(&rig->out, args, count);
    redis_rig_send(rig);
    redis_rig_next(rig);
}

/* The same, where an error is none of the answers. */
static inline void redis_rig_do(struct redis_rig *rig, const char *words)
{
    redis_rig_ask(rig, words);
    if (rig->nodes[0].type == WEIR_REDIS_ERROR)
        fail_msg("%s: %.*s", words, WEIR_STR_ARG(redis_rig_text(rig)));
}

/* Asks until the answer has these words in it. */
static inline void redis_rig_await(struct redis_rig *rig, const char *words, const char *wanted)
{
    for (int tries = 0; tries < 6000; tries++) {
        redis_rig_do(rig, words);
        struct weir_str text = redis_rig_text(rig);
        if (text.len > 0 && memmem(text.ptr, text.len, wanted, strlen(wanted)) != NULL)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    fail_msg("'%s' never says '%s'", words, wanted);
}

static inline void redis_rig_load(struct redis_rig *rig)
{
    weir_redis_put_load(&rig->out, rig->how);
    redis_rig_send(rig);
    redis_rig_next(rig);
    if (rig->nodes[0].type == WEIR_REDIS_ERROR)
        fail_msg("%.*s", WEIR_STR_ARG(redis_rig_text(rig)));
}

#endif
