/* gateway_program.c - the nginx program: where it is, and which version.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void gateway_exec_nginx(const char *program, char *const *arguments)
{
    /* Debian's nginx lies in sbin, which not everybody has in PATH. */
    const char *const tries[] = {program, "/usr/sbin/nginx"};
    for (size_t i = 0; i < (strchr(program, '/') != NULL ? 1 : 2); i++) {
        execvp(tries[i], arguments);
        if (errno != ENOENT)
            break;
    }
}

/* What `nginx -v` says, which is on stderr; empty where it cannot be run. */
static void ask_version(const char *program, char *said, size_t len)
{
    int ends[2];
    size_t got = 0;
    said[0] = '\0';
    if (pipe(ends) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        char *const arguments[] = {"nginx", "-v", NULL};
        if (dup2(ends[1], STDERR_FILENO) >= 0)
            gateway_exec_nginx(program, arguments);
        _exit(CLI_WORLD);
    }
    close(ends[1]);
    for (ssize_t more = 1; pid > 0 && more > 0 && got<len - 1; got += more> 0 ? (size_t)more : 0)
        more = read(ends[0], said + got, len - 1 - got);
    said[got] = '\0';
    close(ends[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
}

unsigned gateway_nginx_version(const struct gateway *gateway)
{
    char said[256];
    unsigned major, minor, patch;
    ask_version(gateway->set.nginx, said, sizeof(said));
    if (sscanf(said, "nginx version: %*[^/]/%u.%u.%u", &major, &minor, &patch) != 3)
        return 0;
    return major * 1000000 + minor * 1000 + patch;
}
