/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/rules.h"

#include "base/str.h"
#include "store/redis/sha256.h"

#define PARTS 8 /* of an entry, as the script sends it */

extern const char weir_redis_rules_script[]; /* lua/rules_db.lua */

/* ---- commands ---- */

static void put_key(struct weir_buf *out, struct weir_str prefix, struct weir_str what,
                    struct weir_str domain)
{
    const struct weir_str parts[] = {prefix, WEIR_STR("{rules}"), what, domain};
    weir_redis_put_parts(out, parts, 4);
}

static void begin_script(struct weir_buf *out, size_t keys, size_t args)
{
    weir_redis_put_begin(out, 3 + keys + args);
    weir_redis_put_text(out, WEIR_STR("EVAL"));
    weir_redis_put_text(out, weir_str_of(weir_redis_rules_script));
    weir_redis_put_number(out, keys);
}

#define HEAD WEIR_STR(""), WEIR_STR("")
#define DOMAINS WEIR_STR(":domains"), WEIR_STR("")
#define DOMAIN(name) WEIR_STR(":domain:"), (name)
#define HISTORY(name) WEIR_STR(":history:"), (name)

void weir_redis_rules_put_head(struct weir_buf *out, struct weir_str prefix)
{
    weir_redis_put_begin(out, 4);
    weir_redis_put_text(out, WEIR_STR("HMGET"));
    put_key(out, prefix, HEAD);
    weir_redis_put_text(out, WEIR_STR("version"));
    weir_redis_put_text(out, WEIR_STR("id"));
}

void weir_redis_rules_put_domains(struct weir_buf *out, struct weir_str prefix)
{
    weir_redis_put_begin(out, 2);
    weir_redis_put_text(out, WEIR_STR("HGETALL"));
    put_key(out, prefix, DOMAINS);
}

void weir_redis_rules_put_get(struct weir_buf *out, struct weir_str prefix, struct weir_str domain,
                              uint64_t version)
{
    if (version == 0) {
        begin_script(out, 1, 1);
        put_key(out, prefix, DOMAIN(domain));
        weir_redis_put_text(out, WEIR_STR("get"));
    } else {
        begin_script(out, 1, 2);
        put_key(out, prefix, HISTORY(domain));
        weir_redis_put_text(out, WEIR_STR("old"));
        weir_redis_put_number(out, version);
    }
}

void weir_redis_rules_put_history(struct weir_buf *out, struct weir_str prefix,
                                  struct weir_str domain)
{
    begin_script(out, 1, 1);
    put_key(out, prefix, HISTORY(domain));
    weir_redis_put_text(out, WEIR_STR("history"));
}

static void sha_of(struct weir_str text, char out[static WEIR_RULES_DB_SHA_LEN])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t sha[WEIR_SHA256_LEN];
    weir_sha256(text.ptr, text.len, sha);
    for (size_t i = 0; i < WEIR_SHA256_LEN; i++) {
        out[2 * i] = digits[sha[i] >> 4];
        out[2 * i + 1] = digits[sha[i] & 15];
    }
}

static void put_one_change(struct weir_buf *out, const struct weir_redis_rules_change *change)
{
    char sha[WEIR_RULES_DB_SHA_LEN];
    struct weir_str text = change->is_delete ? WEIR_STR("") : change->text;
    sha_of(text, sha);
    weir_redis_put_text(out, change->domain);
    if (change->has_replaces)
        weir_redis_put_number(out, change->replaces);
    else
        weir_redis_put_text(out, WEIR_STR(""));
    weir_redis_put_text(out, change->is_delete ? WEIR_STR("1") : WEIR_STR("0"));
    weir_redis_put_text(out, (struct weir_str){.ptr = sha, .len = sizeof(sha)});
    weir_redis_put_text(out, text);
}

void weir_redis_rules_put_change(struct weir_buf *out, struct weir_str prefix,
                                 const struct weir_redis_rules_head *last,
                                 const struct weir_redis_rules_change *changes, uint32_t count,
                                 struct weir_str who, struct weir_str why)
{
    begin_script(out, 2 + 2 * (size_t)count, 5 + 5 * (size_t)count);
    put_key(out, prefix, HEAD);
    put_key(out, prefix, DOMAINS);
    for (uint32_t i = 0; i < count; i++) {
        put_key(out, prefix, DOMAIN(changes[i].domain));
        put_key(out, prefix, HISTORY(changes[i].domain));
    }
    weir_redis_put_text(out, WEIR_STR("change"));
    weir_redis_put_number(out, last->version);
    weir_redis_put_text(out, weir_str_of(last->id));
    weir_redis_put_text(out, who);
    weir_redis_put_text(out, why);
    for (uint32_t i = 0; i < count; i++)
        put_one_change(out, &changes[i]);
}

/* ---- replies ---- */

/* A node that is a string of digits; false where it is none. */
static bool number_of(const struct weir_redis_reader *reader, const struct weir_redis_node *node,
                      uint64_t *out)
{
    struct weir_str text = weir_redis_node_str(reader, node);
    uint64_t number = 0;
    if (text.len == 0 || text.len > 18) /* any such number fits */
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    *out = number;
    return true;
}

int weir_redis_rules_read_head(const struct weir_redis_reader *reader,
                               const struct weir_redis_node *nodes, uint32_t count,
                               struct weir_redis_rules_head *head)
{
    struct weir_redis_rules_head read = {.version = 0};
    if (count != 3 || nodes[0].type != WEIR_REDIS_ARRAY)
        return WEIR_ERR_STORE;
    if (nodes[1].type != WEIR_REDIS_NIL) {
        struct weir_str id = weir_redis_node_str(reader, &nodes[2]);
        if (!number_of(reader, &nodes[1], &read.version) || id.len > WEIR_RULES_DB_ID_LEN)
            return WEIR_ERR_STORE;
        memcpy(read.id, id.ptr != NULL ? id.ptr : "", id.len);
    }
    *head = read;
    return 0;
}

int weir_redis_rules_next_entry(const struct weir_redis_reader *reader,
                                const struct weir_redis_node *nodes, uint32_t count, uint32_t *at,
                                struct weir_redis_rules_entry *entry)
{
    const struct weir_redis_node *first = &nodes[*at];
    if (*at == count)
        return 0;
    if (first->type != WEIR_REDIS_ARRAY || first->number != PARTS || count - *at <= PARTS)
        return WEIR_ERR_STORE;
    for (uint32_t i = 1; i <= PARTS; i++)
        if (first[i].type != WEIR_REDIS_STRING)
            return WEIR_ERR_STORE;
    struct weir_redis_rules_entry read = {
        .who = weir_redis_node_str(reader, &first[3]),
        .why = weir_redis_node_str(reader, &first[4]),
        .sha256 = weir_redis_node_str(reader, &first[5]),
        .is_deleted = weir_str_eq(weir_redis_node_str(reader, &first[7]), WEIR_STR("1")),
        .text = weir_redis_node_str(reader, &first[8]),
    };
    if (!number_of(reader, &first[1], &read.version) ||
        !number_of(reader, &first[2], &read.time_s) || !number_of(reader, &first[6], &read.bytes))
        return WEIR_ERR_STORE;
    *entry = read;
    *at += 1 + PARTS;
    return 1;
}

int weir_redis_rules_read_entry(const struct weir_redis_reader *reader,
                                const struct weir_redis_node *nodes, uint32_t count,
                                struct weir_redis_rules_entry *entry)
{
    uint32_t at = 0;
    if (count == 1 && nodes[0].type == WEIR_REDIS_NIL)
        return 0;
    return weir_redis_rules_next_entry(reader, nodes, count, &at, entry);
}

bool weir_redis_rules_is_intact(const struct weir_redis_rules_entry *entry)
{
    char sha[WEIR_RULES_DB_SHA_LEN];
    sha_of(entry->text, sha);
    return entry->text.len <= WEIR_RULES_DB_TEXT_MAX &&
           weir_str_eq(entry->sha256, (struct weir_str){.ptr = sha, .len = sizeof(sha)});
}

static const struct weir_str outcomes[] = {
    [WEIR_REDIS_RULES_DONE] = {.ptr = "done", .len = 4},
    [WEIR_REDIS_RULES_MOVED] = {.ptr = "moved", .len = 5},
    [WEIR_REDIS_RULES_CONFLICT] = {.ptr = "conflict", .len = 8},
    [WEIR_REDIS_RULES_ABSENT] = {.ptr = "absent", .len = 6},
};

static int read_done(const struct weir_redis_reader *reader, const struct weir_redis_node *nodes,
                     uint32_t node_count, struct weir_redis_rules_step *steps, uint32_t count)
{
    if (node_count != 3 + 2 * count)
        return WEIR_ERR_STORE;
    for (uint32_t i = 0; i < count; i++)
        if (!number_of(reader, &nodes[3 + 2 * i], &steps[i].before) ||
            !number_of(reader, &nodes[4 + 2 * i], &steps[i].after))
            return WEIR_ERR_STORE;
    return 0;
}

int weir_redis_rules_read_result(const struct weir_redis_reader *reader,
                                 const struct weir_redis_node *nodes, uint32_t node_count,
                                 struct weir_redis_rules_result *result,
                                 struct weir_redis_rules_step *steps, uint32_t count)
{
    struct weir_redis_rules_result read = {.version = 0};
    unsigned outcome = 0;
    uint32_t at = 3;
    if (node_count < 3 || nodes[0].type != WEIR_REDIS_ARRAY)
        return WEIR_ERR_STORE;
    while (outcome < 4 && !weir_str_eq(weir_redis_node_str(reader, &nodes[1]), outcomes[outcome]))
        outcome++;
    read.outcome = (enum weir_redis_rules_outcome)outcome;
    read.domain = weir_redis_node_str(reader, &nodes[2]);
    switch (outcome) {
    case WEIR_REDIS_RULES_DONE:
    case WEIR_REDIS_RULES_MOVED:
        if (!number_of(reader, &nodes[2], &read.version))
            return WEIR_ERR_STORE;
        if (outcome == WEIR_REDIS_RULES_DONE &&
            read_done(reader, nodes, node_count, steps, count) != 0)
            return WEIR_ERR_STORE;
        break;
    case WEIR_REDIS_RULES_CONFLICT:
        if (weir_redis_rules_next_entry(reader, nodes, node_count, &at, &read.current) != 1)
            return WEIR_ERR_STORE;
        break;
    case WEIR_REDIS_RULES_ABSENT:
        break;
    default:
        return WEIR_ERR_STORE;
    }
    *result = read;
    return 0;
}
