/* processes.h - who is attached to a table, and with which rules.
 *
 * A row for each process, with when it was last seen.  A process that is not seen for
 * WEIR_PROCESS_SILENT_S is gone, and its row is free: nobody asks whether a process id is alive,
 * which says nothing between containers.  A process is seen when it steps its watch, and whenever
 * it compares the clock (about ten times a second while it decides).
 *
 * A row's id is drawn by chance and mixed with the process id, so that a child that was forked
 * with the table open is another process.  Rows are for people; nothing is decided on them.
 *
 * Threads: any number, in any number of processes.  Time: an argument.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_PROCESSES_H
#define WEIR_TABLE_PROCESSES_H

#include "table/internal.h"

#define WEIR_PROCESS_SILENT_S 45u

/* Says that this process is here with these rules: generation, rules and published_ns count.  Where
 * all rows are taken it goes unlisted. */
void weir_process_tell(struct weir_table *table, const struct weir_process *process,
                       uint64_t now_ns);
/* Still here. */
void weir_process_beat(struct weir_table *table, uint64_t now_ns);
/* Here no longer. */
void weir_process_leave(struct weir_table *table);

/* Row `number`, if its process was seen of late. */
bool weir_process_at(const struct weir_table *table, uint32_t number, uint64_t now_ns,
                     struct weir_process *out);

#endif
