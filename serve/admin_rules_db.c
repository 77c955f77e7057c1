/* admin_rules_db.c - /api/v1/rules/DOMAIN: the rules database, read and changed.
 *
 *     GET    /api/v1/rules_store                  all domains
 *     GET    /api/v1/rules/D ?version=N           the rules, and who stored them
 *     PUT    /api/v1/rules/D ?if_version=N        the body is YAML; all that is wrong with it: 422
 *     DELETE /api/v1/rules/D ?if_version=N
 *     GET    /api/v1/rules/D/history
 *     POST   /api/v1/rules/D/rollback ?version=N&if_version=M
 *
 * &message=WORDS&who=NAME for the history.  Somebody was faster: 409, and who.
 *
 * Redis has to be waited for, which a worker does not: the question is copied into a job, done by
 * the thread that follows the database, and answered when it comes back.
 *
 * Threads: everything up to submit() and from answer_job() on in the connection's; between them,
 * in the other, only the job itself is touched.  SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/uri.h"
#include "serve/admin.h"
#include "serve/audit.h"
#include "serve/rules_follow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX "/api/v1/rules/"
#define PEER_LEN 48
#define BODY_LABEL "body"

struct job {
    struct weir_rules_job base;
    struct weir_admin_late late;
    struct weir_service *service;
    void (*act)(struct job *job, struct weir_rules_db *db);
    uint64_t version; /* 0: none */
    struct weir_redis_rules_change change;
    char peer[PEER_LEN];
    char who[WEIR_RULES_DB_WORDS_MAX + 1], message[WEIR_RULES_DB_WORDS_MAX + 1];
    uint32_t message_count; /* about the rules */
    char *texts;            /* domain and body, which the change names */
};

/* ---- words ---- */

static struct weir_buf *body_of(struct job *job)
{
    return &job->late.told.body;
}

static void put_entry(struct weir_buf *to, const struct weir_redis_rules_entry *entry)
{
    weir_admin_add(to, "\"version\":%" PRIu64 ",\"time_s\":%" PRIu64 ",\"who\":", entry->version,
                   entry->time_s);
    weir_admin_add_json(to, entry->who);
    weir_admin_add(to, ",\"message\":");
    weir_admin_add_json(to, entry->why);
    if (entry->is_deleted)
        weir_admin_add(to, ",\"deleted\":true");
    if (entry->sha256.len > 0 && !entry->is_deleted) {
        weir_admin_add(to, ",\"sha256\":");
        weir_admin_add_json(to, entry->sha256);
        weir_admin_add(to, ",\"bytes\":%" PRIu64, entry->bytes);
    }
}

static void begin_domain(struct weir_buf *to, struct weir_str domain)
{
    weir_admin_add(to, "{\"domain\":");
    weir_admin_add_json(to, domain);
    weir_buf_add_char(to, ',');
}

/* The database, or what it says, stands in the way. */
static void say_trouble(struct job *job, const struct weir_rules_db *db, int err)
{
    char text[1100];
    int status = err == WEIR_ERR_NOT_FOUND ? 404 : err == WEIR_ERR_TOO_LARGE ? 413 : 503;
    snprintf(text, sizeof(text), "%d rules_store: %s\n", status, weir_rules_db_why(db));
    weir_admin_say(&job->late.told, status, text);
}

static void say_absent(struct job *job)
{
    weir_admin_say(&job->late.told, 404, "404 the rules database has no such domain or version\n");
}

/* ---- looking ---- */

static void act_list(struct job *job, struct weir_rules_db *db)
{
    struct weir_rules_set set;
    int err = weir_rules_db_fetch(db, &set, 0);
    if (err != 0)
        say_trouble(job, db, err);
    else
        weir_admin_add(body_of(job), "{\"version\":%" PRIu64 ",\"domains\":[", set.head.version);
    for (uint32_t i = 0; i < set.count && err == 0; i++) {
        if (i > 0)
            weir_buf_add_char(body_of(job), ',');
        begin_domain(body_of(job), set.domains[i].name);
        put_entry(body_of(job), &set.domains[i].entry);
        if (set.domains[i].wrong != NULL)
            weir_admin_add(body_of(job), ",\"wrong\":\"%s\"", set.domains[i].wrong);
        weir_buf_add_char(body_of(job), '}');
    }
    if (err == 0)
        weir_admin_add(body_of(job), "]}\n");
    weir_rules_set_fini(&set);
}

static void act_get(struct job *job, struct weir_rules_db *db)
{
    struct weir_redis_rules_entry entry = {0};
    int found = weir_rules_db_get(db, job->change.domain, job->version, &entry);
    if (found < 0) {
        say_trouble(job, db, found);
    } else if (found == 0) {
        say_absent(job);
    } else {
        begin_domain(body_of(job), job->change.domain);
        put_entry(body_of(job), &entry);
        weir_admin_add(body_of(job), ",\"text\":");
        weir_admin_add_json(body_of(job), entry.text);
        weir_admin_add(body_of(job), "}\n");
    }
}

static void put_version(void *ctx, const struct weir_redis_rules_entry *entry)
{
    struct job *job = ctx;
    weir_admin_add(body_of(job), job->message_count++ > 0 ? ",{" : "{");
    put_entry(body_of(job), entry);
    weir_buf_add_char(body_of(job), '}');
}

static void act_history(struct job *job, struct weir_rules_db *db)
{
    begin_domain(body_of(job), job->change.domain);
    weir_admin_add(body_of(job), "\"versions\":[");
    int count = weir_rules_db_history(db, job->change.domain, put_version, job);
    if (count < 0)
        say_trouble(job, db, count);
    else if (count == 0)
        say_absent(job);
    else
        weir_admin_add(body_of(job), "]}\n");
}

/* ---- changing ---- */

/* All that is wrong with the rules, as a list. */
static void put_message(void *ctx, enum weir_level level, const char *line)
{
    struct job *job = ctx;
    if (level != WEIR_LEVEL_ERROR)
        return;
    weir_admin_add(body_of(job), job->message_count++ > 0
                                     ? ","
                                     : "{\"error\":\"the rules are not valid\","
                                       "\"messages\":[");
    weir_admin_add_json(body_of(job), weir_str_of(line));
}

static void say_conflict(struct job *job, const struct weir_redis_rules_result *result)
{
    job->late.told.status = 409;
    weir_admin_add(body_of(job),
                   "{\"error\":\"the domain is not at version %" PRIu64 "\",\"current\":{",
                   job->change.replaces);
    put_entry(body_of(job), &result->current);
    weir_admin_add(body_of(job), "}}\n");
}

static void note_change(const struct job *job, const struct weir_redis_rules_step *step)
{
    char before[32], after[48];
    const char *what = job->change.is_delete ? "rules delete"
                       : job->version > 0    ? "rules rollback"
                                             : "rules put";
    snprintf(before, sizeof(before), "version %" PRIu64, step->before);
    snprintf(after, sizeof(after), "version %" PRIu64 " by %.20s", step->after, job->who);
    weir_audit_add(
        weir_service_audit(job->service),
        &(struct weir_audit_change){.time_ns = weir_now(weir_service_engine(job->service)),
                                    .what = what,
                                    .peer = job->peer,
                                    .target = job->change.domain,
                                    .before = before,
                                    .after = after});
}

static void say_done(struct job *job, const struct weir_redis_rules_step *step)
{
    bool is_change = job->change.is_delete || step->after != step->before;
    if (is_change)
        note_change(job, step);
    begin_domain(body_of(job), job->change.domain);
    weir_admin_add(body_of(job),
                   "\"version\":%" PRIu64 ",\"replaces\":%" PRIu64 ",\"changed\":%s}\n",
                   step->after, step->before, is_change ? "true" : "false");
}

static void act_change(struct job *job, struct weir_rules_db *db)
{
    static const char *const label = BODY_LABEL;
    struct weir_redis_rules_result result;
    struct weir_redis_rules_step step;
    const struct weir_rules_db_order order = {
        .changes = &job->change,
        .labels = &label,
        .count = 1,
        .who = weir_str_of(job->who),
        .why = weir_str_of(job->message),
        .log = put_message,
        .log_ctx = job,
    };
    int err = job->version > 0 ? weir_rules_db_rollback(db, &order, job->version, &result, &step)
                               : weir_rules_db_change(db, &order, &result, &step);
    if (err == WEIR_ERR_RULES) {
        job->late.told.status = 422;
        weir_admin_add(body_of(job), "]}\n");
    } else if (err != 0) {
        say_trouble(job, db, err);
    } else if (result.outcome == WEIR_REDIS_RULES_CONFLICT) {
        say_conflict(job, &result);
    } else if (result.outcome == WEIR_REDIS_RULES_ABSENT) {
        say_absent(job);
    } else {
        say_done(job, &step);
    }
}

/* ---- there and back ---- */

static void run_job(struct weir_rules_job *base, struct weir_rules_db *db)
{
    struct job *job = (struct job *)base;
    if (db == NULL)
        weir_admin_say(
            &job->late.told, 503,
            "503 rules_store: not asked; it does not answer, or the service is going down\n");
    else
        job->act(job, db);
}

static void free_job(struct job *job)
{
    if (job == NULL)
        return;
    weir_buf_fini(body_of(job));
    free(job->texts);
    free(job);
}

static void answer_job(struct weir_post *post, struct weir_loop *loop)
{
    struct job *job = (struct job *)((char *)post - offsetof(struct job, base) -
                                     offsetof(struct weir_rules_job, post));
    if (loop != NULL)
        weir_admin_late_answer(&job->late);
    free_job(job);
}

/* A value of the query, decoded and cut to its room. */
static void read_words(const struct weir_admin_call *call, const char *name, char *out, size_t room)
{
    char decoded[WEIR_HTTP1_TARGET_MAX];
    struct weir_str value = weir_admin_param(call->query, name);
    size_t len = value.len > 0 ? weir_uri_decode(value, decoded) : 0;
    len = len < room ? len : room - 1;
    memcpy(out, decoded, len);
    out[len] = '\0';
}

/* False: it is there, and no number. */
static bool read_number(const struct weir_admin_call *call, const char *name, bool *is_there,
                        uint64_t *out)
{
    struct weir_str value = weir_admin_param(call->query, name);
    uint64_t number = 0;
    *is_there = value.ptr != NULL;
    *out = 0;
    if (value.ptr == NULL)
        return true;
    if (value.len == 0 || value.len > 18) /* any shorter one fits */
        return false;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(value.ptr[i] - '0');
    }
    *out = number;
    return true;
}

/* What the query says; false: the answer says what is wrong with it. */
static bool read_query(struct weir_admin_call *call, struct job *job, bool needs_version)
{
    char name[WEIR_RULES_DB_WORDS_MAX / 2];
    bool has_version = false;
    if (!read_number(call, "version", &has_version, &job->version) ||
        !read_number(call, "if_version", &job->change.has_replaces, &job->change.replaces)) {
        weir_admin_say(call, 400, "400 a version is a whole number\n");
        return false;
    }
    if (needs_version && job->version == 0) {
        weir_admin_say(call, 400, "400 say to which: ?version=N\n");
        return false;
    }
    read_words(call, "who", name, sizeof(name));
    read_words(call, "message", job->message, sizeof(job->message));
    snprintf(job->peer, sizeof(job->peer), "%s", call->peer);
    snprintf(job->who, sizeof(job->who), "%s (%s)", name[0] != '\0' ? name : "admin", call->peer);
    return true;
}

/* alloc: the question outlives its request, and this is rare. */
static bool copy_texts(struct job *job, struct weir_str domain, struct weir_str body)
{
    job->texts = malloc(domain.len + body.len + 1);
    if (job->texts == NULL)
        return false;
    memcpy(job->texts, domain.ptr, domain.len);
    if (body.len > 0)
        memcpy(job->texts + domain.len, body.ptr, body.len);
    job->change.domain = (struct weir_str){job->texts, domain.len};
    job->change.text = (struct weir_str){job->texts + domain.len, body.len};
    return true;
}

/* One of those below, by path and method. */
struct question {
    const char *method, *suffix;
    void (*act)(struct job *job, struct weir_rules_db *db);
    bool has_body, is_delete, needs_version;
};

static void submit(struct weir_admin_call *call, const struct question *question,
                   struct weir_str domain)
{
    struct weir_rules_follow *follow = weir_service_follow(call->worker->service);
    if (follow == NULL) {
        weir_admin_say(call, 404,
                       "404 there is no rules database: rules_store says where one is\n");
        return;
    }
    struct job *job = calloc(1, sizeof(*job));
    if (job != NULL) {
        weir_buf_init(body_of(job), WEIR_ADMIN_BODY_MAX);
        job->base = (struct weir_rules_job){
            .run = run_job, .post = {.run = answer_job}, .loop = call->worker->loop};
        job->service = call->worker->service;
        job->act = question->act;
        job->change.is_delete = question->is_delete;
        job->late.told.status = 200;
        job->late.told.content_type = WEIR_ADMIN_JSON;
    }
    if (job == NULL ||
        !copy_texts(job, domain, question->has_body ? call->request->body : WEIR_STR(""))) {
        weir_admin_say_error(call, WEIR_ERR_NOMEM);
    } else if (read_query(call, job, question->needs_version)) {
        if (question->act == act_change && !question->needs_version)
            job->version = 0; /* only a rollback goes to one */
        if (weir_rules_follow_do(follow, &job->base)) {
            call->late = &job->late;
            return;
        }
        weir_admin_say(call, 503, "503 too many questions wait for the rules database\n");
    }
    free_job(job);
}

/* True: answered, or it will be. */
static bool try_suffix(struct weir_admin_call *call, struct weir_str rest, const char *suffix)
{
    static const struct question questions[] = {
        {"GET", "/history", act_history, false, false, false},
        {"POST", "/rollback", act_change, false, false, true},
        {"GET", "", act_get, false, false, false},
        {"PUT", "", act_change, true, false, false},
        {"DELETE", "", act_change, false, true, false},
    };
    char decoded[WEIR_HTTP1_TARGET_MAX];
    struct weir_str end = weir_str_of(suffix);
    if (!weir_str_ends(rest, end) || rest.len == end.len)
        return false;
    struct weir_str domain = {.ptr = decoded};
    domain.len = weir_uri_decode((struct weir_str){rest.ptr, rest.len - end.len}, decoded);
    call->status = 200;
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        if (strcmp(questions[i].suffix, suffix) == 0 &&
            weir_admin_is_method(call, questions[i].method)) {
            submit(call, &questions[i], domain);
            return true;
        }
    }
    weir_admin_say(call, 405, "405 method not allowed\n");
    return true;
}

bool weir_admin_rules_db(struct weir_admin_call *call)
{
    static const struct question all = {.method = "GET", .act = act_list};
    const struct weir_str prefix = WEIR_STR(PREFIX);
    if (weir_str_eq(call->path, WEIR_STR("/api/v1/rules_store"))) {
        call->status = 200;
        if (weir_admin_is_get(call))
            submit(call, &all, WEIR_STR(""));
        else
            weir_admin_say(call, 405, "405 method not allowed\n");
        return true;
    }
    if (!weir_str_starts(call->path, prefix))
        return false;
    struct weir_str rest = {call->path.ptr + prefix.len, call->path.len - prefix.len};
    return try_suffix(call, rest, "/history") || try_suffix(call, rest, "/rollback") ||
           try_suffix(call, rest, "");
}
