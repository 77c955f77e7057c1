/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/gossip.h"

#include "algo/math.h"
#include "base/err.h"
#include "base/str.h"
#include "store/redis/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RECORD_LEN 17
#define HITS_MAX ((UINT64_C(1) << 48) - 1)
#define KEEP_MS_MAX ((UINT64_C(1) << 40) - 1)

/* "NAME@INDEX"; of sites "NAME@@INDEX" */
struct window_key {
    char text[WEIR_TALLY_NAME_MAX + 24];
};

static struct weir_str key_of(struct window_key *key, const struct weir_redis_gossip *g,
                              uint64_t index)
{
    struct weir_str name = g->name;
    WEIR_ASSERT(name.len <= WEIR_TALLY_NAME_MAX);
    memcpy(key->text, name.ptr, name.len);
    int len = snprintf(key->text + name.len, sizeof(key->text) - name.len, "%s@%" PRIu64,
                       g->is_of_site ? "@" : "", index);
    return (struct weir_str){.ptr = key->text, .len = name.len + (size_t)len};
}

void weir_redis_put_gossip(struct weir_buf *out, enum weir_redis_how how,
                           const struct weir_redis_gossip *g)
{
    struct window_key now, before;
    uint8_t record[RECORD_LEN];
    char id[17];
    struct weir_str args[8] = {WEIR_STR("FCALL"), weir_str_of(weir_redis_function)};
    if (how == WEIR_REDIS_EVALSHA) {
        args[0] = WEIR_STR("EVALSHA");
        args[1] = weir_str_of(weir_redis_script_sha1);
    }
    bool looks_back = g->looks_back && g->index > 0;
    uint32_t count = 2;
    args[count++] = looks_back ? WEIR_STR("2") : WEIR_STR("1");
    args[count++] = key_of(&now, g, g->index);
    if (looks_back)
        args[count++] = key_of(&before, g, g->index - 1);
    args[count++] = WEIR_STR("G");
    snprintf(id, sizeof(id), "%016" PRIx64, g->id);
    args[count++] = (struct weir_str){.ptr = id, .len = 16};
    uint8_t *end = weir_redis_put(record, weir_min(g->hits, HITS_MAX), 6);
    end = weir_redis_put(end, weir_min(g->most, HITS_MAX), 6);
    (void)weir_redis_put(end, weir_min(g->keep_ms, KEEP_MS_MAX), 5);
    args[count++] = (struct weir_str){.ptr = (const char *)record, .len = RECORD_LEN};
    weir_redis_put_command(out, args, count);
}

/* ---- the answer ---- */

/* All of it is the number. */
static bool read_number(struct weir_str text, unsigned base, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *digits = "0123456789abcdef";
        const char *at = text.ptr[i] != '\0' ? strchr(digits, text.ptr[i]) : NULL;
        if (at == NULL || at - digits >= (int)base || number > (UINT64_MAX - 15) / base)
            return false;
        number = number * base + (uint64_t)(at - digits);
    }
    *out = number;
    return text.len > 0;
}

/* Node and hits; others' fields are none of ours.  Nodes beyond the maximum count as the last. */
static bool add_field(struct weir_redis_heard *heard, struct weir_str name, struct weir_str hits)
{
    struct weir_peer peer;
    if (name.len != 16 || !read_number(name, 16, &peer.id))
        return weir_str_eq(name, WEIR_STR("over"));
    if (!read_number(hits, 10, &peer.hits) || peer.hits > HITS_MAX)
        return false;
    if (heard->count < WEIR_REDIS_PEERS_MAX)
        heard->list[heard->count++] = peer;
    else
        heard->list[WEIR_REDIS_PEERS_MAX - 1].hits += peer.hits;
    return true;
}

/* A hash, flat.  Returns the number of nodes that it takes; 0: it is none. */
static uint32_t read_hash(const struct weir_redis_reader *reader,
                          const struct weir_redis_node *nodes, uint32_t node_count,
                          struct weir_redis_heard *heard)
{
    heard->count = 0;
    if (node_count == 0 || nodes[0].type != WEIR_REDIS_ARRAY || nodes[0].number < 0 ||
        nodes[0].number >= node_count || nodes[0].number % 2 != 0)
        return 0;
    uint32_t fields = (uint32_t)nodes[0].number;
    for (uint32_t i = 1; i < fields; i += 2) {
        if (!add_field(heard, weir_redis_node_str(reader, &nodes[i]),
                       weir_redis_node_str(reader, &nodes[i + 1])))
            return 0;
    }
    return 1 + fields;
}

int weir_redis_gossip_read(const struct weir_redis_reader *reader,
                           const struct weir_redis_node *nodes, uint32_t node_count,
                           struct weir_redis_gossip_answer *out)
{
    if (node_count < 2 || nodes[0].type != WEIR_REDIS_ARRAY || nodes[0].number != 3 ||
        nodes[1].type != WEIR_REDIS_INTEGER || nodes[1].number < 0)
        return WEIR_ERR_STORE;
    out->over = (uint64_t)nodes[1].number;
    uint32_t at = 2, taken = read_hash(reader, nodes + at, node_count - at, &out->now);
    if (taken == 0)
        return WEIR_ERR_STORE;
    at += taken;
    return read_hash(reader, nodes + at, node_count - at, &out->before) > 0 ? 0 : WEIR_ERR_STORE;
}
