/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/rules_cache.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_FILE ".head"
#define HEAD_LEN (WEIR_RULES_DB_ID_LEN + 32)

static int fail(char *why, size_t why_len, const char *what)
{
    snprintf(why, why_len, "%s: %s", what, strerror(errno));
    return WEIR_ERR_IO;
}

/* ---- made ---- */

/* The folder, and those above it. */
static bool make_folder(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int made = mkdir(path, 0755);
        int err = errno;
        *slash = '/';
        if (made != 0 && err != EEXIST)
            return false;
    }
    return mkdir(path, 0755) == 0 || errno == EEXIST;
}

/* Where the link leads: a name in its folder, or empty. */
static void target_of(const struct weir_rules_cache *cache, char out[static NAME_MAX + 1])
{
    char to[PATH_MAX];
    ssize_t len = readlink(cache->path, to, sizeof(to) - 1);
    out[0] = '\0';
    if (len > 0 && len <= NAME_MAX && memchr(to, '/', (size_t)len) == NULL) {
        memcpy(out, to, (size_t)len);
        out[len] = '\0';
    }
}

/* Whether a name in the folder is a set that was made here. */
static bool is_set(const struct weir_rules_cache *cache, const char *name)
{
    size_t len = strlen(cache->name);
    return name[0] == '.' && strncmp(name + 1, cache->name, len) == 0 && name[len + 1] == '.' &&
           name[len + 2] >= '0' && name[len + 2] <= '9';
}

int weir_rules_cache_init(struct weir_rules_cache *cache, const char *path, char *why,
                          size_t why_len)
{
    struct stat st;
    char target[NAME_MAX + 1], *slash;
    *cache = (struct weir_rules_cache){.lock_fd = -1};
    if (strlen(path) >= sizeof(cache->path) - NAME_MAX) {
        snprintf(why, why_len, "%.100s...: too long", path);
        return WEIR_ERR_INVALID;
    }
    snprintf(cache->path, sizeof(cache->path), "%s", path);
    for (slash = cache->path + strlen(path); slash > cache->path + 1 && slash[-1] == '/'; slash--)
        slash[-1] = '\0';
    slash = strrchr(cache->path, '/');
    cache->name = slash != NULL ? slash + 1 : cache->path;
    snprintf(cache->folder, sizeof(cache->folder), "%.*s",
             slash != NULL ? (int)(slash - cache->path) : 1, slash != NULL ? cache->path : ".");
    if (slash == cache->path)
        snprintf(cache->folder, sizeof(cache->folder), "/");
    if (!make_folder(cache->folder))
        return fail(why, why_len, cache->folder);
    target_of(cache, target);
    if (lstat(cache->path, &st) == 0 && !is_set(cache, target)) {
        snprintf(
            why, why_len,
            "%.3000s is not kept by weir: with rules_store, --rules names the place where rules "
            "from the database are kept; move away what is there",
            path);
        return WEIR_ERR_INVALID;
    }
    return 0;
}

void weir_rules_cache_fini(struct weir_rules_cache *cache)
{
    if (cache->lock_fd >= 0)
        close(cache->lock_fd);
    cache->lock_fd = -1;
}

/* "folder/.rules.lock" and the like; false where that is too long. */
static bool join(const struct weir_rules_cache *cache, const char *more, char out[static PATH_MAX])
{
    int len = snprintf(out, PATH_MAX, "%s/.%s.%s", cache->folder, cache->name, more);
    return len > 0 && len < PATH_MAX;
}

/* ---- which ---- */

struct weir_redis_rules_head weir_rules_cache_head(const struct weir_rules_cache *cache)
{
    struct weir_redis_rules_head head = {.version = 0};
    char path[PATH_MAX], text[HEAD_LEN] = "", *end;
    int len = snprintf(path, sizeof(path), "%s/" HEAD_FILE, cache->path);
    int fd = len > 0 && (size_t)len < sizeof(path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return head;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    const char *space = got > 0 ? strrchr(text, ' ') : NULL;
    size_t id_len = space != NULL ? (size_t)(space - text) : SIZE_MAX;
    if (id_len > WEIR_RULES_DB_ID_LEN)
        return head;
    unsigned long long version = strtoull(space + 1, &end, 10);
    if (*end != '\n')
        return head;
    memcpy(head.id, text, id_len);
    head.version = version;
    return head;
}

/* ---- whether it is whole ---- */

static bool has_text(int folder, const char *name, struct weir_str text)
{
    char bytes[16384];
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t got = 0;
    if (fd < 0)
        return false;
    while ((got = read(fd, bytes, sizeof(bytes))) > 0 && (size_t)got <= text.len &&
           memcmp(bytes, text.ptr, (size_t)got) == 0)
        text = (struct weir_str){text.ptr + got, text.len - (size_t)got};
    close(fd);
    return got == 0 && text.len == 0;
}

/* Those that do not begin with a dot. */
static uint32_t count_files(DIR *dir)
{
    uint32_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    return count;
}

bool weir_rules_cache_has(const struct weir_rules_cache *cache, const struct weir_rules_set *set)
{
    char name[WEIR_RULES_FILE_NAME_LEN];
    DIR *dir = opendir(cache->path);
    if (dir == NULL)
        return false;
    bool is_same = count_files(dir) == set->count;
    for (uint32_t i = 0; i < set->count && is_same; i++) {
        weir_rules_set_file_name(set->domains[i].name, name);
        is_same = has_text(dirfd(dir), name, set->domains[i].entry.text);
    }
    closedir(dir);
    return is_same;
}

/* ---- keeping ---- */

static bool write_all(int fd, struct weir_str text)
{
    while (text.len > 0) {
        ssize_t done = write(fd, text.ptr, text.len);
        if (done < 0 && errno != EINTR)
            return false;
        text.ptr += done > 0 ? done : 0;
        text.len -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

static bool write_file(int folder, const char *name, struct weir_str text)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return false;
    bool is_good = write_all(fd, text) && fsync(fd) == 0;
    if (close(fd) != 0)
        is_good = false;
    return is_good;
}

/* All files of a set, whose folder is new. */
static bool write_set(int folder, const struct weir_rules_set *set)
{
    char name[WEIR_RULES_FILE_NAME_LEN], head[HEAD_LEN];
    int len = snprintf(head, sizeof(head), "%s %" PRIu64 "\n", set->head.id, set->head.version);
    for (uint32_t i = 0; i < set->count; i++) {
        weir_rules_set_file_name(set->domains[i].name, name);
        if (!write_file(folder, name, set->domains[i].entry.text))
            return false;
    }
    return write_file(folder, HEAD_FILE, (struct weir_str){head, (size_t)len}) &&
           fsync(folder) == 0;
}

static void remove_set(const struct weir_rules_cache *cache, const char *name)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%s", cache->folder, name);
    DIR *dir = len > 0 && len < PATH_MAX ? opendir(path) : NULL;
    struct dirent *entry;
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    (void)rmdir(path); /* what is left is tried again next time */
}

/* All sets but two. */
static void remove_others(const struct weir_rules_cache *cache, const char *kept,
                          const char *kept_too)
{
    DIR *dir = opendir(cache->folder);
    struct dirent *entry;
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL)
        if (is_set(cache, entry->d_name) && strcmp(entry->d_name, kept) != 0 &&
            strcmp(entry->d_name, kept_too) != 0)
            remove_set(cache, entry->d_name);
    closedir(dir);
}

bool weir_rules_cache_lock(struct weir_rules_cache *cache)
{
    char path[PATH_MAX], target[NAME_MAX + 1];
    if (cache->lock_fd >= 0)
        return true;
    int fd = join(cache, "lock", path) ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        return false;
    cache->lock_fd = fd;
    target_of(cache, target);
    remove_others(cache, target, ""); /* what somebody left who was killed */
    return true;
}

/* Lets the link lead to the set of this name. */
static bool swap_link(const struct weir_rules_cache *cache, const char *set)
{
    char fresh[PATH_MAX];
    int folder = open(cache->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_good = folder >= 0 && join(cache, "new", fresh) &&
                   (unlink(fresh) == 0 || errno == ENOENT) && symlink(set, fresh) == 0 &&
                   rename(fresh, cache->path) == 0;
    if (is_good)
        (void)fsync(
            folder); /* a machine that dies now may come back with the set before: as good */
    if (folder >= 0)
        close(folder);
    return is_good;
}

int weir_rules_cache_keep(struct weir_rules_cache *cache, const struct weir_rules_set *set,
                          char *why, size_t why_len)
{
    char path[PATH_MAX], before[NAME_MAX + 1], more[48];
    uint32_t number = 0;
    int folder = -1;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return fail(why, why_len, "randomness");
    snprintf(more, sizeof(more), "%" PRIu64 "-%08" PRIx32, set->head.version, number);
    errno = ENAMETOOLONG;
    if (!join(cache, more, path))
        return fail(why, why_len, cache->path);
    const char *name = path + strlen(cache->folder) + 1;
    target_of(cache, before);
    if (mkdir(path, 0755) == 0)
        folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = 0;
    if (folder < 0 || !write_set(folder, set))
        err = fail(why, why_len, path);
    else if (!swap_link(cache, name))
        err = fail(why, why_len, cache->path);
    if (folder >= 0)
        close(folder);
    if (err != 0)
        remove_set(cache, name);
    else
        remove_others(cache, name, before);
    return err;
}
