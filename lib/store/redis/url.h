/* url.h - where a store is: the text of --store, taken apart.
 *
 *     redis://[[user:]password@]host[:port][/database]      rediss:// the same over TLS
 *     unix:/path/of/socket                                  redis+unix:///path too
 *     redis-cluster://[[user:]password@]host[:port],host[:port]...
 *     redis-sentinel://[[user:]password@]name@host[:port],host[:port]...[/database]
 *                      [?sentinel_user=USER&sentinel_password=PASSWORD]
 *     redis-shards://[[user:]password@]host[:port],host[:port]...[/database]
 *
 * Users and passwords may be %-encoded; those behind the ? are the Sentinels' own.  An IPv6 address
 * stands in brackets.
 *
 * Purity: no I/O, no allocation.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_URL_H
#define WEIR_STORE_REDIS_URL_H

#include "base/buf.h"
#include "base/maxima.h"

#include <stdint.h>
#include <weir/weir.h>

#define WEIR_REDIS_PORT 6379
#define WEIR_REDIS_SENTINEL_PORT 26379

enum weir_redis_topology {
    WEIR_REDIS_SINGLE,
    WEIR_REDIS_CLUSTER,
    WEIR_REDIS_SENTINEL,
    WEIR_REDIS_SHARDS,
};

struct weir_redis_host {
    struct weir_str name; /* lies in the URL; of a unix socket its path */
    uint16_t port;        /* 0: a unix socket */
};

struct weir_redis_login {
    uint32_t user_len, password_len; /* 0: none */
    char user[WEIR_REDIS_SECRET_MAX];
    char password[WEIR_REDIS_SECRET_MAX];
};

struct weir_redis_url {
    enum weir_redis_topology topology;
    bool is_tls;
    uint32_t database;
    struct weir_redis_login login;
    struct weir_redis_login sentinel_login;
    struct weir_str master; /* Sentinel's name of it */
    uint32_t host_count;
    struct weir_redis_host hosts[WEIR_REDIS_HOSTS_MAX];
};

/* 0, or WEIR_ERR_INVALID; why[] then says what is wrong, without user or password. */
WEIR_MUST_CHECK int weir_redis_url_parse(struct weir_redis_url *out, struct weir_str text,
                                         char *why, size_t why_len);

/* What a new connection says first: AUTH and SELECT, as far as they are needed, then PING, which a
 * server answers only to whom it knows.  Returns how many commands there were; each is answered. */
uint32_t weir_redis_put_greeting(struct weir_buf *out, const struct weir_redis_url *url);
/* The same to a Sentinel. */
uint32_t weir_redis_put_sentinel_greeting(struct weir_buf *out, const struct weir_redis_url *url);

/* Where the Sentinels' own user and password begin in such a text, with the '?'; NULL: there are
 * none. */
const char *weir_redis_url_sentinel_login(const char *text);

#endif
