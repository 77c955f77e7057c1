/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/url.h"

#include "base/str.h"
#include "store/redis/command.h"

#include <stdio.h>
#include <string.h>

static const struct {
    struct weir_str scheme;
    enum weir_redis_topology topology;
    bool is_tls;
} schemes[] = {
#define SCHEME(text, kind, tls)                                                                    \
    {                                                                                              \
        {.ptr = (text), .len = sizeof(text) - 1}, kind, tls                                        \
    }
    SCHEME("redis://", WEIR_REDIS_SINGLE, false),
    SCHEME("rediss://", WEIR_REDIS_SINGLE, true),
    SCHEME("redis-cluster://", WEIR_REDIS_CLUSTER, false),
    SCHEME("rediss-cluster://", WEIR_REDIS_CLUSTER, true),
    SCHEME("redis-sentinel://", WEIR_REDIS_SENTINEL, false),
    SCHEME("rediss-sentinel://", WEIR_REDIS_SENTINEL, true),
    SCHEME("redis-shards://", WEIR_REDIS_SHARDS, false),
    SCHEME("rediss-shards://", WEIR_REDIS_SHARDS, true),
#undef SCHEME
};
#define SCHEMES (sizeof(schemes) / sizeof(schemes[0]))

/* Where to say what is wrong. */
struct complaint {
    char *why;
    size_t len;
};

static int refuse(const struct complaint *to, const char *words)
{
    snprintf(to->why, to->len, "%s", words);
    return WEIR_ERR_INVALID;
}

static struct weir_str after(struct weir_str text, size_t len)
{
    return (struct weir_str){.ptr = text.ptr + len, .len = text.len - len};
}

static struct weir_str before(struct weir_str text, const char *end)
{
    return (struct weir_str){.ptr = text.ptr, .len = (size_t)(end - text.ptr)};
}

static const char *find(struct weir_str text, char c)
{
    return text.len > 0 ? memchr(text.ptr, c, text.len) : NULL;
}

static const char *find_last(struct weir_str text, char c)
{
    return text.len > 0 ? memrchr(text.ptr, c, text.len) : NULL;
}

/* A whole number up to most; false where the text is none. */
static bool read_number(struct weir_str text, uint32_t most, uint32_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(text.ptr[i] - '0');
        if (number > most)
            return false;
    }
    *out = (uint32_t)number;
    return text.len > 0;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes %-encoding; false where it does not fit, or is none. */
static bool read_secret(struct weir_str text, char out[static WEIR_REDIS_SECRET_MAX], uint32_t *len)
{
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (n == WEIR_REDIS_SECRET_MAX)
            return false;
        if (c == '%') {
            int high = text.len - i > 2 ? digit_of(text.ptr[i + 1]) : -1;
            int low = text.len - i > 2 ? digit_of(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        out[n++] = c;
    }
    *len = n;
    return true;
}

/* [user:]password */
static bool read_credentials(struct weir_redis_login *login, struct weir_str text)
{
    const char *colon = find(text, ':');
    struct weir_str password = text;
    if (colon != NULL) {
        if (!read_secret(before(text, colon), login->user, &login->user_len))
            return false;
        password = after(text, (size_t)(colon + 1 - text.ptr));
    }
    return read_secret(password, login->password, &login->password_len) && login->password_len > 0;
}

/* sentinel_user=USER&sentinel_password=PASSWORD, in any order. */
static bool read_sentinel_login(struct weir_redis_login *login, struct weir_str text)
{
    static const struct weir_str user = {.ptr = "sentinel_user=", .len = 14},
                                 password = {.ptr = "sentinel_password=", .len = 18};
    while (text.len > 0) {
        const char *end = find(text, '&');
        struct weir_str one = end != NULL ? before(text, end) : text;
        bool is_fine = false;
        if (weir_str_starts(one, user))
            is_fine = read_secret(after(one, user.len), login->user, &login->user_len);
        else if (weir_str_starts(one, password))
            is_fine = read_secret(after(one, password.len), login->password, &login->password_len);
        if (!is_fine)
            return false;
        text = after(text, end != NULL ? one.len + 1 : one.len);
    }
    return login->password_len > 0;
}

/* host, host:port, [IPv6], [IPv6]:port.  NULL, or what is wrong with it. */
static const char *read_host(struct weir_redis_host *out, struct weir_str text, uint16_t port)
{
    static const char shape[] = "a host is not HOST, HOST:PORT or [IPv6]:PORT";
    const char *close = text.len > 0 && text.ptr[0] == '[' ? find(text, ']') : NULL;
    struct weir_str rest = close ? after(text, (size_t)(close - text.ptr)) : text;
    const char *colon = find(rest, ':');
    uint32_t number = port;
    out->name = colon ? before(text, colon) : text;
    if (close) {
        if (out->name.ptr + out->name.len != close + 1)
            return shape;
        out->name = (struct weir_str){.ptr = text.ptr + 1, .len = (size_t)(close - text.ptr - 1)};
    }
    if (out->name.len == 0)
        return shape;
    if (colon &&
        (!read_number(after(text, (size_t)(colon + 1 - text.ptr)), 65535, &number) || number == 0))
        return "the port of a host is not a number from 1 to 65535";
    out->port = (uint16_t)number;
    return NULL;
}

static int read_hosts(struct weir_redis_url *url, struct weir_str text, const struct complaint *to)
{
    uint16_t port =
        url->topology == WEIR_REDIS_SENTINEL ? WEIR_REDIS_SENTINEL_PORT : WEIR_REDIS_PORT;
    for (;;) {
        const char *comma = find(text, ',');
        if (url->host_count == WEIR_REDIS_HOSTS_MAX)
            return refuse(to, "there are more than 64 hosts");
        const char *fault =
            read_host(&url->hosts[url->host_count++], comma ? before(text, comma) : text, port);
        if (fault != NULL)
            return refuse(to, fault);
        if (comma == NULL)
            break;
        text = after(text, (size_t)(comma + 1 - text.ptr));
    }
    if (url->topology == WEIR_REDIS_SINGLE && url->host_count > 1)
        return refuse(to, "redis:// has one host; several are redis-cluster://, "
                          "redis-sentinel:// or redis-shards://");
    return 0;
}

/* name@hosts; what is before the name are credentials. */
static int read_master(struct weir_redis_url *url, struct weir_str *authority,
                       const struct complaint *to)
{
    const char *at = find_last(*authority, '@');
    if (at == NULL)
        return refuse(to, "redis-sentinel:// needs the master's name: redis-sentinel://name@host");
    struct weir_str name = before(*authority, at);
    const char *first = find_last(name, '@');
    struct weir_str hosts = after(*authority, (size_t)(at + 1 - authority->ptr));
    url->master = first ? after(name, (size_t)(first + 1 - name.ptr)) : name;
    if (url->master.len == 0)
        return refuse(to, "the master's name is empty");
    if (first && !read_credentials(&url->login, before(name, first)))
        return refuse(to, "user and password are not as they should be");
    *authority = hosts;
    return 0;
}

static int read_authority(struct weir_redis_url *url, struct weir_str authority,
                          const struct complaint *to)
{
    if (url->topology == WEIR_REDIS_SENTINEL) {
        int err = read_master(url, &authority, to);
        if (err != 0)
            return err;
    } else {
        const char *at = find_last(authority, '@');
        if (at != NULL && !read_credentials(&url->login, before(authority, at)))
            return refuse(to, "user and password are not as they should be");
        if (at != NULL)
            authority = after(authority, (size_t)(at + 1 - authority.ptr));
    }
    return read_hosts(url, authority, to);
}

static bool read_unix(struct weir_redis_url *url, struct weir_str text)
{
    if (weir_str_starts(text, WEIR_STR("redis+unix://")))
        text = after(text, sizeof("redis+unix://") - 1);
    else if (weir_str_starts(text, WEIR_STR("unix:")))
        text = after(text, sizeof("unix:") - 1);
    else
        return false;
    url->host_count = 1;
    url->hosts[0] = (struct weir_redis_host){.name = text};
    return true;
}

/* A password may hold any other '?'. */
#define SENTINEL_LOGIN "?sentinel_"

const char *weir_redis_url_sentinel_login(const char *text)
{
    return strstr(text, SENTINEL_LOGIN);
}

/* What stands behind the address, and takes it off. */
static int read_query(struct weir_redis_url *url, struct weir_str *text, const struct complaint *to)
{
    const char *query = memmem(text->ptr, text->len, SENTINEL_LOGIN, sizeof(SENTINEL_LOGIN) - 1);
    if (query == NULL)
        return 0;
    if (url->topology != WEIR_REDIS_SENTINEL)
        return refuse(to, "only redis-sentinel:// has a sentinel_user and a sentinel_password");
    if (!read_sentinel_login(&url->sentinel_login, after(*text, (size_t)(query + 1 - text->ptr))))
        return refuse(to, "behind the ? there is sentinel_password=PASSWORD, and with it "
                          "sentinel_user=USER");
    *text = before(*text, query);
    return 0;
}

static int parse(struct weir_redis_url *url, struct weir_str text, const struct complaint *to)
{
    if (read_unix(url, text))
        return url->hosts[0].name.len > 0 ? 0 : refuse(to, "the socket has no path");
    size_t scheme = 0;
    while (scheme < SCHEMES && !weir_str_starts(text, schemes[scheme].scheme))
        scheme++;
    if (scheme == SCHEMES)
        return refuse(to, "a store is redis://, rediss://, redis-cluster://, redis-sentinel://, "
                          "redis-shards:// or unix:PATH");
    url->topology = schemes[scheme].topology;
    url->is_tls = schemes[scheme].is_tls;
    text = after(text, schemes[scheme].scheme.len);
    int err = read_query(url, &text, to);
    if (err != 0)
        return err;
    const char *slash = find_last(text, '/');
    if (slash != NULL && slash + 1 < text.ptr + text.len) {
        struct weir_str database = after(text, (size_t)(slash + 1 - text.ptr));
        if (!read_number(database, INT32_MAX, &url->database))
            return refuse(to, "the database behind the / is not a number");
    }
    if (url->database > 0 && url->topology == WEIR_REDIS_CLUSTER)
        return refuse(to, "a Cluster has only database 0");
    return read_authority(url, slash != NULL ? before(text, slash) : text, to);
}

int weir_redis_url_parse(struct weir_redis_url *out, struct weir_str text, char *why,
                         size_t why_len)
{
    struct weir_redis_url url = {.topology = WEIR_REDIS_SINGLE};
    int err = parse(&url, text, &(const struct complaint){.why = why, .len = why_len});
    if (err == 0)
        *out = url;
    return err;
}

/* Returns how many commands there were. */
static uint32_t put_login(struct weir_buf *out, const struct weir_redis_login *login)
{
    struct weir_str args[3] = {WEIR_STR("AUTH")};
    uint32_t count = 1;
    if (login->password_len == 0)
        return 0;
    if (login->user_len > 0)
        args[count++] = (struct weir_str){.ptr = login->user, .len = login->user_len};
    args[count++] = (struct weir_str){.ptr = login->password, .len = login->password_len};
    weir_redis_put_command(out, args, count);
    return 1;
}

static uint32_t put_ping(struct weir_buf *out)
{
    weir_redis_put_command(out, (const struct weir_str[]){WEIR_STR("PING")}, 1);
    return 1;
}

uint32_t weir_redis_put_greeting(struct weir_buf *out, const struct weir_redis_url *url)
{
    uint32_t commands = put_login(out, &url->login);
    if (url->database > 0) {
        char number[16];
        int len = snprintf(number, sizeof(number), "%u", (unsigned)url->database);
        struct weir_str args[2] = {WEIR_STR("SELECT"), {.ptr = number, .len = (size_t)len}};
        weir_redis_put_command(out, args, 2);
        commands++;
    }
    return commands + put_ping(out);
}

uint32_t weir_redis_put_sentinel_greeting(struct weir_buf *out, const struct weir_redis_url *url)
{
    uint32_t commands = put_login(out, &url->sentinel_login);
    return commands + put_ping(out);
}
