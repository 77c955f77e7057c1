/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/log.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define LINE_LEN 4096
#define FIELD_LEN_MAX 1024 /* bytes of a field that are shown */

struct weir_log {
    int fd;
    struct weir_hash_key hash_key; /* of this process: hashes of two runs do not compare */
    _Atomic uint32_t level, lines_per_s;
    _Atomic bool is_json, shows_keys;
    _Atomic uint64_t window; /* second << 32 | lines in it */
    _Atomic uint64_t dropped;
};

/* A line in the making; what does not fit is left out, the end always fits. */
struct line {
    char bytes[LINE_LEN];
    size_t len;
    bool is_json;
};

#define TAIL_LEN 8 /* for `"}\n` */

static void put(struct line *line, const char *text, size_t len)
{
    if (len > LINE_LEN - TAIL_LEN - line->len)
        return;
    memcpy(line->bytes + line->len, text, len);
    line->len += len;
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

/* Both formats take JSON's escapes; bytes beyond ASCII appear as escapes too, for nobody has
 * checked that they are UTF-8. */
static void put_escaped(struct line *line, struct weir_str text)
{
    size_t len = text.len < FIELD_LEN_MAX ? text.len : FIELD_LEN_MAX;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        char escape[8];
        if (c == '"' || c == '\\')
            put(line, (const char[]){'\\', (char)c}, 2);
        else if (c >= 0x20 && c < 0x7f)
            put(line, (const char *)&text.ptr[i], 1);
        else
            put(line, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", c));
    }
    if (len < text.len)
        put_text(line, "...");
}

static bool needs_quotes(struct weir_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c <= 0x20 || c >= 0x7f || c == '"' || c == '=' || c == '\\')
            return true;
    }
    return text.len == 0;
}

static void put_name(struct line *line, const char *name)
{
    if (line->is_json) {
        put_text(line, line->len == 0 ? "{\"" : ",\"");
        put_text(line, name);
        put_text(line, "\":");
    } else {
        if (line->len > 0)
            put_text(line, " ");
        put_text(line, name);
        put_text(line, "=");
    }
}

static void put_pair(struct line *line, const char *name, struct weir_str text)
{
    bool quotes = line->is_json || needs_quotes(text);
    put_name(line, name);
    if (quotes)
        put_text(line, "\"");
    put_escaped(line, text);
    if (quotes)
        put_text(line, "\"");
}

static void put_number(struct line *line, const char *name, uint64_t number)
{
    char digits[24];
    put_name(line, name);
    put(line, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, number));
}

static void put_field(struct weir_log *log, struct line *line, const struct weir_log_field *field)
{
    char hash[20];
    bool shows_keys = atomic_load_explicit(&log->shows_keys, memory_order_relaxed);
    switch (field->kind) {
    case WEIR_LOG_KIND_NUMBER:
        put_number(line, field->name, field->number);
        return;
    case WEIR_LOG_KIND_KEY:
        if (!shows_keys) {
            snprintf(hash, sizeof(hash), "#%016" PRIx64,
                     weir_siphash13(&log->hash_key, field->text.ptr, field->text.len));
            put_pair(line, field->name, weir_str_of(hash));
            return;
        }
        break;
    case WEIR_LOG_KIND_TEXT:
        break;
    }
    put_pair(line, field->name, field->text);
}

static void begin_line(struct weir_log *log, struct line *line, enum weir_log_level level,
                       const char *event, const struct timespec *now)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    struct tm utc;
    char time[64], seconds[32];
    line->len = 0;
    line->is_json = atomic_load_explicit(&log->is_json, memory_order_relaxed);
    gmtime_r(&now->tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time, sizeof(time), "%s.%03dZ", seconds, (int)(now->tv_nsec / 1000000));
    put_pair(line, "time", weir_str_of(time));
    put_pair(line, "level", weir_str_of(levels[level]));
    put_pair(line, "event", weir_str_of(event));
}

static void end_line(struct weir_log *log, struct line *line)
{
    const char *end = line->is_json ? "}\n" : "\n";
    memcpy(line->bytes + line->len, end, strlen(end));
    line->len += strlen(end);
    /* A log that cannot be written is no reason to stop: there is nobody to tell. */
    ssize_t wrote = write(log->fd, line->bytes, line->len);
    (void)wrote;
}

/* Whether this second has a line left. */
static bool take_line(struct weir_log *log, uint64_t second)
{
    uint32_t most = atomic_load_explicit(&log->lines_per_s, memory_order_relaxed);
    /* relaxed: the window is all that is shared, and it is one word */
    uint64_t old = atomic_load_explicit(&log->window, memory_order_relaxed), new;
    do {
        uint64_t count = old >> 32 == (second & UINT32_MAX) ? old & UINT32_MAX : 0;
        if (count >= most)
            return false;
        new = second << 32 | (count + 1);
    } while (!atomic_compare_exchange_weak_explicit(&log->window, &old, new, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

bool weir_log_wants(const struct weir_log *log, enum weir_log_level level)
{
    return (uint32_t)level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

void weir_log_write(struct weir_log *log, enum weir_log_level level, const char *event,
                    const struct weir_log_field *fields, size_t count)
{
    struct line line;
    struct timespec now;
    if (!weir_log_wants(log, level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!take_line(log, (uint64_t)now.tv_sec)) {
        atomic_fetch_add_explicit(&log->dropped, 1, memory_order_relaxed);
        return;
    }
    uint64_t dropped = atomic_exchange_explicit(&log->dropped, 0, memory_order_relaxed);
    if (dropped > 0) {
        begin_line(log, &line, WEIR_LOG_WARN, "lines dropped", &now);
        put_number(&line, "count", dropped);
        end_line(log, &line);
    }
    begin_line(log, &line, level, event, &now);
    for (size_t i = 0; i < count; i++)
        put_field(log, &line, &fields[i]);
    end_line(log, &line);
}

void weir_log_configure(struct weir_log *log, const struct weir_log_options *options)
{
    atomic_store_explicit(&log->level, (uint32_t)options->level, memory_order_relaxed);
    atomic_store_explicit(&log->lines_per_s, options->lines_per_s, memory_order_relaxed);
    atomic_store_explicit(&log->is_json, options->is_json, memory_order_relaxed);
    atomic_store_explicit(&log->shows_keys, options->shows_keys, memory_order_relaxed);
}

int weir_log_new(struct weir_log **out, int fd, const struct weir_log_options *options)
{
    struct weir_log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return WEIR_ERR_NOMEM;
    log->fd = fd;
    weir_log_configure(log, options);
    if (getrandom(&log->hash_key, sizeof(log->hash_key), 0) != sizeof(log->hash_key)) {
        free(log);
        return WEIR_ERR_IO;
    }
    *out = log;
    return 0;
}

void weir_log_free(struct weir_log *log)
{
    free(log);
}
