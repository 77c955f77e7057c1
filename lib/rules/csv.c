/* Files of `key,value` lines, named by a rules file.
 *
 * A line is cut at its first comma; spaces around both sides, empty lines and lines that start
 * with # are dropped.  There is no quoting: a key has no comma.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/files.h"
#include "rules/parse.h"

#include <limits.h>
#include <stdio.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct weir_str trim(const char *from, const char *to)
{
    while (from < to && is_space(*from))
        from++;
    while (to > from && is_space(to[-1]))
        to--;
    return (struct weir_str){.ptr = from, .len = (size_t)(to - from)};
}

/* Relative to the directory of the rules file, so that a directory of rules can be moved. */
static bool full_path(const struct weir_parser *p, struct weir_str path, char out[PATH_MAX])
{
    const char *slash = p->path ? strrchr(p->path, '/') : NULL;
    int dir_len = slash && path.len > 0 && path.ptr[0] != '/' ? (int)(slash - p->path) + 1 : 0;
    int len =
        snprintf(out, PATH_MAX, "%.*s%.*s", dir_len, p->path ? p->path : "", WEIR_STR_ARG(path));
    return path.len > 0 && len > 0 && len < PATH_MAX;
}

bool weir_parse_csv(struct weir_parser *p, struct weir_mark at, struct weir_str path,
                    void (*each)(void *ctx, struct weir_mark at, struct weir_str key,
                                 struct weir_str value),
                    void *ctx)
{
    char full[PATH_MAX];
    struct weir_file file;
    if (!full_path(p, path, full)) {
        weir_report_error(p->report, at, "'%.*s' is no path of a file", WEIR_SHOWN(path));
        return false;
    }
    if (!p->path) {
        weir_report_error(p->report, at, "'%s': rules from memory cannot name files", full);
        return false;
    }
    if (!weir_file_read(&file, p->report, at, full))
        return false;
    struct weir_mark line = {weir_report_file(p->report, full), 0, 1};
    struct weir_str text = {.ptr = file.ptr, .len = file.len};
    bool is_good = weir_file_is_text(p->report, line.file, text);
    const char *end = file.ptr + file.len;
    for (const char *from = file.ptr; is_good && from < end;) {
        const char *newline = memchr(from, '\n', (size_t)(end - from));
        const char *to = newline ? newline : end;
        const char *comma = memchr(from, ',', (size_t)(to - from));
        struct weir_str key = trim(from, comma ? comma : to);
        line.line++;
        if (key.len > 0 && key.ptr[0] != '#') {
            if (comma)
                each(ctx, line, key, trim(comma + 1, to));
            else
                weir_report_error(p->report, line, "a line must be 'key,value'");
        }
        from = newline ? newline + 1 : end;
    }
    weir_file_free(&file);
    return is_good;
}
