/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/files.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORIES_DEEP_MAX 32

static bool read_all(int fd, char *ptr, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t got = read(fd, ptr + done, len - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got < 0 ? errno : ESTALE; /* it shrank while we read */
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

/* O_NONBLOCK, so that a FIFO among the rules is refused and not waited for. */
bool weir_file_read(struct weir_file *out, struct weir_report *report, struct weir_mark at,
                    const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    weir_arena_init(&out->arena);
    if (fd < 0 || fstat(fd, &st) < 0)
        goto fail;
    if (!S_ISREG(st.st_mode)) {
        weir_report_error(report, at, "cannot read '%s': not a regular file", path);
        goto out;
    }
    if (st.st_size > (off_t)WEIR_RULES_FILE_MAX) {
        weir_report_error(report, at, "cannot read '%s': %lld bytes, more than %u", path,
                          (long long)st.st_size, WEIR_RULES_FILE_MAX);
        goto out;
    }
    size_t len = (size_t)st.st_size;
    out->ptr = weir_arena_alloc(&out->arena, len + 1, 1);
    out->len = len;
    errno = ENOMEM;
    if (!out->ptr || !read_all(fd, out->ptr, len))
        goto fail;
    close(fd);
    return true;
fail:
    weir_report_error(report, at, "cannot read '%s': %s", path, strerror(errno));
out:
    weir_arena_fini(&out->arena);
    if (fd >= 0)
        close(fd);
    return false;
}

void weir_file_free(struct weir_file *file)
{
    weir_arena_fini(&file->arena);
}

/* Bytes of the UTF-8 character at s, or 0: none, too long, a surrogate, or beyond U+10FFFF. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (s[0] < 0x80)
        return s[0] != 0;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < len)
        return 0;
    uint32_t code = s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    if (code < least[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    return len;
}

bool weir_file_is_text(struct weir_report *report, uint32_t file, struct weir_str text)
{
    const unsigned char *s = (const unsigned char *)text.ptr;
    struct weir_mark at = {file, 1, 1};
    for (size_t i = 0; i < text.len;) {
        size_t len = utf8_len(s + i, text.len - i);
        if (len == 0) {
            weir_report_error(report, at,
                              s[i] == 0 ? "a NUL byte: this is no text file"
                                        : "not valid UTF-8: byte 0x%02x; save the file as UTF-8",
                              s[i]);
            return false;
        }
        bool is_newline = s[i] == '\n';
        at.line += is_newline;
        at.column = is_newline ? 1 : at.column + 1;
        i += len;
    }
    return true;
}

struct walk {
    struct weir_report *report;
    bool (*each)(void *ctx, const char *path);
    void *ctx;
    uint32_t file_count;
    uint32_t depth;
};

static void say_errno(struct walk *w, const char *path)
{
    weir_report_error(w->report, (struct weir_mark){0}, "cannot read '%s': %s", path,
                      strerror(errno));
}

/* Editors' left-overs, dot files (a ConfigMap's ..data too) and what rules refer to are no rules.
 */
static int is_rules_name(const struct dirent *entry)
{
    struct weir_str name = weir_str_of(entry->d_name);
    return name.ptr[0] != '.' && !weir_str_ends(name, WEIR_STR("~")) &&
           !weir_str_ends(name, WEIR_STR(".swp")) && !weir_str_ends(name, WEIR_STR(".csv"));
}

/* Bytes decide, not the locale: the order must be the same everywhere. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int walk_directory(struct walk *w, const char *path);

static int walk_entry(struct walk *w, const char *path)
{
    struct stat link, st;
    if (lstat(path, &link) < 0 || stat(path, &st) < 0) {
        say_errno(w, path);
        return WEIR_ERR_IO;
    }
    /* Links to directories may lead in circles; envoyproxy/ratelimit does not follow them either.
     */
    if (S_ISDIR(st.st_mode))
        return S_ISLNK(link.st_mode) ? 0 : walk_directory(w, path);
    if (!S_ISREG(st.st_mode))
        return 0;
    if (w->file_count++ == WEIR_RULES_FILES_MAX) {
        weir_report_error(w->report, (struct weir_mark){0},
                          "more than %d files of rules in one directory", WEIR_RULES_FILES_MAX);
        return WEIR_ERR_RULES;
    }
    if (w->file_count > WEIR_RULES_FILES_MAX)
        return 0;
    return w->each(w->ctx, path) ? 0 : WEIR_ERR_NOMEM;
}

static int walk_directory(struct walk *w, const char *path)
{
    struct dirent **entries = NULL;
    if (w->depth == DIRECTORIES_DEEP_MAX) {
        errno = ELOOP;
        say_errno(w, path);
        return WEIR_ERR_IO;
    }
    int count = scandir(path, &entries, is_rules_name, by_name);
    if (count < 0) {
        say_errno(w, path);
        return WEIR_ERR_IO;
    }
    int err = 0;
    w->depth++;
    for (int i = 0; i < count; i++) {
        char full[PATH_MAX];
        int len = snprintf(full, sizeof(full), "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        if (err == WEIR_ERR_NOMEM)
            continue;
        errno = ENAMETOOLONG;
        int one = len > 0 && (size_t)len < sizeof(full) ? walk_entry(w, full) : WEIR_ERR_IO;
        err = one ? one : err;
    }
    w->depth--;
    free(entries);
    return err;
}

int weir_files_each(struct weir_report *report, const char *path,
                    bool (*each)(void *ctx, const char *path), void *ctx)
{
    struct walk w = {.report = report, .each = each, .ctx = ctx};
    struct stat st;
    if (stat(path, &st) < 0) {
        say_errno(&w, path);
        return WEIR_ERR_IO;
    }
    if (S_ISDIR(st.st_mode))
        return walk_directory(&w, path);
    return each(ctx, path) ? 0 : WEIR_ERR_NOMEM;
}
