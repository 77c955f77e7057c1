/* log.h - lines for people and their tools: logfmt or JSON, on stderr, never too many.
 *
 *     time=2026-01-31T12:00:00.123Z level=info event=listening protocol=grpc address=127.0.0.1:8081
 *
 * A line is an event and fields; it is built on the stack and leaves in one write().  Whatever a
 * field holds is escaped, so no client can forge a line.  Keys and values of requests are given as
 * WEIR_LOG_KEY and appear as a keyed hash unless log_keys is plain: lines about one key can be
 * brought together, and nobody's address is in the log.  Over log_rate lines in a second the rest
 * are counted, and the count is told with the first line of a later second.
 *
 * Threads: any, at once; no lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_LOG_H
#define WEIR_SERVE_LOG_H

#include "base/str.h"

#include <weir/weir.h>

struct weir_log;

enum weir_log_level { WEIR_LOG_ERROR, WEIR_LOG_WARN, WEIR_LOG_INFO, WEIR_LOG_DEBUG };

enum weir_log_kind { WEIR_LOG_KIND_TEXT, WEIR_LOG_KIND_KEY, WEIR_LOG_KIND_NUMBER };

struct weir_log_field {
    const char *name;
    enum weir_log_kind kind;
    struct weir_str text;
    uint64_t number;
};

#define WEIR_LOG_TEXT(name_, cstr)                                                                 \
    ((struct weir_log_field){.name = (name_), .text = weir_str_of(cstr)})
#define WEIR_LOG_STR(name_, str) ((struct weir_log_field){.name = (name_), .text = (str)})
#define WEIR_LOG_KEY(name_, str)                                                                   \
    ((struct weir_log_field){.name = (name_), .kind = WEIR_LOG_KIND_KEY, .text = (str)})
#define WEIR_LOG_NUMBER(name_, value)                                                              \
    ((struct weir_log_field){.name = (name_), .kind = WEIR_LOG_KIND_NUMBER, .number = (value)})

/* WEIR_LOG(log, WEIR_LOG_INFO, "listening", WEIR_LOG_TEXT("address", a)); one field at least. */
#define WEIR_LOG(log, level, event, ...)                                                           \
    weir_log_write((log), (level), (event), (const struct weir_log_field[]){__VA_ARGS__},          \
                   sizeof((const struct weir_log_field[]){__VA_ARGS__}) /                          \
                       sizeof(struct weir_log_field))

struct weir_log_options {
    enum weir_log_level level;
    bool is_json;
    bool shows_keys;
    uint32_t lines_per_s;
};

/* Writes to fd, which stays the caller's. */
WEIR_MUST_CHECK int weir_log_new(struct weir_log **out, int fd,
                                 const struct weir_log_options *options);
void weir_log_free(struct weir_log *log);
/* At any time; lines that are being written may follow either. */
void weir_log_configure(struct weir_log *log, const struct weir_log_options *options);

void weir_log_write(struct weir_log *log, enum weir_log_level level, const char *event,
                    const struct weir_log_field *fields, size_t count);
/* Whether a line of this level would be written: for those that are costly to put together. */
bool weir_log_wants(const struct weir_log *log, enum weir_log_level level);

#endif
