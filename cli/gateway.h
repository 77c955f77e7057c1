/* gateway.h - `weir gateway`: an nginx with weir inside, written, started and looked after.
 *
 *     flags, gateway.yaml --> struct gateway --> nginx.conf --> nginx
 *                             gateway_config.c   gateway_nginx.c  gateway_run.c
 *                                                             \-> weir serve (admin, and --store)
 *
 * The gateway itself serves nothing: nginx is the proxy, its module decides, and the table is the
 * one that every other weir on the host counts in.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_GATEWAY_H
#define WEIR_CLI_GATEWAY_H

#include "cli.h"

#include "base/arena.h"
#include "base/buf.h"

#include <pwd.h>

#define GATEWAY_ROUTES_MAX 256
#define GATEWAY_UPSTREAMS_MAX 256
#define GATEWAY_SERVERS_MAX 64 /* of one upstream */
#define GATEWAY_PATH_LEN 4096

/* What a setting is: see gateway.def. */
enum gateway_kind {
    GATEWAY_TEXT,
    GATEWAY_PATH,
    GATEWAY_PROGRAM,
    GATEWAY_ADDRESSES,
    GATEWAY_ADMIN,
    GATEWAY_SIZE,
    GATEWAY_HEADERS,
    GATEWAY_BODY,
    GATEWAY_PROXIES,
    GATEWAY_WORKERS,
    GATEWAY_SECONDS,
    GATEWAY_STORE,
    GATEWAY_SERVICE,
};

/* All settings as they were written; NULL: not said. */
struct gateway_texts {
#define GATEWAY_SETTING(id, kind_, initial, metavar, help) const char *id;
#include "gateway.def"
#undef GATEWAY_SETTING
};

struct gateway_server {
    const char *address; /* HOST:PORT or unix:PATH, as nginx wants it */
};

struct gateway_upstream {
    const char *name; /* as the file calls it, or its URL */
    bool is_https;
    const char *host; /* of the first, for TLS */
    const char *path; /* "" or "/..." */
    struct gateway_server servers[GATEWAY_SERVERS_MAX];
    uint32_t server_count;
};

struct gateway_route {
    const char *path;
    const struct gateway_upstream *upstream; /* NULL: the include says what answers */
    const char *domain, *user, *include;     /* NULL: none */
    bool is_unlimited;
};

struct gateway {
    struct gateway_texts set; /* nothing that has a default is NULL */
    struct gateway_upstream *upstreams;
    uint32_t upstream_count;
    struct gateway_route *routes;
    uint32_t route_count;
    const char *desk; /* where nginx asks what many machines share; NULL: nowhere */
    struct weir_arena arena;
};

/* ---- gateway_config.c ---- */

/* Flags before the file's words before the defaults.  What is wrong has been said then; fini in
 * each case. */
enum cli_exit gateway_load(struct gateway *out, const struct gateway_texts *flags,
                           const char *config);
void gateway_fini(struct gateway *gateway);

/* ---- gateway_check.c ---- */

/* False: why says what is wrong, and what would be right. */
bool gateway_check(enum gateway_kind kind, const char *text, char *why, size_t why_len);

/* ---- gateway_upstream.c ---- */

/* A copy in the gateway's arena, ended by NUL. */
const char *gateway_copy(struct gateway *gateway, struct weir_str text);
/* One or several URLs, with commas.  NULL: *why says what is wrong. */
const struct gateway_upstream *gateway_add_upstream(struct gateway *gateway, struct weir_str name,
                                                    struct weir_str urls, const char **why);
/* By its name; what is none is taken for URLs. */
const struct gateway_upstream *gateway_find_upstream(struct gateway *gateway, struct weir_str name,
                                                     const char **why);
/* One more way to go.  False: *why says what is wrong. */
bool gateway_add_route(struct gateway *gateway, const char *path, const char *upstream,
                       const char **why);

/* ---- gateway_program.c ---- */

/* Becomes nginx; arguments end with NULL.  Returns where it cannot, with errno. */
void gateway_exec_nginx(const char *program, char *const *arguments);
/* As nginx counts: 1022001 is 1.22.1; 0: not known. */
unsigned gateway_nginx_version(const struct gateway *gateway);

/* ---- gateway_nginx.c ---- */

/* The whole nginx.conf.  False: a value cannot be written there, *why says which. */
bool gateway_write_nginx(struct weir_buf *out, const struct gateway *gateway, const char **why);

/* Root starts nginx, which then works as somebody with fewer rights: this one.  NULL: as who we
 * are. */
const struct passwd *gateway_user(void);

/* ---- gateway_log.c ---- */

/* Makes the access log one that nginx can open.  *pipe_fd, -1 at first, may become one that nginx
 * must inherit.  False: said why not. */
bool gateway_log_begin(struct gateway *gateway, int *pipe_fd);

/* ---- gateway_run.c ---- */

/* Fills in where the module is, unless that was said.  False: it cannot be read; said. */
bool gateway_find_module(struct gateway *gateway);

/* A process beside nginx, which runs fn(ctx) and never returns from it. */
struct gateway_beside {
    void (*fn)(void *ctx);
    void *ctx;
};

/* Runs until a signal ends it, or nginx ends by itself.  reload() makes the gateway anew on SIGHUP
 * (false: the old one stays); on_ready() is called once nginx listens.  Both may be NULL. */
struct gateway_life {
    bool (*reload)(void *ctx, struct gateway *gateway);
    void (*on_ready)(void *ctx, const struct gateway *gateway);
    const struct gateway_beside *beside;
    void *ctx;
};
enum cli_exit gateway_run(struct gateway *gateway, const struct gateway_life *life);

#endif
