/* match_path.h - path patterns: /v1/orders/{id}/pay, and a * at the end for all that follows.
 *
 * A segment is what stands between two slashes.  {name} stands for one segment that is not empty;
 * a last segment * for the rest of the path, also an empty one.  Of several patterns that match,
 * the one with the most literal segments is chosen, then the one that is literal earlier, then
 * {name} before *. The path is matched as it is given: whoever asks has normalised it.
 *
 * The patterns of one key are a trie over segments.  Finding walks the literal child, the {name}
 * child and the * of each place, and leaves out what cannot be better than what was found.
 *
 * Purity: no I/O, no allocation while matching.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_MATCH_PATH_H
#define WEIR_RULES_MATCH_PATH_H

#include "base/arena.h"
#include "base/maxima.h"

#include <weir/weir.h>

struct weir_paths;

struct weir_path {
    struct weir_str key;
    struct weir_str pattern;
    uint32_t node;
};

/* False: *why says what is wrong with the pattern, at byte *offset. */
bool weir_path_check(struct weir_str pattern, const char **why, size_t *offset);
/* Of checked patterns.  *twice receives the index of one that matches the same as another (its
 * index among the sorted patterns), or UINT32_MAX.  NULL: out of memory. */
struct weir_paths *weir_paths_new(struct weir_arena *arena, struct weir_path *paths, uint32_t count,
                                  uint32_t *twice);
uint32_t weir_paths_find(const struct weir_paths *paths, const struct weir_entry *entry);

#endif
