/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/rules_db.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define TRIES 16 /* where others change the database at the same time */
#define WHY_LEN 1024

struct weir_rules_db {
    struct weir_redis_wire *wire;
    char prefix[WEIR_RULES_DB_PREFIX_MAX + 1];
    char why[WHY_LEN];
};

static int fail(struct weir_rules_db *db, int err, const char *why)
{
    snprintf(db->why, sizeof(db->why), "%s", why);
    return err;
}

int weir_rules_db_new(struct weir_rules_db **out, const struct weir_redis_wire_options *options,
                      const char *prefix, char *why, size_t why_len)
{
    if (strlen(prefix) > WEIR_RULES_DB_PREFIX_MAX || strpbrk(prefix, "{}") != NULL) {
        snprintf(why, why_len, "a prefix has at most %d bytes, and no brace",
                 WEIR_RULES_DB_PREFIX_MAX);
        return WEIR_ERR_INVALID;
    }
    struct weir_rules_db *db = calloc(1, sizeof(*db));
    snprintf(why, why_len, "%s", weir_strerror(WEIR_ERR_NOMEM));
    if (db == NULL)
        return WEIR_ERR_NOMEM;
    snprintf(db->prefix, sizeof(db->prefix), "%s", prefix);
    int err = weir_redis_wire_new(&db->wire, options, why, why_len);
    if (err != 0) {
        weir_rules_db_free(db);
        return err;
    }
    *out = db;
    return 0;
}

void weir_rules_db_free(struct weir_rules_db *db)
{
    if (db == NULL)
        return;
    weir_redis_wire_free(db->wire);
    free(db);
}

const char *weir_rules_db_why(const struct weir_rules_db *db)
{
    return db->why;
}

/* ---- reading ---- */

/* One question, put into the wire already. */
static int ask(struct weir_rules_db *db, struct weir_redis_said *said)
{
    int err = weir_redis_wire_ask(db->wire);
    if (err != 0)
        return fail(db, err, weir_redis_wire_why(db->wire));
    *said = weir_redis_wire_said(db->wire);
    return 0;
}

static int not_ours(struct weir_rules_db *db)
{
    return fail(db, WEIR_ERR_INVALID, "what is stored there was not stored by weir");
}

int weir_rules_db_head(struct weir_rules_db *db, struct weir_redis_rules_head *head)
{
    struct weir_redis_said said;
    weir_redis_rules_put_head(weir_redis_wire_begin(db->wire), weir_str_of(db->prefix));
    int err = ask(db, &said);
    if (err != 0)
        return err;
    err = weir_redis_rules_read_head(said.reader, said.nodes, said.count, head);
    return err != 0 ? not_ours(db) : 0;
}

int weir_rules_db_get(struct weir_rules_db *db, struct weir_str domain, uint64_t version,
                      struct weir_redis_rules_entry *entry)
{
    struct weir_redis_said said;
    weir_redis_rules_put_get(weir_redis_wire_begin(db->wire), weir_str_of(db->prefix), domain,
                             version);
    int err = ask(db, &said);
    if (err != 0)
        return err;
    int found = weir_redis_rules_read_entry(said.reader, said.nodes, said.count, entry);
    if (found < 0 || (found == 1 && !entry->is_deleted && !weir_redis_rules_is_intact(entry)))
        return not_ours(db);
    return found;
}

int weir_rules_db_history(struct weir_rules_db *db, struct weir_str domain,
                          void (*each)(void *ctx, const struct weir_redis_rules_entry *entry),
                          void *ctx)
{
    struct weir_redis_said said;
    struct weir_redis_rules_entry entry;
    uint32_t at = 1;
    int found, count = 0;
    weir_redis_rules_put_history(weir_redis_wire_begin(db->wire), weir_str_of(db->prefix), domain);
    int err = ask(db, &said);
    if (err != 0)
        return err;
    while ((found = weir_redis_rules_next_entry(said.reader, said.nodes, said.count, &at,
                                                &entry)) == 1) {
        each(ctx, &entry);
        count++;
    }
    return found < 0 ? not_ours(db) : count;
}

/* The names of all domains, into the set, without their rules. */
static int fetch_names(struct weir_rules_db *db, struct weir_rules_set *set, uint32_t room)
{
    struct weir_redis_said said;
    weir_redis_rules_put_domains(weir_redis_wire_begin(db->wire), weir_str_of(db->prefix));
    int err = ask(db, &said);
    if (err != 0)
        return err;
    if (said.nodes[0].type != WEIR_REDIS_ARRAY)
        return not_ours(db);
    uint32_t count = (said.count - 1) / 2;
    if (count > WEIR_RULES_FILES_MAX)
        return fail(db, WEIR_ERR_TOO_LARGE, "there are too many domains");
    weir_rules_set_reserve(set, count + room);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_str name = weir_redis_node_str(said.reader, &said.nodes[1 + 2 * i]);
        if (name.len == 0 || name.len > WEIR_DOMAIN_LEN_MAX)
            return not_ours(db);
        weir_rules_set_add(set, name, &(const struct weir_redis_rules_entry){0}, NULL);
    }
    return 0;
}

/* Whether what went wrong is a matter of one key alone, and not of Redis. */
static bool is_about_key(const struct weir_rules_db *db, int err)
{
    return err == WEIR_ERR_INVALID ||
           (err == WEIR_ERR_STORE &&
            (strstr(db->why, "TOOLARGE") != NULL || strstr(db->why, "WRONGTYPE") != NULL));
}

/* The rules of all domains that were named. */
static int fetch_texts(struct weir_rules_db *db, struct weir_rules_set *set)
{
    uint32_t count = set->count;
    set->count = 0; /* each is added anew, in its place */
    for (uint32_t i = 0; i < count && !set->arena.has_failed; i++) {
        struct weir_redis_rules_entry entry = {0};
        struct weir_str name = set->domains[i].name;
        int found = weir_rules_db_get(db, name, 0, &entry);
        const char *wrong = NULL;
        if (found < 0 && !is_about_key(db, found))
            return found;
        if (found <= 0) {
            wrong = found < 0 ? "what is stored was not stored by weir" : "listed, but not there";
            entry = (struct weir_redis_rules_entry){0};
        }
        weir_rules_set_add(set, name, &entry, wrong);
        if (set->bytes > WEIR_RULES_DB_SET_MAX)
            return fail(db, WEIR_ERR_TOO_LARGE, "all rules together are too large");
    }
    return set->arena.has_failed ? fail(db, WEIR_ERR_NOMEM, weir_strerror(WEIR_ERR_NOMEM)) : 0;
}

int weir_rules_db_fetch(struct weir_rules_db *db, struct weir_rules_set *set, uint32_t room)
{
    struct weir_redis_rules_head after;
    weir_rules_set_init(set);
    int err = weir_rules_db_head(db, &set->head);
    for (int tries = 0; err == 0 && tries < TRIES; tries++) {
        err = fetch_names(db, set, room);
        if (err == 0)
            err = fetch_texts(db, set);
        if (err == 0)
            err = weir_rules_db_head(db, &after);
        if (err != 0 || (after.version == set->head.version && strcmp(after.id, set->head.id) == 0))
            return err;
        weir_rules_set_fini(set);
        weir_rules_set_init(set);
        set->head = after;
    }
    return err != 0 ? err : fail(db, WEIR_ERR_STORE, "the rules change all the time");
}

/* ---- changing ---- */

static struct weir_str cut(struct weir_str words)
{
    words.len = words.len < WEIR_RULES_DB_WORDS_MAX ? words.len : WEIR_RULES_DB_WORDS_MAX;
    return words;
}

/* The id of a database that begins with this change. */
static int name_database(struct weir_rules_db *db, struct weir_redis_rules_head *head)
{
    uint64_t random[2];
    if (head->id[0] != '\0')
        return 0;
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return fail(db, WEIR_ERR_IO, "there is no randomness");
    snprintf(head->id, sizeof(head->id), "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return 0;
}

/* Checks the set with the change in it, and stores that. */
static int try_change(struct weir_rules_db *db, const struct weir_rules_db_order *order,
                      struct weir_rules_set *set, struct weir_redis_rules_result *result,
                      struct weir_redis_rules_step *steps)
{
    struct weir_redis_said said;
    for (uint32_t i = 0; i < order->count; i++)
        weir_rules_set_change(set, &order->changes[i], order->labels[i]);
    int err = weir_rules_set_check(set, order->log, order->log_ctx);
    if (err != 0)
        return fail(db, err, weir_strerror(err));
    err = name_database(db, &set->head);
    if (err != 0)
        return err;
    weir_redis_rules_put_change(weir_redis_wire_begin(db->wire), weir_str_of(db->prefix),
                                &set->head, order->changes, order->count, cut(order->who),
                                cut(order->why));
    err = ask(db, &said);
    if (err != 0)
        return err;
    err = weir_redis_rules_read_result(said.reader, said.nodes, said.count, result, steps,
                                       order->count);
    return err != 0 ? not_ours(db) : 0;
}

int weir_rules_db_change(struct weir_rules_db *db, const struct weir_rules_db_order *order,
                         struct weir_redis_rules_result *result,
                         struct weir_redis_rules_step *steps)
{
    for (uint32_t i = 0; i < order->count; i++)
        if (order->changes[i].text.len > WEIR_RULES_DB_TEXT_MAX)
            return fail(db, WEIR_ERR_TOO_LARGE, "a domain has at most 4 MiB of rules");
    for (int tries = 0; tries < TRIES; tries++) {
        struct weir_rules_set set;
        int err = weir_rules_db_fetch(db, &set, order->count);
        if (err == 0)
            err = try_change(db, order, &set, result, steps);
        weir_rules_set_fini(&set);
        if (err != 0 || result->outcome != WEIR_REDIS_RULES_MOVED)
            return err;
    }
    return fail(db, WEIR_ERR_STORE, "the rules change all the time");
}

int weir_rules_db_rollback(struct weir_rules_db *db, const struct weir_rules_db_order *order,
                           uint64_t version, struct weir_redis_rules_result *result,
                           struct weir_redis_rules_step *steps)
{
    struct weir_redis_rules_entry entry = {.text = WEIR_STR("")};
    struct weir_redis_rules_change change = order->changes[0];
    struct weir_rules_db_order back = *order;
    int found = weir_rules_db_get(db, change.domain, version, &entry);
    if (found < 0)
        return found;
    if (found == 0 || entry.is_deleted)
        return fail(db, WEIR_ERR_NOT_FOUND,
                    found == 0 ? "that version is not kept" : "that version deleted the domain");
    char *text = malloc(entry.text.len + 1); /* the reply is gone with the next */
    if (text == NULL)
        return fail(db, WEIR_ERR_NOMEM, weir_strerror(WEIR_ERR_NOMEM));
    memcpy(text, entry.text.ptr, entry.text.len);
    change.text = (struct weir_str){.ptr = text, .len = entry.text.len};
    change.is_delete = false;
    back.changes = &change;
    int err = weir_rules_db_change(db, &back, result, steps);
    free(text);
    return err;
}
