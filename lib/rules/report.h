/* report.h - what is wrong with the rules, collected: `file:line:column: text`.
 *
 * A load reads all files before it gives up, so that whoever wrote them sees every error at once.
 * They are found in the order of the work (read, parse, compile) and told in the order of the
 * files.  At most WEIR_REPORT_MAX errors and as many warnings are kept; the rest are counted.
 *
 * Purity: no I/O; the log function is called by weir_report_flush() only.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_REPORT_H
#define WEIR_RULES_REPORT_H

#include "base/arena.h"
#include "base/maxima.h"

#include <weir/weir.h>

/* Where in the rules.  file: a number from weir_report_file(); 0: no file at all.  Lines and
 * columns count from 1; 0: the file as a whole. */
struct weir_mark {
    uint32_t file, line, column;
};

struct weir_report_entry {
    struct weir_mark at;
    struct weir_str text; /* in the report's arena */
};

struct weir_report {
    struct weir_arena arena;
    const char **files; /* names, borrowed; files[0] is unused */
    uint32_t file_count, file_cap;
    uint32_t error_count, warning_count; /* found, not only kept */
    struct weir_report_entry errors[WEIR_REPORT_MAX];
    struct weir_report_entry warnings[WEIR_REPORT_MAX];
};

void weir_report_init(struct weir_report *report);
void weir_report_fini(struct weir_report *report);

/* A number for a file name, which is copied; 0 when out of memory. */
uint32_t weir_report_file(struct weir_report *report, const char *name);

void weir_report_error(struct weir_report *report, struct weir_mark at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void weir_report_warning(struct weir_report *report, struct weir_mark at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Tells everything to log, in the order of files and lines. */
void weir_report_flush(struct weir_report *report, weir_log_fn log, void *log_ctx);

#endif
