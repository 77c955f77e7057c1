/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/service_internal.h"

#include "base/err.h"
#include "serve/ask.h"
#include "serve/audit.h"
#include "serve/eventual.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 1000     /* watchdog, certificates */
#define TLS_LOOK_MS 3000 /* how often certificates' files are looked at */
#define LAST_TRIES 50    /* to tell others what we have admitted, */
#define LAST_TRY_MS 20   /* so long apart */
#define EXIT_AT_ONCE 3   /* the exit status when a second signal comes */

/* ---- saying things ---- */

void weir_service_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("weir: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static void log_options(const struct weir_settings *settings, struct weir_log_options *out)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    *out = (struct weir_log_options){
        .is_json = strcmp(settings->log_format, "json") == 0,
        .shows_keys = strcmp(settings->log_keys, "plain") == 0,
        .lines_per_s = (uint32_t)settings->log_rate,
    };
    for (int i = 0; i < 4; i++)
        if (strcmp(settings->log_level, levels[i]) == 0)
            out->level = (enum weir_log_level)i;
}

/* What the engine says.  Before we serve somebody is looking: plain lines, that begin with a place
 * in a file. */
static void engine_says(void *ctx, enum weir_level level, const char *line)
{
    static const enum weir_log_level levels[] = {
        [WEIR_LEVEL_ERROR] = WEIR_LOG_ERROR,
        [WEIR_LEVEL_WARNING] = WEIR_LOG_WARN,
        [WEIR_LEVEL_INFO] = WEIR_LOG_INFO,
    };
    struct weir_service *service = ctx;
    if (level == WEIR_LEVEL_ERROR)
        service->has_heard_errors = true;
    if (!service->is_started && level == WEIR_LEVEL_ERROR)
        fprintf(stderr, "%s\n", line);
    else if (service->settings->log_rules)
        WEIR_LOG(service->log, levels[level], "rules", WEIR_LOG_TEXT("text", line));
}

/* ---- start ---- */

/* Signals are read from a descriptor, by the main thread; workers inherit that they are blocked. */
static int open_signals(struct weir_service *service)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (sigaction(SIGPIPE, &ignore, NULL) != 0 || pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return WEIR_ERR_IO;
    service->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    service->done_fd = eventfd(0, EFD_CLOEXEC);
    return service->signal_fd >= 0 && service->done_fd >= 0 ? 0 : WEIR_ERR_IO;
}

static int read_http_options(struct weir_service *service)
{
    const struct weir_settings *settings = service->settings;
    const struct weir_http_settings http = {
        .trusted_proxies = settings->trusted_proxies,
        .user_header = settings->user_header,
        .attributes = settings->attributes,
        .original_request = settings->original_request,
        .check_domain = settings->check_domain,
        .check_headers = settings->check_headers,
        .check_body = settings->check_body,
    };
    char why[256];
    int err = weir_http_options_read(&service->http, &http, why, sizeof(why));
    if (err != 0)
        weir_service_complain("cannot start: %s", why);
    return err;
}

/* The engine has said what is wrong, with a place or a path; here is what that means. */
static void complain_of_engine(const struct weir_service *service, int err)
{
    const char *rules = service->settings->rules;
    if (err == WEIR_ERR_IO && service->follow != NULL && access(rules, R_OK) != 0)
        weir_service_complain("no rules came from the database, and none were kept at %s before; "
                              "--start-without-rules waits for them",
                              rules);
    else if (err == WEIR_ERR_RULES)
        weir_service_complain("the rules are not valid; --start-without-rules starts without them");
    else if (err == WEIR_ERR_IO && rules[0] != '\0' && access(rules, R_OK) != 0)
        weir_service_complain("there are no rules at %s (%s); --start-without-rules waits for them",
                              rules, service->settings->sources[WEIR_SETTING_NUMBER_rules].from);
    else if (service->has_heard_errors)
        weir_service_complain("cannot start, for the reason above");
    else
        weir_service_complain("cannot start: %s", weir_strerror(err));
}

static int open_rules_store(struct weir_service *service)
{
    char why[4400];
    int err =
        weir_rules_follow_new(&service->follow, service->settings, service->log, why, sizeof(why));
    if (err != 0)
        weir_service_complain("rules_store: %s", why);
    return err;
}

static int open_engine(struct weir_service *service)
{
    const struct weir_settings *settings = service->settings;
    bool is_private = strcmp(settings->table, "none") == 0;
    struct weir_options options = {
        .rules_path = settings->rules[0] != '\0' ? settings->rules : NULL,
        .table_path = is_private ? NULL : settings->table,
        .table_bytes = settings->table_size,
        .merge_domains = settings->merge_domains,
        .may_lack_rules = settings->start_without_rules,
        .fail_without_rules = settings->rules[0] != '\0',
        .shadow_mode = settings->shadow_mode,
        .quota_mode = settings->quota_mode,
        .eventual = strcmp(settings->consistency, "eventual") == 0,
        .never_forks = true,
        .no_top_keys = !settings->top_keys,
        .near_limit_ratio = (float)settings->near_limit_ratio,
        .log = engine_says,
        .log_ctx = service,
    };
    int err = weir_open(&service->engine, &options);
    /* relaxed: no thread runs yet */
    atomic_store_explicit(&service->has_rules, options.rules_path && !service->has_heard_errors,
                          memory_order_relaxed);
    if (err != 0)
        complain_of_engine(service, err);
    return err;
}

static uint32_t thread_count(const struct weir_settings *settings)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (settings->threads > 0)
        return (uint32_t)settings->threads;
    return cores > 0 && cores <= 1024 ? (uint32_t)cores : 1;
}

static int make_workers(struct weir_service *service)
{
    uint32_t count = thread_count(service->settings);
    service->loops = calloc(count, sizeof(struct weir_loop *));
    service->workers =
        aligned_alloc(_Alignof(struct weir_worker), count * sizeof(struct weir_worker));
    if (service->loops == NULL || service->workers == NULL)
        return WEIR_ERR_NOMEM;
    memset(service->workers, 0, count * sizeof(struct weir_worker));
    for (uint32_t i = 0; i < count; i++) {
        service->worker_count++;
        int err = weir_worker_init(&service->workers[i], service, service->engine, i);
        if (err != 0) {
            weir_service_complain("cannot start thread %u: %s", i, weir_strerror(err));
            return err;
        }
        service->loops[i] = service->workers[i].loop;
    }
    return 0;
}

static int open_store(struct weir_service *service)
{
    char why[256] = "";
    int err =
        weir_ask_shared_new(&service->store, service->settings, service->log, why, sizeof(why));
    for (uint32_t i = 0; i < service->worker_count && err == 0 && service->store != NULL; i++) {
        struct weir_worker *worker = &service->workers[i];
        err = weir_asks_new(&worker->asks, worker, service->store, why, sizeof(why));
    }
    if (err == 0 && service->store != NULL)
        err = weir_eventual_new(&service->eventual, &service->workers[0], service->store, why,
                                sizeof(why));
    for (uint32_t i = 0; i < service->worker_count && service->eventual != NULL; i++)
        weir_asks_set_eventual(service->workers[i].asks, service->eventual);
    if (err != 0)
        weir_service_complain("the store: %s", why[0] != '\0' ? why : weir_strerror(err));
    return err;
}

static int start_workers(struct weir_service *service)
{
    uint32_t beat_ms = service->notify.watchdog_ms / 4;
    for (uint32_t i = 0; i < service->worker_count; i++) {
        int err = weir_worker_start(&service->workers[i], service->done_fd, beat_ms);
        if (err != 0) {
            weir_service_complain("cannot start thread %u: %s", i, weir_strerror(err));
            return err;
        }
    }
    return service->follow != NULL ? weir_rules_follow_start(service->follow) : 0;
}

static int start_statsd(struct weir_service *service)
{
    char why[256] = "";
    int err = weir_statsd_new(&service->statsd, service, service->loops[0], why, sizeof(why));
    if (err != 0)
        weir_service_complain("statsd: %s", why);
    return err;
}

static void say_ready(struct weir_service *service)
{
    for (size_t i = 0; i < service->listener_count; i++) {
        static const char *const names[] = {"grpc", "http", "resp", "desk", "admin"};
        const struct weir_service_listener *at = &service->listeners[i];
        WEIR_LOG(service->log, WEIR_LOG_INFO, "listening",
                 WEIR_LOG_TEXT("protocol", names[at->front]),
                 WEIR_LOG_TEXT("address", weir_listener_address(at->listener)),
                 WEIR_LOG_TEXT("tls", at->tls != NULL ? "yes" : "no"));
    }
    WEIR_LOG(service->log, WEIR_LOG_INFO, "ready", WEIR_LOG_TEXT("version", weir_version()),
             WEIR_LOG_TEXT("table", service->settings->table),
             WEIR_LOG_NUMBER("threads", service->worker_count),
             WEIR_LOG_NUMBER("rules_generation", weir_rules_generation(service->engine)));
    if (service->settings->rules[0] == '\0')
        WEIR_LOG(service->log, WEIR_LOG_WARN, "no_rules",
                 WEIR_LOG_TEXT("means", "--rules PATH is not given: only CL.THROTTLE, THROTTLE and "
                                        "limits that a request brings along are counted"));
    weir_notify_send(&service->notify, "READY=1\nSTATUS=serving");
}

/* ---- running ---- */

static uint64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The next signal that waits, or 0. */
static int next_signal(struct weir_service *service)
{
    struct signalfd_siginfo info;
    ssize_t got = read(service->signal_fd, &info, sizeof(info));
    return got == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

/* Settings other than the log's are read by workers at any time: they wait for a restart. */
static void reload_settings(struct weir_service *service)
{
    struct weir_settings fresh;
    struct weir_log_options options;
    if (weir_settings_load(&fresh, service->flags, environ, engine_says, service) == 0) {
        log_options(&fresh, &options);
        weir_log_configure(service->log, &options);
        for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++)
            if (strncmp(weir_setting_at(i)->id, "log_", 4) != 0 &&
                strcmp(fresh.sources[i].text, service->settings->sources[i].text) != 0)
                WEIR_LOG(service->log, WEIR_LOG_WARN, "setting waits for a restart",
                         WEIR_LOG_TEXT("setting", weir_setting_at(i)->id),
                         WEIR_LOG_TEXT("value", fresh.sources[i].text));
    }
    weir_settings_fini(&fresh);
}

/* Health has changed: those who watch it are told, each in its own thread. */
static void tell_health(struct weir_service *service)
{
    for (uint32_t i = 0; i < service->worker_count; i++)
        weir_loop_post(service->loops[i], &service->workers[i].health_post);
}

/* result: of weir_watch_step(), and not 0. */
static void note_rules(struct weir_service *service, int result)
{
    char before[32], after[48];
    uint64_t generation = weir_rules_generation(service->engine);
    uint64_t was = result == 1 ? generation - 1 : generation;
    snprintf(before, sizeof(before), "generation %" PRIu64, was);
    if (result == 1)
        snprintf(after, sizeof(after), "generation %" PRIu64, generation);
    else
        snprintf(after, sizeof(after), "rejected: %s", weir_strerror(result));
    weir_audit_add(service->audit,
                   &(struct weir_audit_change){.time_ns = weir_now(service->engine),
                                               .what = "rules",
                                               .target = weir_str_of(service->settings->rules),
                                               .before = before,
                                               .after = after});
}

static void look_at_rules(struct weir_service *service, int *timeout_ms)
{
    int result = weir_watch_step(service->engine, timeout_ms);
    if (result < 0) /* said, and changed nothing */
        atomic_fetch_add_explicit(&service->bad_rules, 1, memory_order_relaxed);
    if (result != 0)
        note_rules(service, result);
    if (result == 1 && !atomic_exchange_explicit(&service->has_rules, true, memory_order_relaxed))
        tell_health(service);
}

static void reload(struct weir_service *service)
{
    int timeout_ms;
    WEIR_LOG(service->log, WEIR_LOG_INFO, "reload", WEIR_LOG_TEXT("signal", "SIGHUP"));
    weir_notify_reloading(&service->notify);
    reload_settings(service);
    weir_service_reload_tls(service, true);
    look_at_rules(service, &timeout_ms);
    weir_notify_send(&service->notify, "READY=1\nSTATUS=serving");
}

/* systemd hears from us only while every loop turns: a stuck thread is as bad as a dead process. */
static void feed_watchdog(struct weir_service *service, uint64_t *beats_before)
{
    uint64_t least = UINT64_MAX;
    if (service->notify.watchdog_ms == 0)
        return;
    for (uint32_t i = 0; i < service->worker_count; i++) {
        uint64_t beats = atomic_load_explicit(&service->workers[i].beats, memory_order_relaxed);
        least = beats < least ? beats : least;
    }
    if (least > *beats_before) {
        *beats_before = least;
        weir_notify_send(&service->notify, "WATCHDOG=1");
    }
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* Until a signal says that it is enough. */
static void run_until_told(struct weir_service *service)
{
    uint64_t tls_due_ms = monotonic_ms() + TLS_LOOK_MS, beats = 0;
    int tick_ms = service->notify.watchdog_ms > 0
                      ? min_int(TICK_MS, (int)(service->notify.watchdog_ms / 4 + 1))
                      : TICK_MS;
    for (;;) {
        int rules_ms = TICK_MS, signal;
        struct pollfd fds[] = {{.fd = service->signal_fd, .events = POLLIN},
                               {.fd = weir_watch_fd(service->engine), .events = POLLIN}};
        look_at_rules(service, &rules_ms);
        if (poll(fds, 2, min_int(rules_ms, tick_ms)) < 0 && errno != EINTR)
            WEIR_ASSERT(errno == ENOMEM); /* nothing else can be wrong with two descriptors */
        while ((signal = next_signal(service)) != 0) {
            if (signal != SIGHUP)
                return;
            reload(service);
        }
        feed_watchdog(service, &beats);
        if (monotonic_ms() >= tls_due_ms) {
            weir_service_reload_tls(service, false);
            tls_due_ms = monotonic_ms() + TLS_LOOK_MS;
        }
    }
}

/* ---- going down ---- */

/* Waits for a descriptor, at most so long; a second signal ends all. */
static void wait_or_exit(struct weir_service *service, int fd, uint64_t wait_ms)
{
    uint64_t until_ms = monotonic_ms() + wait_ms, now_ms;
    while ((now_ms = monotonic_ms()) < until_ms) {
        int signal;
        struct pollfd fds[] = {{.fd = service->signal_fd, .events = POLLIN},
                               {.fd = fd, .events = POLLIN}};
        int ready = poll(fds, 2, (int)(until_ms - now_ms));
        while ((signal = next_signal(service)) != 0)
            if (signal != SIGHUP)
                _exit(EXIT_AT_ONCE); /* the table is good after any instruction */
        if (ready > 0 && fd >= 0 && (fds[1].revents & POLLIN) != 0)
            return;
    }
}

/* Others are to know what we have admitted.  Twice at least: what the first time found untold may
 * be under way. */
static void tell_last(struct weir_service *service)
{
    struct weir_eventual *e = service->eventual;
    for (int i = 0; e != NULL && i < LAST_TRIES; i++) {
        if (i >= 2 && weir_eventual_count(e, WEIR_EVENTUAL_COUNT_DIRTY) == 0)
            return;
        weir_eventual_flush(e);
        wait_or_exit(service, -1, LAST_TRY_MS);
    }
}

/* Tokens in hand would be lost to everybody else; whoever still asks does so without them. */
static void return_leases(struct weir_service *service)
{
    if (service->store == NULL)
        return;
    for (uint32_t i = 0; i < service->worker_count; i++)
        weir_loop_post(service->loops[i], &service->workers[i].end_post);
    wait_or_exit(service, -1, LAST_TRY_MS);
}

static void go_down(struct weir_service *service)
{
    const struct weir_settings *settings = service->settings;
    atomic_store_explicit(&service->is_going_down, true, memory_order_relaxed);
    tell_health(service);
    if (service->follow != NULL)
        weir_rules_follow_stop(service->follow);
    weir_notify_send(&service->notify, "STOPPING=1\nSTATUS=draining");
    WEIR_LOG(service->log, WEIR_LOG_INFO, "draining",
             WEIR_LOG_NUMBER("delay_ms", settings->drain_delay),
             WEIR_LOG_NUMBER("grace_ms", settings->grace));
    wait_or_exit(service, -1, settings->drain_delay);
    for (size_t i = 0; i < service->listener_count; i++)
        weir_listener_close(service->listeners[i].listener);
    tell_last(service);
    return_leases(service);
    for (uint32_t i = 0; i < service->worker_count; i++)
        weir_loop_stop(service->loops[i], (uint32_t)settings->grace);
    for (uint32_t ended = 0; ended < service->worker_count;) {
        eventfd_t count;
        wait_or_exit(service, service->done_fd, 3600 * 1000);
        if (eventfd_read(service->done_fd, &count) == 0)
            ended += (uint32_t)count;
    }
}

/* Accepts a service that was made in part. */
static void fini(struct weir_service *service)
{
    for (uint32_t i = 0; i < service->worker_count; i++)
        if (service->workers[i].is_started)
            weir_loop_stop(service->workers[i].loop, 0);
    for (uint32_t i = 0; i < service->worker_count; i++)
        weir_worker_join(&service->workers[i]);
    weir_statsd_free(service->statsd);       /* it reads the workers' counts */
    weir_rules_follow_free(service->follow); /* it posts to the loops */
    for (size_t i = 0; i < service->listener_count; i++)
        weir_listener_free(service->listeners[i].listener);
    weir_eventual_stop(service->eventual); /* its connections are the first loop's */
    for (uint32_t i = 0; i < service->worker_count; i++)
        weir_worker_fini(&service->workers[i]);
    weir_eventual_free(service->eventual);
    weir_ask_shared_free(service->store);
    for (size_t i = 0; i < service->listener_count; i++)
        weir_tls_free(service->listeners[i].tls);
    free(service->workers);
    free(service->loops);
    weir_close(service->engine);
    weir_notify_fini(&service->notify);
    if (service->signal_fd >= 0)
        close(service->signal_fd);
    if (service->done_fd >= 0)
        close(service->done_fd);
    weir_audit_free(service->audit);
    weir_log_free(service->log);
}

int weir_service_run(const struct weir_settings *settings, const char *const *flags)
{
    struct weir_service service = {
        .settings = settings, .flags = flags, .signal_fd = -1, .done_fd = -1, .notify = {.fd = -1}};
    struct weir_log_options options;
    char why[256];
    log_options(settings, &options);
    int err = weir_log_new(&service.log, STDERR_FILENO, &options);
    if (err == 0)
        err = weir_audit_new(&service.audit, service.log);
    if (err == 0)
        err = open_signals(&service);
    if (err != 0)
        weir_service_complain("cannot start: %s", strerror(errno));
    weir_net_raise_files();
    weir_notify_init(&service.notify, why, sizeof(why));
    if (err == 0)
        err = read_http_options(&service);
    if (err == 0)
        err = open_rules_store(&service);
    if (err == 0)
        err = open_engine(&service);
    if (err == 0)
        err = make_workers(&service);
    if (err == 0)
        err = open_store(&service);
    if (err == 0)
        err = weir_service_listen(&service);
    if (err == 0)
        err = start_statsd(&service);
    if (err == 0)
        err = start_workers(&service);
    if (err == 0) {
        service.is_started = true;
        if (why[0] != '\0')
            WEIR_LOG(service.log, WEIR_LOG_WARN, "systemd not notified", WEIR_LOG_TEXT("why", why));
        say_ready(&service);
        run_until_told(&service);
        go_down(&service);
        WEIR_LOG(service.log, WEIR_LOG_INFO, "gone", WEIR_LOG_NUMBER("pid", (uint64_t)getpid()));
    }
    fini(&service);
    return err;
}
