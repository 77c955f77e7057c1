/* yaml_file.h - a file of settings: a map in YAML, read whole, with all that is wrong said at once.
 *
 *     path --> text --> nodes --> read(ctx, file, root)     the user's own: what the names mean
 *                          |            |
 *                          +------------+--> wrong: file:line:column: what would be right
 *
 * Purity: reads a file.  Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_YAML_FILE_H
#define WEIR_RULES_YAML_FILE_H

#include "rules/report.h"
#include "rules/yaml_node.h"

struct weir_yaml_file {
    const char *path;
    struct weir_report *report;
    uint32_t number; /* of the file, in the report */
};

/* Nodes are in the arena.  An empty file is no map, and read() is not called.  0, WEIR_ERR_IO where
 * the file cannot be read, WEIR_ERR_INVALID where something is wrong in it, of both of which say()
 * has been told, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int weir_yaml_file_read(const char *path, struct weir_arena *arena,
                                        void (*read)(void *ctx, const struct weir_yaml_file *file,
                                                     const struct weir_yaml *map),
                                        void *ctx, weir_log_fn say, void *say_ctx);

/* Says which names are in the map twice, for one of them would go unread.  The file's own map has
 * been looked at. */
void weir_yaml_file_once(const struct weir_yaml_file *file, const struct weir_yaml *map);
void weir_yaml_file_wrong(const struct weir_yaml_file *file, const struct weir_yaml *at,
                          const char *why);
/* A name that is none of names (which end with NULL); what may have been meant is said, too. */
void weir_yaml_file_unknown(const struct weir_yaml_file *file, const struct weir_yaml *key,
                            const char *const *names);

#endif
