/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/notify.h"

#include "net/datagram.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* systemd's watchdog is for the process that it names; a child must not answer for its parent. */
static uint32_t read_watchdog(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (usec == NULL || (pid != NULL && strtoll(pid, NULL, 10) != (long long)getpid()))
        return 0;
    unsigned long long ms = strtoull(usec, NULL, 10) / 1000;
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

void weir_notify_init(struct weir_notify *notify, char *why, size_t why_len)
{
    const char *path = getenv("NOTIFY_SOCKET");
    char address[128];
    *notify = (struct weir_notify){.fd = -1};
    why[0] = '\0';
    if (path == NULL || path[0] == '\0')
        return;
    snprintf(address, sizeof(address), "unix:%s", path);
    if (weir_datagram_open(&notify->fd, address, why, why_len) != 0)
        return; /* why says so */
    notify->watchdog_ms = read_watchdog();
}

void weir_notify_fini(struct weir_notify *notify)
{
    if (notify->fd >= 0)
        close(notify->fd);
    notify->fd = -1;
}

void weir_notify_send(const struct weir_notify *notify, const char *state)
{
    if (notify->fd >= 0)
        weir_datagram_send(notify->fd, state,
                           strlen(state)); /* lost is lost: systemd has timeouts */
}

void weir_notify_reloading(const struct weir_notify *notify)
{
    struct timespec now;
    char state[80];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    weir_notify_send(notify, state);
}
