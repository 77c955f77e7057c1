/* files.h - the files of a rules directory: found in a fixed order, read whole, checked to be text.
 *
 * Purity: reads files.  Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_FILES_H
#define WEIR_RULES_FILES_H

#include "rules/report.h"

/* One file's bytes.  In an arena, for a heap would keep them after they are freed. */
struct weir_file {
    struct weir_arena arena;
    char *ptr;
    size_t len;
};

/* Reads a regular file of at most WEIR_RULES_FILE_MAX bytes of UTF-8.  False: reported at `at`,
 * with the name of the file where `at` is not in it (file 0: the report needs no name). */
WEIR_MUST_CHECK bool weir_file_read(struct weir_file *out, struct weir_report *report,
                                    struct weir_mark at, const char *path);
void weir_file_free(struct weir_file *file);

/* False where a byte is no UTF-8 or NUL; the report says which. */
WEIR_MUST_CHECK bool weir_file_is_text(struct weir_report *report, uint32_t file,
                                       struct weir_str text);

/* Calls each with the path of every file below path, or with path itself where it is a file,
 * sorted.  0, or WEIR_ERR_IO, WEIR_ERR_RULES, WEIR_ERR_NOMEM; reported. */
WEIR_MUST_CHECK int weir_files_each(struct weir_report *report, const char *path,
                                    bool (*each)(void *ctx, const char *path), void *ctx);

#endif
