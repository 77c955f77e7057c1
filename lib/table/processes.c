/* SPDX-License-Identifier: Apache-2.0 */
#include "table/processes.h"

#include <unistd.h>

#define SILENT_NS (WEIR_PROCESS_SILENT_S * UINT64_C(1000000000))

/* Relaxed throughout: numbers for people, each by itself. */
static uint64_t load(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static void store(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

static bool is_silent(const struct weir_process_row *row, uint64_t now_ns)
{
    return load(&row->seen_ns) + SILENT_NS < now_ns;
}

/* Of this process, and not of the one that it was forked from. */
static uint64_t own_id(const struct weir_table *table)
{
    return weir_mix64(table->nonce ^ (uint64_t)getpid() << 32) | 1;
}

/* The row that this process has; NULL: none. */
static struct weir_process_row *own_row(const struct weir_table *table, uint64_t id)
{
    for (uint32_t i = 0; i < WEIR_PROCESSES_MAX; i++)
        if (load(&table->controls.processes[i].id) == id)
            return &table->controls.processes[i];
    return NULL;
}

static struct weir_process_row *claim_row(const struct weir_table *table, uint64_t id,
                                          uint64_t now_ns)
{
    for (uint32_t i = 0; i < WEIR_PROCESSES_MAX; i++) {
        struct weir_process_row *row = &table->controls.processes[i];
        uint64_t old = load(&row->id);
        if (old != 0 && !is_silent(row, now_ns))
            continue;
        store(&row->seen_ns, now_ns); /* first: the next to come must not find it silent */
        if (__atomic_compare_exchange_n(&row->id, &old, id, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            store(&row->started_ns, now_ns);
            return row;
        }
    }
    return NULL;
}

void weir_process_tell(struct weir_table *table, const struct weir_process *process,
                       uint64_t now_ns)
{
    if (table->controls.processes == NULL)
        return;
    uint64_t id = own_id(table);
    struct weir_process_row *row = own_row(table, id);
    if (row == NULL)
        row = claim_row(table, id, now_ns);
    if (row == NULL)
        return;
    store(&row->pid, (uint64_t)getpid());
    store(&row->generation, process->generation);
    store(&row->rules, process->rules);
    store(&row->published_ns, process->published_ns);
    store(&row->seen_ns, now_ns);
    store(&table->process_id, id);
    __atomic_store_n(&table->process_row, row, __ATOMIC_RELAXED);
}

void weir_process_beat(struct weir_table *table, uint64_t now_ns)
{
    struct weir_process_row *row = __atomic_load_n(&table->process_row, __ATOMIC_RELAXED);
    if (row != NULL && load(&row->id) == load(&table->process_id))
        store(&row->seen_ns, now_ns);
}

void weir_process_leave(struct weir_table *table)
{
    uint64_t id = load(&table->process_id);
    struct weir_process_row *row = __atomic_load_n(&table->process_row, __ATOMIC_RELAXED);
    /* A child that never said that it is there must not take its parent away. */
    if (row != NULL && id == own_id(table))
        (void)__atomic_compare_exchange_n(&row->id, &id, 0, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED);
}

bool weir_process_at(const struct weir_table *table, uint32_t number, uint64_t now_ns,
                     struct weir_process *out)
{
    if (table->controls.processes == NULL || number >= WEIR_PROCESSES_MAX)
        return false;
    const struct weir_process_row *row = &table->controls.processes[number];
    *out = (struct weir_process){
        .id = load(&row->id),
        .pid = load(&row->pid),
        .generation = load(&row->generation),
        .rules = load(&row->rules),
        .started_ns = load(&row->started_ns),
        .published_ns = load(&row->published_ns),
        .seen_ns = load(&row->seen_ns),
    };
    return out->id != 0 && !is_silent(row, now_ns);
}
