/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/watch.h"

#include "base/hash.h"
#include "base/maxima.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define WATCHES_MAX 1024                      /* what is beyond is polled */
#define VISITS_MAX (4 * WEIR_RULES_FILES_MAX) /* names looked at: somebody may watch "/" */
#define DEPTH_MAX 32
#define LINKS_MAX 40 /* as the kernel's own */

#define TABLE ".csv"

#define EVENTS                                                                                     \
    (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE |            \
     IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* A directory, and which name in it concerns us: its hash, or ANY_NAME. */
struct watched {
    int wd;
    uint64_t name;
};

#define ANY_NAME 0

struct watches {
    uint32_t count;
    struct watched at[WATCHES_MAX];
};

struct weir_rules_watch {
    char *path;
    int fd; /* -1: not started, or not to be had */
    bool is_started;
    bool is_pending;   /* something happened, and has not been looked at */
    uint64_t first_ms; /* of what is pending: the first event */
    uint64_t last_ms;  /* and the last */
    uint64_t poll_ms;  /* when to look anyway */
    uint64_t signature;
    struct watches now, before; /* those of this look, and of the one before */
};

/* One walk over all that there is. */
struct look {
    struct weir_rules_watch *watch;
    uint64_t signature;
    uint32_t visits;
    char path[PATH_MAX];
};

static const struct weir_hash_key KEY = {UINT64_C(0x7765697277617463),
                                         UINT64_C(0x6873686967656e73)};

static uint64_t hash_name(const char *name)
{
    return weir_siphash13(&KEY, name, strlen(name)) | 1; /* never ANY_NAME */
}

static void watch_dir(struct weir_rules_watch *w, const char *dir, uint64_t name)
{
    if (w->fd < 0 || w->now.count == WATCHES_MAX)
        return;
    int wd = inotify_add_watch(w->fd, dir, EVENTS);
    if (wd < 0)
        return; /* out of watches, or gone already: the poll finds out */
    for (uint32_t i = 0; i < w->now.count; i++) {
        if (w->now.at[i].wd == wd && w->now.at[i].name == name)
            return;
    }
    w->now.at[w->now.count++] = (struct watched){.wd = wd, .name = name};
}

/* The directory that holds path, for this one name: others come and go there, in /tmp all day. */
static void watch_parent(struct weir_rules_watch *w, const char *path)
{
    char dir[PATH_MAX];
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    memcpy(dir, path, len);
    dir[len] = '\0';
    char *slash = strrchr(dir, '/');
    uint64_t name = hash_name(slash ? slash + 1 : dir);
    if (slash)
        slash[slash == dir] = '\0'; /* the root keeps its slash */
    watch_dir(w, slash ? dir : ".", name);
}

/* In way, the name that ends at `end` is a symlink to target: puts the target in its place.
 * False where the result is too long. */
static bool splice(char way[PATH_MAX], size_t end, const char *target)
{
    char joined[PATH_MAX];
    size_t keep = 0;
    if (target[0] != '/') {
        for (keep = end; keep > 0 && way[keep - 1] != '/'; keep--)
            ;
    }
    size_t target_len = strlen(target), rest_len = strlen(way + end);
    if (keep + target_len + rest_len >= sizeof(joined))
        return false;
    memcpy(joined, way, keep);
    memcpy(joined + keep, target, target_len);
    memcpy(joined + keep + target_len, way + end, rest_len + 1);
    memcpy(way, joined, keep + target_len + rest_len + 1);
    return true;
}

/* Watches every directory in which a name on the way to path could be swapped: for each symlink the
 * directory that holds it, and in the end the directory of what it all leads to. */
static void watch_way(struct weir_rules_watch *w, const char *path)
{
    char way[PATH_MAX], target[PATH_MAX];
    size_t end = 0;
    int links = 0;
    if (w->fd < 0 || strlen(path) >= sizeof(way))
        return;
    memcpy(way, path, strlen(path) + 1);
    while (way[end] != '\0') {
        end += strspn(way + end, "/");
        end += strcspn(way + end, "/");
        char saved = way[end];
        way[end] = '\0';
        ssize_t len = readlink(way, target, sizeof(target) - 1);
        if (len > 0)
            watch_parent(w, way);
        way[end] = saved;
        if (len <= 0)
            continue;
        target[len] = '\0';
        if (++links > LINKS_MAX || !splice(way, end, target))
            return;
        end = 0;
    }
    watch_parent(w, way);
}

static void add_file(struct look *l, const struct stat *st)
{
    const uint64_t words[] = {
        weir_siphash13(&KEY, l->path, strlen(l->path)),
        (uint64_t)st->st_dev,
        (uint64_t)st->st_ino,
        (uint64_t)st->st_size,
        (uint64_t)st->st_mtim.tv_sec,
        (uint64_t)st->st_mtim.tv_nsec,
        (uint64_t)st->st_mode,
    };
    l->signature += weir_siphash13(&KEY, words, sizeof(words)); /* a sum: readdir has no order */
}

static void look_in_dir(struct look *l, int depth, const char *suffix);

/* Beside a file of rules lie the tables that it names ({file: overrides.csv}).  Which of them it
 * names only the loader knows; one that is not named costs a reload that changes nothing. */
static void look_at_tables(struct look *l)
{
    char *slash = strrchr(l->path, '/');
    if (slash)
        slash[slash == l->path] = '\0'; /* the root keeps its slash */
    else
        memcpy(l->path, ".", 2);
    look_in_dir(l, 0, TABLE);
}

/* What is at l->path.  A directory is entered; one that is reached by a symlink is not, as the
 * loader does not enter it either (the top alone may be one). */
static void look_at(struct look *l, int depth)
{
    struct stat st, followed;
    if (l->visits++ == VISITS_MAX || lstat(l->path, &st) != 0)
        return;
    bool is_link = S_ISLNK(st.st_mode);
    if (is_link || depth == 0)
        watch_way(l->watch, l->path);
    if (is_link && stat(l->path, &followed) != 0)
        return;
    if (is_link)
        st = followed;
    if (S_ISREG(st.st_mode)) {
        add_file(l, &st);
        if (depth == 0)
            look_at_tables(l);
        return;
    }
    if (!S_ISDIR(st.st_mode) || (is_link && depth > 0) || depth == DEPTH_MAX)
        return;
    l->signature++; /* an empty directory is not a missing one */
    look_in_dir(l, depth, "");
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t len = strlen(name), suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

static bool is_wanted(const char *name, const char *suffix)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && ends_with(name, suffix);
}

static void look_in_dir(struct look *l, int depth, const char *suffix)
{
    size_t len = strlen(l->path);
    /* Any name matters in a directory of rules; beside a file only tables, see concerns_us(). */
    if (suffix[0] == '\0')
        watch_dir(l->watch, l->path,
                  ANY_NAME); /* before reading: what comes in later is then an event */
    DIR *dir = opendir(l->path);
    if (!dir)
        return;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        size_t name_len = strlen(entry->d_name);
        if (!is_wanted(entry->d_name, suffix) || len + 1 + name_len >= sizeof(l->path))
            continue;
        l->path[len] = '/';
        memcpy(l->path + len + 1, entry->d_name, name_len + 1);
        look_at(l, depth + 1);
        l->path[len] = '\0';
    }
    closedir(dir);
}

/* Watches of the last look that this one did not need. */
static void drop_watches(struct weir_rules_watch *w)
{
    for (uint32_t i = 0; i < w->before.count; i++) {
        uint32_t k = 0;
        while (k < w->now.count && w->now.at[k].wd != w->before.at[i].wd)
            k++;
        if (k == w->now.count)
            (void)inotify_rm_watch(w->fd,
                                   w->before.at[i].wd); /* may have gone with its directory */
    }
}

/* The signature of all that there is; renews the watches. */
static uint64_t look_around(struct weir_rules_watch *w)
{
    struct look l = {.watch = w};
    w->before = w->now;
    w->now.count = 0;
    memcpy(l.path, w->path, strlen(w->path) + 1);
    look_at(&l, 0);
    if (w->now.count == 0)
        watch_parent(w, w->path); /* it is not there yet */
    drop_watches(w);
    return l.signature;
}

int weir_rules_watch_new(struct weir_rules_watch **out, const char *path)
{
    if (strlen(path) >= PATH_MAX)
        return WEIR_ERR_TOO_LARGE;
    struct weir_rules_watch *w = calloc(1, sizeof(*w));
    char *copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return WEIR_ERR_NOMEM;
    }
    w->path = copy;
    w->fd = -1;
    w->signature = look_around(w);
    *out = w;
    return 0;
}

void weir_rules_watch_free(struct weir_rules_watch *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    free(w->path);
    free(w);
}

int weir_rules_watch_fd(struct weir_rules_watch *w)
{
    if (!w->is_started) {
        w->is_started = true;
        w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        w->poll_ms = 0; /* the first step looks: files may have changed since new() */
        if (w->fd >= 0)
            (void)look_around(w);
    }
    return w->fd;
}

/* Whether an event could be about our files.  Events without a name are about a directory itself,
 * or say that events were lost. */
static bool concerns_us(const struct weir_rules_watch *w, const struct inotify_event *event)
{
    if (event->len == 0 || ends_with(event->name, TABLE))
        return true;
    uint64_t name = hash_name(event->name);
    for (uint32_t i = 0; i < w->now.count; i++) {
        const struct watched *at = &w->now.at[i];
        if (at->wd == event->wd && (at->name == ANY_NAME || at->name == name))
            return true;
    }
    return false;
}

/* Reads all events; says whether one concerns us. */
static bool drain(const struct weir_rules_watch *w)
{
    _Alignas(struct inotify_event) char events[4096];
    bool is_any = false;
    ssize_t len;
    while (w->fd >= 0 && (len = read(w->fd, events, sizeof(events))) > 0) {
        for (const char *at = events; at < events + len;) {
            const struct inotify_event *event = (const void *)at;
            is_any |= concerns_us(w, event);
            at += sizeof(*event) + event->len;
        }
    }
    return is_any;
}

static void note(struct weir_rules_watch *w, uint64_t now_ms)
{
    if (!w->is_pending)
        w->first_ms = now_ms;
    w->is_pending = true;
    w->last_ms = now_ms;
}

static uint64_t due_ms(const struct weir_rules_watch *w)
{
    uint64_t quiet = w->last_ms + WEIR_WATCH_QUIET_MS;
    uint64_t patience = w->first_ms + WEIR_WATCH_PATIENCE_MS;
    return quiet < patience ? quiet : patience;
}

bool weir_rules_watch_step(struct weir_rules_watch *w, uint64_t now_ms, int *timeout_ms)
{
    bool has_changed = false;
    (void)weir_rules_watch_fd(w);
    if (drain(w))
        note(w, now_ms);
    if (now_ms >= w->poll_ms) {
        w->poll_ms = now_ms + WEIR_WATCH_POLL_MS;
        if (!w->is_pending && look_around(w) != w->signature)
            note(w, now_ms); /* perhaps half written: it gets its time of quiet too */
    }
    if (w->is_pending && now_ms >= due_ms(w)) {
        uint64_t signature = look_around(w);
        has_changed = signature != w->signature;
        w->signature = signature;
        w->is_pending = false;
        w->poll_ms = now_ms + WEIR_WATCH_POLL_MS;
    }
    uint64_t next_ms = w->is_pending && due_ms(w) < w->poll_ms ? due_ms(w) : w->poll_ms;
    *timeout_ms = next_ms > now_ms ? (int)(next_ms - now_ms) : 0;
    return has_changed;
}
