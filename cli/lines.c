/* SPDX-License-Identifier: Apache-2.0 */
#include "lines.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST (256u << 10)

int cli_lines_init(struct cli_lines *lines, FILE *file, size_t len_max)
{
    *lines = (struct cli_lines){.file = file, .len_max = len_max, .capacity = CAPACITY_FIRST};
    lines->buf = malloc(lines->capacity);
    return lines->buf != NULL ? 0 : WEIR_ERR_NOMEM;
}

void cli_lines_fini(struct cli_lines *lines)
{
    free(lines->buf);
}

/* Makes room behind `end`: moves what is left to the front, then grows. */
static int make_room(struct cli_lines *lines)
{
    if (lines->begin > 0) {
        memmove(lines->buf, lines->buf + lines->begin, lines->end - lines->begin);
        lines->end -= lines->begin;
        lines->begin = 0;
    }
    if (lines->end < lines->capacity)
        return 0;
    if (lines->capacity > lines->len_max)
        return WEIR_ERR_TOO_LARGE;
    char *grown = realloc(lines->buf, lines->capacity * 2);
    if (grown == NULL)
        return WEIR_ERR_NOMEM;
    lines->buf = grown;
    lines->capacity *= 2;
    return 0;
}

/* 1 where something came, 0 at the end of the file. */
static int read_more(struct cli_lines *lines)
{
    size_t got = fread(lines->buf + lines->end, 1, lines->capacity - lines->end, lines->file);
    lines->end += got;
    if (got > 0)
        return 1;
    return ferror(lines->file) ? WEIR_ERR_IO : 0;
}

/* Drops the rest of a line that is too long. */
static int skip_line(struct cli_lines *lines)
{
    for (;;) {
        char *newline = memchr(lines->buf + lines->begin, '\n', lines->end - lines->begin);
        if (newline != NULL) {
            lines->begin = (size_t)(newline + 1 - lines->buf);
            return WEIR_ERR_TOO_LARGE;
        }
        lines->begin = lines->end = 0;
        int more = read_more(lines);
        if (more <= 0)
            return more < 0 ? more : WEIR_ERR_TOO_LARGE;
    }
}

int cli_lines_next(struct cli_lines *lines, struct weir_str *out)
{
    size_t searched = 0;
    lines->number++;
    for (;;) {
        char *line = lines->buf + lines->begin;
        size_t len = lines->end - lines->begin;
        char *newline = memchr(line + searched, '\n', len - searched);
        if (newline != NULL) {
            *out = (struct weir_str){.ptr = line, .len = (size_t)(newline - line)};
            lines->begin += out->len + 1;
            return 1;
        }
        searched = len;
        int err = make_room(lines);
        if (err == WEIR_ERR_TOO_LARGE)
            return skip_line(lines);
        if (err != 0)
            return err;
        int more = read_more(lines);
        if (more < 0)
            return more;
        if (more == 0 && len == 0)
            return 0;
        if (more == 0) { /* the last line lacks its newline */
            *out = (struct weir_str){.ptr = lines->buf, .len = len};
            lines->begin = lines->end;
            return 1;
        }
    }
}
