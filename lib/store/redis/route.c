/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/route.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* ---- addresses ---- */

bool weir_redis_address_make(struct weir_redis_address *out, struct weir_str host, uint32_t port)
{
    bool is_v6 = port != 0 && host.len > 0 && memchr(host.ptr, ':', host.len) != NULL;
    if (host.len == 0 || host.len > WEIR_REDIS_ADDRESS_LEN - 16 || port > UINT16_MAX)
        return false;
    if (port == 0)
        snprintf(out->text, sizeof(out->text), "unix:%.*s", WEIR_STR_ARG(host));
    else
        snprintf(out->text, sizeof(out->text), is_v6 ? "[%.*s]:%u" : "%.*s:%u", WEIR_STR_ARG(host),
                 (unsigned)port);
    return true;
}

/* The host of an address that was made above. */
static struct weir_str host_of(const struct weir_redis_address *address)
{
    const char *end = strrchr(address->text, ':');
    struct weir_str host = {.ptr = address->text, .len = (size_t)(end - address->text)};
    if (host.len >= 2 && host.ptr[0] == '[')
        host = (struct weir_str){.ptr = host.ptr + 1, .len = host.len - 2};
    return host;
}

static bool make_near(struct weir_redis_address *out, struct weir_str host, uint32_t port,
                      const struct weir_redis_address *asked)
{
    if (port == 0)
        return false;
    return weir_redis_address_make(out, host.len > 0 ? host : host_of(asked), port);
}

/* Digits alone; 0 where they are none, or too many. */
static uint32_t port_of(struct weir_str digits)
{
    uint32_t port = 0;
    for (size_t i = 0; i < digits.len; i++) {
        if (digits.ptr[i] < '0' || digits.ptr[i] > '9' || port > UINT16_MAX)
            return 0;
        port = port * 10 + (uint32_t)(digits.ptr[i] - '0');
    }
    return port;
}

bool weir_redis_address_read(struct weir_redis_address *out, struct weir_str text,
                             const struct weir_redis_address *asked)
{
    const char *colon = text.len > 0 ? memrchr(text.ptr, ':', text.len) : NULL;
    if (colon == NULL)
        return false;
    size_t host_len = (size_t)(colon - text.ptr);
    struct weir_str host = {.ptr = text.ptr, .len = host_len};
    struct weir_str digits = {.ptr = colon + 1, .len = text.len - host_len - 1};
    return make_near(out, host, port_of(digits), asked);
}

/* ---- a Cluster's map ---- */

/* A reply, node by node. */
struct cursor {
    const struct weir_redis_reader *reader;
    const struct weir_redis_node *at, *end;
    const struct weir_redis_address *asked;
};

/* How many things an array has; -1 where there is none. */
static int64_t enter_array(struct cursor *c)
{
    if (c->at >= c->end || c->at->type != WEIR_REDIS_ARRAY)
        return -1;
    return (c->at++)->number;
}

static bool read_number(struct cursor *c, uint32_t below, uint32_t *out)
{
    if (c->at >= c->end || c->at->type != WEIR_REDIS_INTEGER || c->at->number < 0 ||
        c->at->number >= below)
        return false;
    *out = (uint32_t)(c->at++)->number;
    return true;
}

/* Whatever it is, with all that is in it. */
static void skip(struct cursor *c)
{
    for (int64_t left = 1; left > 0 && c->at < c->end; left--, c->at++)
        left += c->at->type == WEIR_REDIS_ARRAY ? c->at->number : 0;
}

/* [host, port, ...]; the host may be nil, or empty. */
static bool read_server(struct cursor *c, struct weir_redis_address *out)
{
    int64_t things = enter_array(c);
    uint32_t port;
    if (things < 2 || c->at >= c->end || c->at->type == WEIR_REDIS_ARRAY)
        return false;
    struct weir_str host = weir_redis_node_str(c->reader, c->at++);
    if (weir_str_eq(host, WEIR_STR("?"))) /* it does not know its own address */
        host.len = 0;
    if (!read_number(c, UINT16_MAX + 1, &port) || !make_near(out, host, port, c->asked))
        return false;
    for (; things > 2; things--)
        skip(c);
    return true;
}

static bool number_of(struct weir_redis_map *map, const struct weir_redis_address *address,
                      uint32_t *out)
{
    for (*out = 0; *out < map->server_count; (*out)++) {
        if (strcmp(map->servers[*out].text, address->text) == 0)
            return true;
    }
    if (map->server_count == WEIR_REDIS_SERVERS_MAX)
        return false;
    map->has_slots[map->server_count] = false;
    map->servers[map->server_count++] = *address;
    return true;
}

/* [first, last, master, replica ...] */
static bool read_range(struct weir_redis_map *map, struct cursor *c)
{
    int64_t things = enter_array(c);
    uint32_t first, last, number;
    struct weir_redis_address address;
    if (things < 3 || !read_number(c, WEIR_REDIS_SLOTS, &first) ||
        !read_number(c, WEIR_REDIS_SLOTS, &last) || !read_server(c, &address) ||
        !number_of(map, &address, &number))
        return false;
    map->has_slots[number] = true;
    for (uint32_t slot = first; slot <= last; slot++) {
        map->unserved -= map->owner[slot] == WEIR_REDIS_NOBODY;
        map->owner[slot] = (uint16_t)number;
    }
    for (; things > 3; things--) {
        if (!read_server(c, &address) || !number_of(map, &address, &number))
            return false;
    }
    return true;
}

int weir_redis_map_read(struct weir_redis_map *out, const struct weir_redis_reader *reader,
                        const struct weir_redis_node *nodes, uint32_t count,
                        const struct weir_redis_address *asked)
{
    struct cursor c = {.reader = reader, .at = nodes, .end = nodes + count, .asked = asked};
    out->server_count = 0;
    out->unserved = WEIR_REDIS_SLOTS;
    for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++)
        out->owner[slot] = WEIR_REDIS_NOBODY;
    int64_t ranges = enter_array(&c);
    for (int64_t i = 0; i < ranges; i++) {
        if (!read_range(out, &c))
            return WEIR_ERR_STORE;
    }
    return ranges >= 0 && c.at == c.end ? 0 : WEIR_ERR_STORE;
}

/* ---- shards ---- */

void weir_redis_map_shards(uint16_t owner[static WEIR_REDIS_SLOTS],
                           const struct weir_redis_address *servers, uint32_t count)
{
    static const struct weir_hash_key same_everywhere = {0};
    uint64_t names[WEIR_REDIS_HOSTS_MAX];
    WEIR_ASSERT(count > 0 && count <= WEIR_REDIS_HOSTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        names[i] = weir_siphash13(&same_everywhere, servers[i].text, strlen(servers[i].text));
    for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++) {
        uint64_t best = 0;
        owner[slot] = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t drawn = weir_mix64(names[i] ^ weir_mix64(slot + 1));
            if (drawn > best) {
                best = drawn;
                owner[slot] = (uint16_t)i;
            }
        }
    }
}

/* ---- Sentinel ---- */

int weir_redis_master_read(struct weir_redis_address *out, const struct weir_redis_reader *reader,
                           const struct weir_redis_node *nodes, uint32_t count,
                           const struct weir_redis_address *asked)
{
    if (count == 1 && nodes[0].type == WEIR_REDIS_NIL)
        return WEIR_ERR_NOT_FOUND;
    if (count != 3 || nodes[0].type != WEIR_REDIS_ARRAY || nodes[1].type != WEIR_REDIS_STRING ||
        nodes[2].type != WEIR_REDIS_STRING)
        return WEIR_ERR_STORE;
    struct weir_str host = weir_redis_node_str(reader, &nodes[1]);
    uint32_t port = port_of(weir_redis_node_str(reader, &nodes[2]));
    return make_near(out, host, port, asked) ? 0 : WEIR_ERR_STORE;
}
