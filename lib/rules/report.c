/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/report.h"

#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_LEN_MAX 1024 /* of one message; values inside it are cut by those who print them */
#define LINE_LEN_MAX (TEXT_LEN_MAX + 512)

void weir_report_init(struct weir_report *report)
{
    *report = (struct weir_report){0};
    weir_arena_init(&report->arena);
}

void weir_report_fini(struct weir_report *report)
{
    free(report->files);
    report->files = NULL;
    weir_arena_fini(&report->arena);
}

uint32_t weir_report_file(struct weir_report *report, const char *name)
{
    if (report->file_count + 1 >= report->file_cap) {
        uint32_t cap = report->file_cap ? report->file_cap * 2 : 16;
        const char **files = realloc(report->files, cap * sizeof(*files));
        if (!files)
            return 0;
        report->files = files;
        report->file_cap = cap;
    }
    size_t len = strlen(name);
    char *copy = weir_arena_alloc(&report->arena, len + 1, 1);
    if (!copy)
        return 0;
    memcpy(copy, name, len);
    report->files[++report->file_count] = copy;
    return report->file_count;
}

/* A message is one line, whatever bytes of a file it quotes. */
static void make_printable(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            text[i] = '?';
    }
}

__attribute__((format(printf, 4, 0))) static void keep(struct weir_report *report,
                                                       struct weir_report_entry *entry,
                                                       struct weir_mark at, const char *format,
                                                       va_list args)
{
    char text[TEXT_LEN_MAX];
    int printed = vsnprintf(text, sizeof(text), format, args);
    size_t len = printed < 0 ? 0 : (size_t)printed;
    if (len >= sizeof(text))
        len = sizeof(text) - 1;
    make_printable(text, len);
    entry->at = at;
    entry->text = weir_arena_str(&report->arena, (struct weir_str){.ptr = text, .len = len});
}

void weir_report_error(struct weir_report *report, struct weir_mark at, const char *format, ...)
{
    if (report->error_count++ >= WEIR_REPORT_MAX)
        return;
    va_list args;
    va_start(args, format);
    keep(report, &report->errors[report->error_count - 1], at, format, args);
    va_end(args);
}

void weir_report_warning(struct weir_report *report, struct weir_mark at, const char *format, ...)
{
    if (report->warning_count++ >= WEIR_REPORT_MAX)
        return;
    va_list args;
    va_start(args, format);
    keep(report, &report->warnings[report->warning_count - 1], at, format, args);
    va_end(args);
}

static int compare_u32(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right)
{
    const struct weir_mark *a = &((const struct weir_report_entry *)left)->at;
    const struct weir_mark *b = &((const struct weir_report_entry *)right)->at;
    int order = compare_u32(a->file, b->file);
    if (order == 0)
        order = compare_u32(a->line, b->line);
    if (order == 0)
        order = compare_u32(a->column, b->column);
    return order;
}

static uint32_t kept(uint32_t count)
{
    return count < WEIR_REPORT_MAX ? count : WEIR_REPORT_MAX;
}

static void tell(const struct weir_report *report, const struct weir_report_entry *entry,
                 enum weir_level level, weir_log_fn log, void *log_ctx)
{
    char line[LINE_LEN_MAX];
    const struct weir_mark *at = &entry->at;
    const char *kind = level == WEIR_LEVEL_WARNING ? "warning: " : "";
    if (at->file == 0)
        snprintf(line, sizeof(line), "%s%.*s", kind, WEIR_STR_ARG(entry->text));
    else if (at->line == 0)
        snprintf(line, sizeof(line), "%s: %s%.*s", report->files[at->file], kind,
                 WEIR_STR_ARG(entry->text));
    else
        snprintf(line, sizeof(line), "%s:%u:%u: %s%.*s", report->files[at->file], at->line,
                 at->column, kind, WEIR_STR_ARG(entry->text));
    log(log_ctx, level, line);
}

static void tell_rest(uint32_t count, const char *what, enum weir_level level, weir_log_fn log,
                      void *log_ctx)
{
    if (count <= WEIR_REPORT_MAX)
        return;
    char line[64];
    snprintf(line, sizeof(line), "and %u more %s", count - WEIR_REPORT_MAX, what);
    log(log_ctx, level, line);
}

void weir_report_flush(struct weir_report *report, weir_log_fn log, void *log_ctx)
{
    if (!log)
        return;
    uint32_t errors = kept(report->error_count);
    uint32_t warnings = kept(report->warning_count);
    qsort(report->errors, errors, sizeof(report->errors[0]), by_place);
    qsort(report->warnings, warnings, sizeof(report->warnings[0]), by_place);
    for (uint32_t e = 0, w = 0; e < errors || w < warnings;) {
        bool is_error = w == warnings ||
                        (e < errors && by_place(&report->errors[e], &report->warnings[w]) <= 0);
        if (is_error)
            tell(report, &report->errors[e++], WEIR_LEVEL_ERROR, log, log_ctx);
        else
            tell(report, &report->warnings[w++], WEIR_LEVEL_WARNING, log, log_ctx);
    }
    tell_rest(report->error_count, "errors", WEIR_LEVEL_ERROR, log, log_ctx);
    tell_rest(report->warning_count, "warnings", WEIR_LEVEL_WARNING, log, log_ctx);
}
