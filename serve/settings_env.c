/* settings_env.c - the environment's word: our variables, and envoyproxy/ratelimit's.
 *
 * Most of theirs are another name for one of our settings, and stand in config.def.  Here are those
 * that mean something only together (GRPC_HOST and GRPC_PORT), and those that we must not silently
 * ignore because whoever set them relies on them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "serve/settings.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define NAME_LEN 64
#define TEXT_LEN 1024

/* Set, but without a meaning here; said once, at start. */
static const char *const without_meaning[][2] = {
    {"REDIS_PERSECOND_URL", "one store has all counts: --store"},
    {"MEMCACHE_HOST_PORT", "counts are in a shared-memory table, or in Redis: --store"},
    {"CONFIG_GRPC_XDS_SERVER_URL", "rules come from files"},
    {"TRACING_ENABLED", "there is no tracing"},
};

/* NULL where the variable is not set, or empty. */
static const char *get(char *const *environment, const char *name)
{
    size_t len = strlen(name);
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return (*environment)[len + 1] != '\0' ? *environment + len + 1 : NULL;
    return NULL;
}

static bool is_true(const char *text)
{
    return text != NULL &&
           (strcmp(text, "1") == 0 || strcasecmp(text, "t") == 0 || strcasecmp(text, "true") == 0);
}

static void join_address(char text[TEXT_LEN], const char *host, const char *port)
{
    bool is_v6 = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(text, TEXT_LEN, is_v6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* HOST and PORT, either of which may be missing, to an address. */
static void set_address(struct weir_settings *settings, char *const *environment,
                        enum weir_setting_number number, const char *host_name,
                        const char *port_name)
{
    const char *host = get(environment, host_name), *port = get(environment, port_name);
    const char *initial = weir_setting_at(number)->initial;
    const char *colon = strrchr(initial, ':');
    char text[TEXT_LEN], from[TEXT_LEN], default_host[NAME_LEN];
    if (host == NULL && port == NULL)
        return;
    snprintf(default_host, sizeof(default_host), "%.*s", (int)(colon - initial), initial);
    join_address(text, host != NULL ? host : default_host, port != NULL ? port : colon + 1);
    snprintf(from, sizeof(from), "%s and %s in the environment", host_name, port_name);
    weir_settings_set(settings, number, text, from);
}

static void set_grpc(struct weir_settings *settings, char *const *environment)
{
    char text[TEXT_LEN];
    const char *path = get(environment, "GRPC_UDS");
    set_address(settings, environment, WEIR_SETTING_NUMBER_grpc, "GRPC_HOST", "GRPC_PORT");
    if (path != NULL) {
        snprintf(text, sizeof(text), "unix:%s", path);
        weir_settings_set(settings, WEIR_SETTING_NUMBER_grpc, text, "GRPC_UDS in the environment");
    }
    /* There TLS is gRPC's alone; with the certificate named, but not switched on, it is off. */
    if (get(environment, "GRPC_SERVER_USE_TLS") != NULL)
        weir_settings_set(settings, WEIR_SETTING_NUMBER_tls,
                          is_true(get(environment, "GRPC_SERVER_USE_TLS")) ? "grpc" : "off",
                          "GRPC_SERVER_USE_TLS in the environment");
}

static void set_rules(struct weir_settings *settings, char *const *environment)
{
    const char *root = get(environment, "RUNTIME_ROOT");
    const char *sub = get(environment, "RUNTIME_SUBDIRECTORY");
    const char *app = get(environment, "RUNTIME_APPDIRECTORY");
    char text[TEXT_LEN];
    if (root == NULL && sub == NULL)
        return;
    snprintf(text, sizeof(text), "%s%s%s/%s", root != NULL ? root : "/srv/runtime_data/current",
             sub != NULL ? "/" : "", sub != NULL ? sub : "", app != NULL ? app : "config");
    weir_settings_set(settings, WEIR_SETTING_NUMBER_rules, text,
                      "RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY in the "
                      "environment");
}

static void set_statsd(struct weir_settings *settings, char *const *environment)
{
    const char *host = get(environment, "STATSD_HOST"), *port = get(environment, "STATSD_PORT");
    char text[TEXT_LEN];
    /* Theirs is on unless told; ours is sent where somebody has said where to. */
    if (!is_true(get(environment, "USE_STATSD")) || is_true(get(environment, "DISABLE_STATS")))
        return;
    join_address(text, host != NULL ? host : "localhost", port != NULL ? port : "8125");
    weir_settings_set(settings, WEIR_SETTING_NUMBER_statsd, text,
                      "USE_STATSD, STATSD_HOST and STATSD_PORT in the environment");
    weir_settings_set(settings, WEIR_SETTING_NUMBER_statsd_protocol, "tcp",
                      "USE_STATSD in the environment"); /* STATSD_PROTOCOL comes after us */
}

/* Adds what may stand before the @ of a URL, or behind its ?: all but what needs no encoding is
 * encoded. */
static void add_encoded(char text[TEXT_LEN], const char *secret)
{
    size_t len = strlen(text);
    for (; *secret != '\0' && len + 4 < TEXT_LEN; secret++) {
        bool is_plain = isalnum((unsigned char)*secret) || strchr("-._~:", *secret) != NULL;
        len += (size_t)snprintf(text + len, TEXT_LEN - len, is_plain ? "%c" : "%%%02X",
                                (unsigned char)*secret);
    }
}

static void add_plain(char text[TEXT_LEN], const char *more)
{
    size_t len = strlen(text);
    snprintf(text + len, TEXT_LEN - len, "%s", more);
}

/* REDIS_SENTINEL_AUTH: [user:]password */
static void add_sentinel_login(char text[TEXT_LEN], const char *auth)
{
    const char *colon = strchr(auth, ':');
    add_plain(text, "?sentinel_password=");
    add_encoded(text, colon != NULL ? colon + 1 : auth);
    if (colon == NULL)
        return;
    char user[TEXT_LEN];
    snprintf(user, sizeof(user), "%.*s", (int)(colon - auth), auth);
    add_plain(text, "&sentinel_user=");
    add_encoded(text, user);
}

static bool is_word(const char *text, const char *word)
{
    return text != NULL && strcasecmp(text, word) == 0;
}

/* A URL of addresses, whose meaning others say; with a sentinel they begin with the master's
 * name. */
static void make_url(char text[TEXT_LEN], const char *addresses, char *const *environment)
{
    const char *type = get(environment, "REDIS_TYPE"), *auth = get(environment, "REDIS_AUTH");
    const char *sentinel_auth = get(environment, "REDIS_SENTINEL_AUTH");
    const char *comma = strchr(addresses, ',');
    bool is_sentinel = is_word(type, "sentinel");
    snprintf(text, TEXT_LEN, "redis%s%s://", is_true(get(environment, "REDIS_TLS")) ? "s" : "",
             is_word(type, "cluster") ? "-cluster"
             : is_sentinel            ? "-sentinel"
                                      : "");
    if (auth != NULL) {
        add_encoded(text, auth);
        add_plain(text, "@");
    }
    size_t len = strlen(text);
    if (is_sentinel && comma != NULL)
        snprintf(text + len, TEXT_LEN - len, "%.*s@%s", (int)(comma - addresses), addresses,
                 comma + 1);
    else
        add_plain(text, addresses);
    if (is_sentinel && sentinel_auth != NULL)
        add_sentinel_login(text, sentinel_auth);
}

static void set_store(struct weir_settings *settings, char *const *environment)
{
    const char *url = get(environment, "REDIS_URL");
    char text[TEXT_LEN];
    if (url == NULL)
        return;
    if (strstr(url, "://") != NULL)
        snprintf(text, sizeof(text), "%s", url);
    else if (url[0] == '/' || is_word(get(environment, "REDIS_SOCKET_TYPE"), "unix"))
        snprintf(text, sizeof(text), "unix:%s", url);
    else
        make_url(text, url, environment);
    weir_settings_set(settings, WEIR_SETTING_NUMBER_store, text,
                      "REDIS_URL, REDIS_TYPE, REDIS_SOCKET_TYPE, REDIS_AUTH, REDIS_SENTINEL_AUTH "
                      "and REDIS_TLS in the environment");
}

static void set_named(struct weir_settings *settings, char *const *environment, size_t number,
                      const char *name)
{
    char from[NAME_LEN + 32];
    const char *text = name[0] != '\0' ? get(environment, name) : NULL;
    if (text == NULL)
        return;
    snprintf(from, sizeof(from), "%s in the environment", name);
    weir_settings_set(settings, (enum weir_setting_number)number, text, from);
}

void weir_settings_from_env(struct weir_settings *settings, char *const *environment,
                            weir_log_fn say, void *say_ctx)
{
    set_grpc(settings, environment);
    set_address(settings, environment, WEIR_SETTING_NUMBER_http, "HOST", "PORT");
    set_address(settings, environment, WEIR_SETTING_NUMBER_admin, "DEBUG_HOST", "DEBUG_PORT");
    set_rules(settings, environment);
    set_statsd(settings, environment);
    set_store(settings, environment);
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++)
        set_named(settings, environment, i, weir_setting_at(i)->also);
    /* Ours last: who sets WEIR_GRPC means us. */
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++) {
        char name[NAME_LEN];
        snprintf(name, sizeof(name), "WEIR_%s", weir_setting_at(i)->id);
        for (char *c = name; *c != '\0'; c++)
            *c = (char)toupper((unsigned char)*c);
        set_named(settings, environment, i, name);
    }
    for (size_t i = 0; i < sizeof(without_meaning) / sizeof(without_meaning[0]); i++) {
        char line[TEXT_LEN];
        if (get(environment, without_meaning[i][0]) == NULL)
            continue;
        snprintf(line, sizeof(line), "%s in the environment is not used: %s", without_meaning[i][0],
                 without_meaning[i][1]);
        say(say_ctx, WEIR_LEVEL_WARNING, line);
    }
}
