/* lines.h - a file, line by line, in bounded memory.
 *
 * getline() would let one endless line eat all memory; here a line that is too long is skipped and
 * reported, and reading goes on behind it.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_LINES_H
#define WEIR_CLI_LINES_H

#include <stdint.h>
#include <stdio.h>
#include <weir/weir.h>

struct cli_lines {
    FILE *file; /* borrowed */
    char *buf;
    size_t len_max;    /* of a line */
    size_t capacity;   /* of buf */
    size_t begin, end; /* what has been read and not yet returned */
    uint64_t number;   /* of the line returned last; the first is 1 */
};

/* 0, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int cli_lines_init(struct cli_lines *lines, FILE *file, size_t len_max);
/* 1 with the next line, without its newline and valid until the next call; 0 at the end; or
 * WEIR_ERR_TOO_LARGE for a line that is skipped, WEIR_ERR_IO, WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int cli_lines_next(struct cli_lines *lines, struct weir_str *out);
void cli_lines_fini(struct cli_lines *lines);

#endif
