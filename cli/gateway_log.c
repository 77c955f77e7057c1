/* gateway_log.c - nginx's access log on our standard output, whatever that is.
 *
 * nginx opens a log by its name, and /dev/stdout has one that cannot always be opened: a socket
 * (under systemd) has none, and a file may belong to somebody else (behind sudo).  There nginx
 * writes into a pipe, and a small process copies.
 *
 *     nginx --- /proc/self/fd/N ---> pipe ---> copier ---> standard output
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* nginx appends: in a file that we write to, too, nobody may overwrite the other. */
static void append_to(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        (void)fcntl(fd, F_SETFL, flags | O_APPEND); /* at worst, lines are mixed */
}

static bool can_open(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Until nobody can write into the pipe any more. */
static void copy_all(int from)
{
    char bytes[65536];
    for (;;) {
        ssize_t len = read(from, bytes, sizeof(bytes));
        if (len == 0 || (len < 0 && errno != EINTR))
            return;
        for (ssize_t at = 0; at < len;) {
            ssize_t done = write(STDOUT_FILENO, bytes + at, (size_t)(len - at));
            if (done < 0 && errno != EINTR)
                return;
            at += done > 0 ? done : 0;
        }
    }
}

/* The end of a pipe to write into, or -1. */
static int start_copier(void)
{
    int ends[2];
    pid_t pid = pipe(ends) == 0 ? fork() : -1;
    if (pid < 0) {
        cli_complain("gateway: standard output cannot be logged to: %s", strerror(errno));
        return -1;
    }
    if (pid == 0) {
        setsid(); /* Ctrl-C is for the gateway; this ends with the pipe */
        close(ends[1]);
        copy_all(ends[0]);
        _exit(0);
    }
    close(ends[0]);
    return ends[1];
}

bool gateway_log_begin(struct gateway *gateway, int *pipe_fd)
{
    static const char name[] = "/dev/stdout";
    char path[32];
    append_to(STDOUT_FILENO);
    append_to(STDERR_FILENO);
    if (strcmp(gateway->set.access_log, name) != 0 || can_open(name))
        return true;
    if (*pipe_fd < 0)
        *pipe_fd = start_copier();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", *pipe_fd);
    gateway->set.access_log = gateway_copy(gateway, weir_str_of(path));
    return *pipe_fd >= 0;
}
