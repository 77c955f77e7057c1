/* gateway_config.c - flags and gateway.yaml to a struct gateway.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include "base/str.h"
#include "net/net.h"
#include "rules/yaml_file.h"
#include "serve/settings.h"

#include <stdlib.h>
#include <unistd.h>

#define WHY_LEN 512

static const struct setting {
    const char *name;
    enum gateway_kind kind;
    const char *initial;
    size_t offset;
} table[] = {
#define GATEWAY_SETTING(id, kind_, initial_, metavar, help)                                        \
    {#id, GATEWAY_##kind_, initial_, offsetof(struct gateway_texts, id)},
#include "gateway.def"
#undef GATEWAY_SETTING
};

static const char **field_of(struct gateway_texts *texts, const struct setting *setting)
{
    return (const char **)(void *)((char *)texts + setting->offset);
}

/* A path that nginx, which runs elsewhere, understands.  folder: where it was written. */
static const char *absolute(struct gateway *gateway, enum gateway_kind kind, struct weir_str text,
                            const char *folder)
{
    bool is_path = kind == GATEWAY_PATH || kind == GATEWAY_PROGRAM;
    bool is_word = weir_str_eq(text, WEIR_STR("off")) ||
                   (kind == GATEWAY_PROGRAM && memchr(text.ptr, '/', text.len) == NULL);
    if (!is_path || text.len == 0 || text.ptr[0] == '/' || is_word)
        return gateway_copy(gateway, text);
    size_t room = strlen(folder) + 1 + text.len + 1;
    char *path = weir_arena_array(&gateway->arena, room, 1, 1);
    if (path == NULL)
        return "";
    snprintf(path, room, "%s/%.*s", folder, WEIR_STR_ARG(text));
    return path;
}

/* ---- the file ---- */

struct reader {
    struct gateway *gateway;
    const struct weir_yaml_file *file;
    const char *folder;
};

static void wrong(const struct reader *r, const struct weir_yaml *at, const char *why)
{
    weir_yaml_file_wrong(r->file, at, why);
}

/* False: it is no scalar; said. */
static bool scalar(const struct reader *r, const struct weir_yaml *node, struct weir_str *out)
{
    node = weir_yaml_follow(node);
    if (node->kind != WEIR_YAML_SCALAR)
        wrong(r, node, "this should be one value");
    else
        *out = node->text;
    return node->kind == WEIR_YAML_SCALAR;
}

/* A value, or a list of them, which becomes one with commas between. */
static const char *joined(const struct reader *r, const struct weir_yaml *node)
{
    char text[GATEWAY_PATH_LEN] = "";
    struct weir_str one = {"", 0};
    node = weir_yaml_follow(node);
    if (node->kind != WEIR_YAML_LIST)
        return scalar(r, node, &one) ? gateway_copy(r->gateway, one) : "";
    for (const struct weir_yaml *item = node->first; item != NULL; item = item->next) {
        size_t len = strlen(text);
        if (!scalar(r, item, &one))
            break;
        if (len + one.len + 2 > sizeof(text)) {
            wrong(r, item, "the list is too long");
            break;
        }
        snprintf(text + len, sizeof(text) - len, "%s%.*s", len > 0 ? "," : "", WEIR_STR_ARG(one));
    }
    return gateway_copy(r->gateway, weir_str_of(text));
}

static void read_upstreams(const struct reader *r, const struct weir_yaml *map)
{
    map = weir_yaml_follow(map);
    if (map->kind != WEIR_YAML_MAP) {
        wrong(r, map, "upstreams are a map, NAME: URL or NAME: [URL, URL]");
        return;
    }
    weir_yaml_file_once(r->file, map);
    for (const struct weir_yaml *key = map->first; key != NULL; key = key->next->next) {
        struct weir_str name = {"", 0};
        const char *why = NULL;
        if (!scalar(r, key, &name))
            continue;
        const char *urls = joined(r, key->next);
        if (gateway_add_upstream(r->gateway, name, weir_str_of(urls), &why) == NULL)
            wrong(r, key->next, why);
    }
}

static bool is_in(const struct weir_yaml *key, const char *name)
{
    return weir_str_eq(key->text, weir_str_of(name));
}

static void read_route_field(const struct reader *r, struct gateway_route *route,
                             const struct weir_yaml *key, const struct weir_yaml *value)
{
    static const char *const names[] = {"path",  "upstream", "domain", "user",
                                        "limit", "include",  NULL};
    struct weir_str text = {"", 0};
    const char *why = NULL;
    bool is_limited = true;
    if (!scalar(r, value, &text))
        return;
    if (is_in(key, "path"))
        route->path = gateway_copy(r->gateway, text);
    else if (is_in(key, "domain"))
        route->domain = gateway_copy(r->gateway, text);
    else if (is_in(key, "user"))
        route->user = gateway_copy(r->gateway, text);
    else if (is_in(key, "include"))
        route->include = absolute(r->gateway, GATEWAY_PATH, text, r->folder);
    else if (is_in(key, "upstream"))
        route->upstream = gateway_find_upstream(r->gateway, text, &why);
    else if (is_in(key, "limit") && !weir_scalar_bool(text, &is_limited))
        why = "limit is on or off";
    else if (!is_in(key, "limit"))
        weir_yaml_file_unknown(r->file, key, names);
    route->is_unlimited = route->is_unlimited || !is_limited;
    if (why != NULL)
        wrong(r, value, why);
}

static bool ends_in_slash(const char *path)
{
    size_t len = strlen(path);
    return len > 0 && path[len - 1] == '/';
}

static void read_routes(const struct reader *r, const struct weir_yaml *list)
{
    list = weir_yaml_follow(list);
    if (list->kind != WEIR_YAML_LIST) {
        wrong(r, list, "routes are a list, each with a path and an upstream");
        return;
    }
    for (const struct weir_yaml *item = list->first; item != NULL; item = item->next) {
        const struct weir_yaml *map = weir_yaml_follow(item);
        struct gateway_route *route = &r->gateway->routes[r->gateway->route_count];
        if (map->kind != WEIR_YAML_MAP) {
            wrong(r, map, "a route is a map: {path: /, upstream: ...}");
            continue;
        }
        if (r->gateway->route_count == GATEWAY_ROUTES_MAX) {
            wrong(r, map, "there are more than 256 routes");
            return;
        }
        r->gateway->route_count++;
        weir_yaml_file_once(r->file, map);
        for (const struct weir_yaml *key = map->first; key != NULL; key = key->next->next)
            read_route_field(r, route, weir_yaml_follow(key), key->next);
        if (route->path == NULL || route->path[0] != '/')
            wrong(r, map, "a route has a path, which begins with /");
        if (route->upstream == NULL && route->include == NULL)
            wrong(r, map, "a route has an upstream, or an include that says what answers");
        /* nginx would make /deep/../x of /c../x. */
        if (route->path != NULL && route->upstream != NULL &&
            ends_in_slash(route->upstream->path) && !ends_in_slash(route->path))
            wrong(r, map, "a route whose upstream's path ends in / ends in / too");
    }
}

static void read_setting(const struct reader *r, const struct weir_yaml *key,
                         const struct weir_yaml *value)
{
    const char *names[CLI_COUNT_OF(table) + 3] = {"upstreams", "routes"};
    for (size_t i = 0; i < CLI_COUNT_OF(table); i++) {
        names[i + 2] = table[i].name;
        if (!is_in(key, table[i].name))
            continue;
        const char *text = joined(r, value);
        char why[WHY_LEN];
        if (!gateway_check(table[i].kind, text, why, sizeof(why)))
            wrong(r, value, why);
        *field_of(&r->gateway->set, &table[i]) =
            absolute(r->gateway, table[i].kind, weir_str_of(text), r->folder);
        return;
    }
    weir_yaml_file_unknown(r->file, key, names);
}

static void read_root(void *ctx, const struct weir_yaml_file *file, const struct weir_yaml *root)
{
    static const char upstreams[] = "upstreams", routes[] = "routes";
    struct reader *r = ctx;
    r->file = file;
    /* Names before those who use them, whatever the order of the file. */
    for (const struct weir_yaml *key = root->first; key != NULL; key = key->next->next)
        if (is_in(weir_yaml_follow(key), upstreams))
            read_upstreams(r, key->next);
    for (const struct weir_yaml *key = root->first; key != NULL; key = key->next->next) {
        const struct weir_yaml *name = weir_yaml_follow(key);
        if (name->kind != WEIR_YAML_SCALAR)
            wrong(r, name, "a setting has a name");
        else if (is_in(name, routes))
            read_routes(r, key->next);
        else if (!is_in(name, upstreams))
            read_setting(r, name, key->next);
    }
}

static void say(void *ctx, enum weir_level level, const char *line)
{
    (void)ctx;
    (void)level;
    cli_complain("%s", line);
}

static const char *folder_of(struct gateway *gateway, const char *path)
{
    char here[GATEWAY_PATH_LEN];
    const char *slash = strrchr(path, '/');
    struct weir_str folder = {path, slash != NULL ? (size_t)(slash - path) : 0};
    if (getcwd(here, sizeof(here)) == NULL)
        here[0] = '\0';
    if (slash == NULL)
        return gateway_copy(gateway, weir_str_of(here));
    return slash == path
               ? ""
               : absolute(gateway, GATEWAY_PATH, folder, gateway_copy(gateway, weir_str_of(here)));
}

static enum cli_exit read_file(struct gateway *gateway, const char *path)
{
    struct reader r = {.gateway = gateway, .folder = folder_of(gateway, path)};
    int err = weir_yaml_file_read(path, &gateway->arena, read_root, &r, say, NULL);
    return err == 0 ? CLI_DONE : err == WEIR_ERR_INVALID ? CLI_USAGE : CLI_WORLD;
}

/* ---- all together ---- */

/* Flags before the file's words before the defaults.  False: a flag makes no sense; said. */
static bool take_flags(struct gateway *gateway, struct gateway_texts flags)
{
    const char *here = folder_of(gateway, "");
    bool ok = true;
    for (size_t i = 0; i < CLI_COUNT_OF(table); i++) {
        const char **field = field_of(&gateway->set, &table[i]),
                   *flag = *field_of(&flags, &table[i]);
        char why[WHY_LEN];
        if (flag == NULL) {
            *field = *field != NULL ? *field : table[i].initial;
            continue;
        }
        *field = absolute(gateway, table[i].kind, weir_str_of(flag), here);
        if (!gateway_check(table[i].kind, flag, why, sizeof(why))) {
            struct cli_name name;
            cli_complain("gateway: --%s: %s",
                         cli_name_of(&name, &(struct cli_option){.name = table[i].name}), why);
            ok = false;
        }
    }
    return ok;
}

/* What flags and file together still lack. */
static const char *missing(struct gateway *gateway)
{
    const struct gateway_texts *set = &gateway->set;
    const char *why = NULL;
    if (set->rules == NULL)
        return "--rules PATH is missing";
    if (set->upstream != NULL && !gateway_add_route(gateway, "/", set->upstream, &why))
        return why;
    if (gateway->route_count == 0)
        return "--upstream URL is missing: where shall requests go?";
    if ((set->tls_cert == NULL) != (set->tls_key == NULL))
        return "--tls-cert and --tls-key go together";
    if (set->store != NULL && set->service != NULL)
        return "--store runs a weir serve, and --service is one that runs: only one of them";
    for (uint32_t i = 0; i < gateway->route_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(gateway->routes[i].path, gateway->routes[j].path) == 0)
                return "two routes have the same path (--upstream is the route /)";
    return NULL;
}

enum cli_exit gateway_load(struct gateway *out, const struct gateway_texts *flags,
                           const char *config)
{
    memset(out, 0, sizeof(*out));
    weir_arena_init(&out->arena);
    out->upstreams = WEIR_ARENA_ARRAY(&out->arena, GATEWAY_UPSTREAMS_MAX, struct gateway_upstream);
    out->routes = WEIR_ARENA_ARRAY(&out->arena, GATEWAY_ROUTES_MAX, struct gateway_route);
    enum cli_exit status = out->routes == NULL || out->upstreams == NULL ? CLI_WORLD : CLI_DONE;
    if (status == CLI_DONE && config != NULL)
        status = read_file(out, config);
    if (status != CLI_DONE)
        return status;
    if (!take_flags(out, *flags))
        return CLI_USAGE;
    if (out->set.table == NULL)
        out->set.table = weir_settings_default_table(&out->arena);
    out->desk = out->set.store != NULL ? WEIR_ADDRESS_UNIX "/run/weir/weir.sock" : out->set.service;
    const char *why = missing(out);
    if (why != NULL)
        cli_complain("gateway: %s", why);
    return why != NULL ? CLI_USAGE : out->arena.has_failed ? CLI_WORLD : CLI_DONE;
}

void gateway_fini(struct gateway *gateway)
{
    weir_arena_fini(&gateway->arena);
}
