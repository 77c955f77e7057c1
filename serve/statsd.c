/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/statsd.h"

#include "base/str.h"
#include "engine/engine.h"
#include "engine/publish.h"
#include "net/datagram.h"
#include "net/outlet.h"
#include "proto/text.h"
#include "serve/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELD_MAX (1u << 20) /* bytes for a TCP server that is away, or slow */
#define DATAGRAM_LEN 1400   /* below what Ethernet carries in one piece */
#define TIME_LINE_MAX 128   /* bytes */

struct weir_statsd {
    int fd;                     /* UDP; -1: none */
    struct weir_outlet *outlet; /* TCP; NULL: none */
    bool was_connected;
    struct weir_service *service;
    uint64_t rules[WEIR_STATS_RULES_MAX + 1][WEIR_COUNTERS]; /* as last sent, by rule->stat */
    uint64_t values[WEIR_VALUE_PLACES][WEIR_COUNTERS];       /* by their place */
    uint64_t strangers[WEIR_VALUE_PLACES];
    uint64_t loads, bad_loads, calls, errors, shadowed;
    uint64_t times[WEIR_RESPONSE_BUCKETS], times_us[WEIR_RESPONSE_BUCKETS];
    struct weir_text text;
    char datagram[DATAGRAM_LEN];
};

static void send_lines(struct weir_statsd *statsd)
{
    size_t len = weir_text_len(&statsd->text);
    if (len > 0 && statsd->outlet != NULL)
        weir_outlet_put(statsd->outlet, statsd->datagram, len);
    else if (len > 0)
        (void)weir_datagram_send(statsd->fd, statsd->datagram, len); /* lost is lost */
    statsd->text = weir_text_in(statsd->datagram, sizeof(statsd->datagram));
}

static void write_line(struct weir_text *text, const char *prefix, struct weir_str path,
                       const char *suffix, uint64_t delta)
{
    weir_text_put(text, weir_str_of(prefix));
    size_t begin = weir_text_len(text);
    weir_text_put(text, path);
    weir_rules_stats_clean(text->begin + begin, weir_text_len(text) - begin);
    weir_text_put(text, weir_str_of(suffix));
    weir_text_put_char(text, ':');
    weir_text_put_number(text, delta);
    WEIR_TEXT_PUT(text, "|c\n");
}

/* One counter, if it has grown.  A name longer than a datagram is left out. */
static void put(struct weir_statsd *statsd, const char *prefix, struct weir_str path,
                const char *suffix, uint64_t *last, uint64_t now)
{
    uint64_t delta = now - *last;
    *last = now;
    for (int try = 0; delta > 0 && try < 2; try++) {
        struct weir_text before = statsd->text;
        write_line(&statsd->text, prefix, path, suffix, delta);
        if (!statsd->text.has_overflowed)
            return;
        statsd->text = before;
        send_lines(statsd);
    }
}

static const char *const names[WEIR_COUNTERS] = {
    [WEIR_COUNTER_TOTAL_HITS] = ".total_hits",
    [WEIR_COUNTER_OVER_LIMIT] = ".over_limit",
    [WEIR_COUNTER_NEAR_LIMIT] = ".near_limit",
    [WEIR_COUNTER_WITHIN_LIMIT] = ".within_limit",
    [WEIR_COUNTER_SHADOW_MODE] = ".shadow_mode",
    [WEIR_COUNTER_BY_SKETCH] = NULL,
    [WEIR_COUNTER_NEGATIVE_HITS] = ".total_negative_hits",
};

/* Rules whose statistics have values in their names are there under these names only. */
static void put_rules(struct weir_statsd *statsd, bool is_sent)
{
    struct weir *w = weir_service_engine(statsd->service);
    struct weir_published *p = weir_publish_borrow(w);
    uint32_t count = p->rules ? weir_rules_count(p->rules) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_rule *rule = weir_rules_at(p->rules, i);
        if (rule->stat == 0 || rule->stat > WEIR_STATS_RULES_MAX)
            continue;
        for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++) {
            uint64_t *last = &statsd->rules[rule->stat][c];
            uint64_t now = weir_stats_read(w->table, rule->stat, c);
            if (is_sent && names[c] != NULL && !rule->has_value_stats)
                put(statsd, "ratelimit.service.rate_limit.", rule->info.id, names[c], last, now);
            *last = now;
        }
    }
    weir_publish_return(w, p);
}

static void put_values(struct weir_statsd *statsd)
{
    const struct weir_value_stats *values =
        atomic_load_explicit(&weir_service_engine(statsd->service)->values, memory_order_acquire);
    for (uint32_t i = 0; i < WEIR_VALUE_PLACES; i++) {
        const struct weir_value_stat *stat = weir_value_stats_at(values, i);
        for (enum weir_counter c = 0; stat != NULL && c < WEIR_COUNTERS; c++) {
            if (names[c] != NULL)
                put(statsd, "ratelimit.service.rate_limit.",
                    (struct weir_str){.ptr = stat->name, .len = stat->len}, names[c],
                    &statsd->values[i][c],
                    atomic_load_explicit(&stat->counts[c], memory_order_relaxed));
        }
    }
}

static void put_strangers(struct weir_statsd *statsd)
{
    const struct weir_value_stats *strangers = weir_service_engine(statsd->service)->strangers;
    for (uint32_t i = 0; i < WEIR_VALUE_PLACES; i++) {
        const struct weir_value_stat *stat = weir_value_stats_at(strangers, i);
        if (stat != NULL)
            put(statsd, "ratelimit.service.rate_limit.",
                (struct weir_str){.ptr = stat->name, .len = stat->len}, ".domain_not_found",
                &statsd->strangers[i],
                atomic_load_explicit(&stat->counts[WEIR_COUNTER_TOTAL_HITS], memory_order_relaxed));
    }
}

/* 1/n, never more: who takes 1/rate for a whole number must not get one less. */
static void put_rate(struct weir_text *text, uint64_t n)
{
    const uint64_t digits = UINT64_C(1000000000000000);
    char rate[24];
    int len = snprintf(rate, sizeof(rate), "0.%015llu", (unsigned long long)(digits / n));
    while (rate[len - 1] == '0')
        len--;
    WEIR_TEXT_PUT(text, "|@");
    weir_text_put(text, (struct weir_str){.ptr = rate, .len = (size_t)len});
}

/* n calls that took so long together. */
static void write_time(struct weir_text *text, uint64_t n, uint64_t sum_us)
{
    char ms[32];
    uint64_t mean_us = sum_us / n;
    int len = snprintf(ms, sizeof(ms), "%llu.%03llu", (unsigned long long)(mean_us / 1000),
                       (unsigned long long)(mean_us % 1000));
    WEIR_TEXT_PUT(text, "ratelimit_server.ShouldRateLimit.response_time:");
    weir_text_put(text, (struct weir_str){.ptr = ms, .len = (size_t)len});
    WEIR_TEXT_PUT(text, "|ms");
    if (n > 1)
        put_rate(text, n);
    weir_text_put_char(text, '\n');
}

static void put_times(struct weir_statsd *statsd)
{
    for (uint32_t bucket = 0; bucket < WEIR_RESPONSE_BUCKETS; bucket++) {
        uint64_t n = 0, sum_us = 0;
        for (uint32_t i = 0; i < weir_service_worker_count(statsd->service); i++) {
            struct weir_response_times *times =
                &weir_service_worker(statsd->service, i)->grpc_times;
            n += atomic_load_explicit(&times->counts[bucket], memory_order_relaxed);
            sum_us += atomic_load_explicit(&times->sums_us[bucket], memory_order_relaxed);
        }
        uint64_t more = n - statsd->times[bucket], more_us = sum_us - statsd->times_us[bucket];
        if (more == 0)
            continue;
        statsd->times[bucket] = n;
        statsd->times_us[bucket] = sum_us;
        if ((size_t)(statsd->text.end - statsd->text.at) < TIME_LINE_MAX)
            send_lines(statsd);
        write_time(&statsd->text, more, more_us);
    }
}

/* What a connection does is worth a line when it changes. */
static void flush_outlet(struct weir_statsd *statsd)
{
    weir_outlet_flush(statsd->outlet);
    bool is_connected = weir_outlet_is_connected(statsd->outlet);
    if (is_connected == statsd->was_connected)
        return;
    statsd->was_connected = is_connected;
    WEIR_LOG(weir_service_log(statsd->service), is_connected ? WEIR_LOG_INFO : WEIR_LOG_WARN,
             is_connected ? "statsd connected" : "statsd connection lost",
             WEIR_LOG_TEXT("address", weir_service_settings(statsd->service)->statsd),
             WEIR_LOG_NUMBER("bytes_lost", weir_outlet_lost(statsd->outlet)));
}

static void flush(void *ctx)
{
    struct weir_statsd *statsd = ctx;
    struct weir_str none = {0};
    put_rules(statsd, true);
    put_values(statsd);
    put_strangers(statsd);
    put(statsd, "ratelimit.service.config_load_success", none, "", &statsd->loads,
        weir_rules_generation(weir_service_engine(statsd->service)));
    put(statsd, "ratelimit.service.config_load_error", none, "", &statsd->bad_loads,
        weir_service_bad_rules(statsd->service));
    put(statsd, "ratelimit.service.global_shadow_mode", none, "", &statsd->shadowed,
        weir_service_shadowed(statsd->service));
    put(statsd, "ratelimit.service.call.should_rate_limit.service_error", none, "", &statsd->errors,
        weir_service_count(statsd->service, WEIR_FRONT_GRPC, WEIR_FRONT_COUNT_BAD));
    put(statsd, "ratelimit_server.ShouldRateLimit.total_requests", none, "", &statsd->calls,
        weir_service_count(statsd->service, WEIR_FRONT_GRPC, WEIR_FRONT_COUNT_REQUESTS));
    put_times(statsd);
    send_lines(statsd);
    if (statsd->outlet != NULL)
        flush_outlet(statsd);
}

static int open_way(struct weir_statsd *statsd, const struct weir_settings *settings, char *why,
                    size_t why_len)
{
    statsd->fd = -1;
    if (strcmp(settings->statsd_protocol, "tcp") == 0)
        return weir_outlet_new(&statsd->outlet, settings->statsd, HELD_MAX, why, why_len);
    return weir_datagram_open(&statsd->fd, settings->statsd, why, why_len);
}

static void close_way(struct weir_statsd *statsd)
{
    weir_outlet_free(statsd->outlet);
    if (statsd->fd >= 0)
        close(statsd->fd);
    free(statsd);
}

bool weir_statsd_is_on(const struct weir_settings *settings)
{
    return settings->statsd[0] != '\0' && strcmp(settings->statsd, "off") != 0;
}

int weir_statsd_new(struct weir_statsd **out, struct weir_service *service, struct weir_loop *loop,
                    char *why, size_t why_len)
{
    const struct weir_settings *settings = weir_service_settings(service);
    *out = NULL;
    if (!weir_statsd_is_on(settings))
        return 0;
    struct weir_statsd *statsd = calloc(1, sizeof(*statsd));
    if (statsd == NULL) {
        snprintf(why, why_len, "out of memory");
        return WEIR_ERR_NOMEM;
    }
    int err = open_way(statsd, settings, why, why_len);
    if (err != 0) {
        free(statsd);
        return err;
    }
    statsd->service = service;
    statsd->text = weir_text_in(statsd->datagram, sizeof(statsd->datagram));
    put_rules(statsd, false); /* what was counted before we came has been sent by others */
    struct weir_loop_timer *timer;
    err = weir_loop_every(loop, &timer, (uint32_t)settings->statsd_interval, flush, statsd);
    if (err != 0) {
        snprintf(why, why_len, "%s", weir_strerror(err));
        close_way(statsd);
        return err;
    }
    *out = statsd;
    return 0;
}

void weir_statsd_free(struct weir_statsd *statsd)
{
    if (statsd == NULL)
        return;
    flush(statsd);
    close_way(statsd);
}
