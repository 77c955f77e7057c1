/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/rules_follow.h"

#include "base/err.h"
#include "base/str.h"
#include "serve/rules_cache.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 200
#define AWAY_MS_MAX 2000 /* between two looks while the store is away */
#define TIMEOUT_MS 2000  /* of one question */
#define JOBS_MAX 64
#define WHY_LEN 4400 /* a path and some words */

struct weir_rules_follow {
    struct weir_rules_db *db;
    struct weir_rules_cache cache;
    struct weir_log *log;
    struct weir_redis_rules_head refused; /* the last set that was not good */
    uint32_t pause_ms;                    /* until the next look */
    bool is_away, is_empty, is_idle;      /* said already: away, empty, another process writes */
    bool has_failed;                      /* said already: the set cannot be kept */
    bool is_whole; /* what is kept is what the store had: this process has written or compared it */
    int wake_fd;
    bool is_started;
    pthread_t thread;
    _Atomic bool is_stopping;
    pthread_mutex_t lock; /* of the queue */
    struct weir_rules_job *first, **last;
    uint32_t job_count;
    _Atomic uint64_t counts[WEIR_RULES_FOLLOW_COUNTS]; /* numbers for people: all relaxed */
};

static void set_count(struct weir_rules_follow *follow, enum weir_rules_follow_count counter,
                      uint64_t value)
{
    atomic_store_explicit(&follow->counts[counter], value, memory_order_relaxed);
}

uint64_t weir_rules_follow_count(const struct weir_rules_follow *follow,
                                 enum weir_rules_follow_count counter)
{
    return atomic_load_explicit(&follow->counts[counter], memory_order_relaxed);
}

/* ---- one look ---- */

static bool is_same(const struct weir_redis_rules_head *a, const struct weir_redis_rules_head *b)
{
    return a->version == b->version && strcmp(a->id, b->id) == 0;
}

/* The store did not answer, or not so that it helps.  Twice the pause, and up to a fifth more, so
 * that not all nodes come back at once. */
static void note_away(struct weir_rules_follow *follow)
{
    uint32_t random = 0;
    uint32_t twice = 2 * follow->pause_ms < AWAY_MS_MAX ? 2 * follow->pause_ms : AWAY_MS_MAX;
    (void)!getrandom(&random, sizeof(random), 0); /* without it all is as well */
    follow->pause_ms = twice - random % (twice / 5);
    set_count(follow, WEIR_RULES_FOLLOW_UP, 0);
    if (!follow->is_away)
        WEIR_LOG(
            follow->log, WEIR_LOG_WARN, "rules store away",
            WEIR_LOG_TEXT("why", weir_rules_db_why(follow->db)),
            WEIR_LOG_NUMBER("kept", weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_VERSION)));
    follow->is_away = true;
}

static void note_back(struct weir_rules_follow *follow)
{
    follow->pause_ms = LOOK_MS;
    set_count(follow, WEIR_RULES_FOLLOW_UP, 1);
    if (follow->is_away)
        WEIR_LOG(
            follow->log, WEIR_LOG_INFO, "rules store back",
            WEIR_LOG_NUMBER("kept", weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_VERSION)));
    follow->is_away = false;
}

static void say_invalid(void *ctx, enum weir_level level, const char *line)
{
    struct weir_rules_follow *follow = ctx;
    if (level == WEIR_LEVEL_ERROR)
        WEIR_LOG(follow->log, WEIR_LOG_ERROR, "rules in the store", WEIR_LOG_TEXT("text", line));
}

static void refuse(struct weir_rules_follow *follow, const struct weir_redis_rules_head *head)
{
    follow->refused = *head;
    set_count(follow, WEIR_RULES_FOLLOW_REFUSED,
              weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_REFUSED) + 1);
    WEIR_LOG(follow->log, WEIR_LOG_ERROR, "rules in the store refused",
             WEIR_LOG_NUMBER("version", head->version),
             WEIR_LOG_NUMBER("kept", weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_VERSION)));
}

static void keep(struct weir_rules_follow *follow, const struct weir_rules_set *set,
                 const struct weir_redis_rules_head *before)
{
    char why[WHY_LEN];
    int err = weir_rules_cache_keep(&follow->cache, set, why, sizeof(why));
    if (err != 0) {
        if (!follow->has_failed)
            WEIR_LOG(follow->log, WEIR_LOG_ERROR, "rules cannot be kept", WEIR_LOG_TEXT("why", why),
                     WEIR_LOG_NUMBER("version", set->head.version));
        follow->has_failed = true;
        follow->pause_ms = AWAY_MS_MAX;
        return;
    }
    follow->has_failed = false;
    follow->is_whole = true;
    set_count(follow, WEIR_RULES_FOLLOW_VERSION, set->head.version);
    if (before->version > 0 && strcmp(before->id, set->head.id) != 0)
        WEIR_LOG(follow->log, WEIR_LOG_WARN, "rules store begun anew",
                 WEIR_LOG_NUMBER("from", before->version),
                 WEIR_LOG_NUMBER("to", set->head.version));
    WEIR_LOG(follow->log, WEIR_LOG_INFO, "rules kept",
             WEIR_LOG_NUMBER("version", set->head.version), WEIR_LOG_NUMBER("domains", set->count),
             WEIR_LOG_TEXT("path", follow->cache.path));
}

/* There is something new, or what is kept has not been looked at yet. */
static void fetch(struct weir_rules_follow *follow, const struct weir_redis_rules_head *before)
{
    struct weir_rules_set set;
    int err = weir_rules_db_fetch(follow->db, &set, 0);
    if (err == WEIR_ERR_TOO_LARGE || err == WEIR_ERR_INVALID) {
        say_invalid(follow, WEIR_LEVEL_ERROR, weir_rules_db_why(follow->db));
        refuse(follow, &set.head);
    } else if (err != 0) {
        note_away(follow);
    } else if ((err = weir_rules_set_check(&set, say_invalid, follow)) == WEIR_ERR_RULES) {
        refuse(follow, &set.head);
    } else if (err == 0 && is_same(&set.head, before) &&
               weir_rules_cache_has(&follow->cache, &set)) {
        follow->is_whole = true;
    } else if (err == 0) {
        if (is_same(&set.head, before))
            WEIR_LOG(follow->log, WEIR_LOG_WARN, "rules kept were changed",
                     WEIR_LOG_TEXT("path", follow->cache.path));
        keep(follow, &set, before);
    }
    weir_rules_set_fini(&set);
}

static bool may_write(struct weir_rules_follow *follow)
{
    bool is_ours = weir_rules_cache_lock(&follow->cache);
    if (!is_ours && !follow->is_idle)
        WEIR_LOG(follow->log, WEIR_LOG_INFO, "rules are kept by another process",
                 WEIR_LOG_TEXT("path", follow->cache.path));
    follow->is_idle = !is_ours;
    return is_ours;
}

static void look(struct weir_rules_follow *follow)
{
    struct weir_redis_rules_head head, kept = weir_rules_cache_head(&follow->cache);
    set_count(follow, WEIR_RULES_FOLLOW_VERSION, kept.version);
    if (weir_rules_db_head(follow->db, &head) != 0) {
        note_away(follow);
        return;
    }
    note_back(follow);
    bool is_empty = head.version == 0;
    if (is_empty && !follow->is_empty)
        WEIR_LOG(follow->log, WEIR_LOG_WARN, "rules store is empty",
                 WEIR_LOG_NUMBER("kept", kept.version));
    follow->is_empty = is_empty;
    /* A disk may have forgotten something, or somebody changed it: looked at once. */
    bool is_kept = follow->is_whole && is_same(&head, &kept);
    if (!may_write(follow) || is_empty || is_kept || is_same(&head, &follow->refused))
        return;
    fetch(follow, &kept);
}

/* ---- jobs ---- */

static uint64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static struct weir_rules_job *take_job(struct weir_rules_follow *follow)
{
    pthread_mutex_lock(&follow->lock);
    struct weir_rules_job *job = follow->first;
    if (job != NULL) {
        follow->first = job->next;
        follow->job_count--;
        if (follow->first == NULL)
            follow->last = &follow->first;
    }
    pthread_mutex_unlock(&follow->lock);
    return job;
}

bool weir_rules_follow_do(struct weir_rules_follow *follow, struct weir_rules_job *job)
{
    pthread_mutex_lock(&follow->lock);
    bool has_room = follow->job_count < JOBS_MAX;
    if (has_room) {
        job->next = NULL;
        job->since_ms = monotonic_ms();
        *follow->last = job;
        follow->last = &job->next;
        follow->job_count++;
    }
    pthread_mutex_unlock(&follow->lock);
    if (has_room && eventfd_write(follow->wake_fd, 1) != 0)
        weir_panic("an eventfd takes a 1", __FILE__, __LINE__);
    return has_room;
}

/* True where there was one. */
static bool do_jobs(struct weir_rules_follow *follow, bool is_leaving)
{
    struct weir_rules_job *job;
    bool had_some = false;
    while ((job = take_job(follow)) != NULL) {
        bool is_late = monotonic_ms() - job->since_ms > TIMEOUT_MS;
        job->run(job, is_leaving || is_late ? NULL : follow->db);
        weir_loop_post(job->loop, &job->post);
        had_some = true;
    }
    return had_some;
}

/* ---- the thread ---- */

static bool is_stopping(const struct weir_rules_follow *follow)
{
    return atomic_load_explicit(&follow->is_stopping, memory_order_relaxed); /* stands alone */
}

static void *run(void *ctx)
{
    struct weir_rules_follow *follow = ctx;
    uint64_t due_ms = monotonic_ms();
    pthread_setname_np(pthread_self(), "weir-rules"); /* for top -H; without it all is as well */
    while (!is_stopping(follow)) {
        struct pollfd wake = {.fd = follow->wake_fd, .events = POLLIN};
        uint64_t now_ms = monotonic_ms();
        eventfd_t ignored;
        if (poll(&wake, 1, due_ms > now_ms ? (int)(due_ms - now_ms) : 0) > 0)
            (void)eventfd_read(follow->wake_fd, &ignored);
        bool had_jobs = do_jobs(follow, is_stopping(follow));
        if (!is_stopping(follow) && (had_jobs || monotonic_ms() >= due_ms)) {
            look(follow);
            due_ms = monotonic_ms() + follow->pause_ms;
        }
    }
    do_jobs(follow, true);
    return NULL;
}

int weir_rules_follow_start(struct weir_rules_follow *follow)
{
    follow->is_started = pthread_create(&follow->thread, NULL, run, follow) == 0;
    return follow->is_started ? 0 : WEIR_ERR_IO;
}

void weir_rules_follow_stop(struct weir_rules_follow *follow)
{
    atomic_store_explicit(&follow->is_stopping, true, memory_order_relaxed);
    if (eventfd_write(follow->wake_fd, 1) != 0)
        weir_panic("an eventfd takes a 1", __FILE__, __LINE__);
}

/* ---- made and freed ---- */

int weir_rules_follow_new(struct weir_rules_follow **out, const struct weir_settings *settings,
                          struct weir_log *log, char *why, size_t why_len)
{
    const struct weir_redis_wire_options options = {
        .url =
            strcmp(settings->rules_store, "store") == 0 ? settings->store : settings->rules_store,
        .tls = {.ca_path = settings->store_tls_ca,
                .cert_path = settings->store_tls_cert,
                .key_path = settings->store_tls_key},
        .timeout_ms = TIMEOUT_MS,
    };
    *out = NULL;
    if (strcmp(settings->rules_store, "off") == 0)
        return 0;
    struct weir_rules_follow *follow = calloc(1, sizeof(*follow));
    snprintf(why, why_len, "%s", weir_strerror(WEIR_ERR_NOMEM));
    if (follow == NULL)
        return WEIR_ERR_NOMEM;
    follow->log = log;
    follow->pause_ms = LOOK_MS;
    follow->last = &follow->first;
    follow->cache.lock_fd = -1;
    pthread_mutex_init(&follow->lock, NULL); /* cannot fail without attributes */
    follow->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int err = follow->wake_fd >= 0 ? 0 : WEIR_ERR_IO;
    if (err == 0)
        err = weir_rules_db_new(&follow->db, &options, settings->store_prefix, why, why_len);
    if (err == 0)
        err = weir_rules_cache_init(&follow->cache, settings->rules, why, why_len);
    if (err != 0) {
        weir_rules_follow_free(follow);
        return err;
    }
    look(follow);
    *out = follow;
    return 0;
}

void weir_rules_follow_free(struct weir_rules_follow *follow)
{
    if (follow == NULL)
        return;
    if (follow->is_started) {
        weir_rules_follow_stop(follow);
        pthread_join(follow->thread, NULL);
    }
    do_jobs(follow, true);
    weir_rules_cache_fini(&follow->cache);
    weir_rules_db_free(follow->db);
    if (follow->wake_fd >= 0)
        close(follow->wake_fd);
    pthread_mutex_destroy(&follow->lock);
    free(follow);
}
