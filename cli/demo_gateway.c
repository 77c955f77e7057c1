/* demo_gateway.c - `weir demo`: the API of demo_api.c, `weir gateway` before it, and what to try.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "gateway.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define GATEWAY_PORT 8000 /* and the API's is the next that is free */
#define ADMIN_PORT 6070

static void say_ready(void *ctx, const struct gateway *gateway)
{
    const struct gateway_texts *set = &gateway->set;
    (void)ctx;
    printf("\n"
           "  the API      %s     three endpoints, unlimited\n"
           "  the gateway  http://%s     the same, within limits\n"
           "  metrics      http://%s/metrics\n"
           "  the rules    %s     save a change, and it holds\n"
           "\n"
           "Try, in another terminal:\n"
           "\n"
           "  curl -i 'http://%s/hello?[1-8]'        5 in ten seconds, then 429\n"
           "  curl -w '%%{time_total}\\n' 'http://%s/search?[1-8]'\n"
           "                                                   2 a second: held, not refused\n"
           "  curl -d password=wrong 'http://%s/login?[1-5]'\n"
           "                                                   3 wrong ones a minute\n"
           "\n"
           "Each request is a line below.  Ctrl-C stops all of it.\n\n",
           set->upstream, set->listen, set->admin, set->rules, set->listen, set->listen,
           set->listen);
    fflush(stdout);
}

/* Returns the port, the first from this one on that is free; 0: none is. */
static uint32_t find_address(char out[32], uint32_t port)
{
    port = demo_free_port(port);
    snprintf(out, 32, "127.0.0.1:%u", port);
    return port;
}

static void end_after(double seconds)
{
    struct itimerval timer = {
        .it_value = {.tv_sec = (time_t)seconds,
                     .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)}};
    if (seconds > 0)
        (void)setitimer(ITIMER_REAL, &timer, NULL); /* cannot fail with such a value */
}

enum cli_exit demo_gateway(const char *rules, const char *table, double seconds)
{
    char api[32], listen[32], admin[32], url[48], own_table[64];
    struct gateway_texts texts = {
        .rules = rules,
        .listen = listen,
        .admin = admin,
        .upstream = url,
        .table = table != NULL ? table : own_table,
        .table_size = "8m",
        .workers = "2",
    };
    uint32_t port = find_address(listen, GATEWAY_PORT);
    if (port == 0 || find_address(api, port + 1) == 0 || find_address(admin, ADMIN_PORT) == 0) {
        cli_complain("demo: no port is free");
        return CLI_WORLD;
    }
    snprintf(url, sizeof(url), "http://%s", api);
    snprintf(own_table, sizeof(own_table), "/dev/shm/weir-demo-%ld", (long)getpid());
    struct gateway gateway;
    enum cli_exit status = gateway_load(&gateway, &texts, NULL);
    struct gateway_beside beside = {.fn = demo_api, .ctx = api};
    struct gateway_life life = {.on_ready = say_ready, .beside = &beside};
    end_after(seconds);
    if (status == CLI_DONE)
        status = gateway_run(&gateway, &life);
    gateway_fini(&gateway);
    if (table == NULL)
        unlink(own_table);
    return status;
}
