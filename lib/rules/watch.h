/* watch.h - notices that rules files have changed, however it was done.
 *
 * Files are written in place, renamed over, deleted and made again; directories are swapped by a
 * symlink (a Kubernetes ConfigMap swaps `..data`, through which every file in the directory
 * is itself a symlink).  No set of inotify events tells all these apart, so none is believed: an
 * event says only that it is worth looking, and looking means
 *
 *     signature = sum over all files of hash(path, device, inode, size, mtime, mode)
 *
 * with symlinks followed.  It changed: the rules changed.
 *
 *     event ... event ... event        100 ms of quiet, or 1 s of events       look
 *                                      nothing for 2 s                         look anyway
 *
 * The second line makes inotify an accelerator and no more: it may be missing (network file
 * systems, containers) or run out of watches.  Watched are the directories in which some name on
 * the way to a file could be swapped, found anew with every look.
 *
 * Purity: reads the file system; the time is an argument.  Threads: one at a time.
 * Fork: watch in one process only; events that another took are found by the next look.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_WATCH_H
#define WEIR_RULES_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

#define WEIR_WATCH_QUIET_MS 100     /* after the last event */
#define WEIR_WATCH_PATIENCE_MS 1000 /* after the first */
#define WEIR_WATCH_POLL_MS 2000

struct weir_rules_watch;

/* Remembers what is at path now, so that any later change is one.  The path need not exist.
 * 0, WEIR_ERR_NOMEM or WEIR_ERR_TOO_LARGE. */
WEIR_MUST_CHECK int weir_rules_watch_new(struct weir_rules_watch **out, const char *path);
void weir_rules_watch_free(struct weir_rules_watch *w);

/* Readable when a look is due sooner than step() said; -1 where inotify cannot be had.  The first
 * call starts watching. */
int weir_rules_watch_fd(struct weir_rules_watch *w);

/* Whether the files have changed and come to rest since the last time that this was true.
 * *timeout_ms: when to call again, if the descriptor stays silent. */
bool weir_rules_watch_step(struct weir_rules_watch *w, uint64_t now_ms, int *timeout_ms);

#endif
