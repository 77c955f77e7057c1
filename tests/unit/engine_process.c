/* engine_process.c - who is attached to a table, with which rules; and who is no longer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"
#include "table/processes.h"

#include <signal.h>
#include <sys/wait.h>

static const char RULES[] = "domain: t\n"
                            "descriptors:\n"
                            "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
                            "  - {key: b, rate_limit: {unit: hour, requests_per_unit: 4}}\n";
static const char REORDERED[] = "domain: t\n"
                                "descriptors:\n"
                                "  - {key: b, rate_limit: {unit: hour, requests_per_unit: 4}}\n"
                                "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 3}}\n";
static const char CHANGED[] = "domain: t\n"
                              "descriptors:\n"
                              "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
                              "  - {key: b, rate_limit: {unit: hour, requests_per_unit: 5}}\n";

struct list {
    struct weir_process at[WEIR_PROCESSES_MAX];
    uint32_t count;
};

static void see(void *ctx, const struct weir_process *one)
{
    struct list *list = ctx;
    list->at[list->count++] = *one;
}

static struct list processes(struct rig *r)
{
    struct list list = {.count = 0};
    weir_process_each(r->w, see, &list);
    return list;
}

static void table_path(char *out, size_t len)
{
    snprintf(out, len, "/dev/shm/weir-process-%d", (int)getpid());
}

static void a_process_lists_itself_and_its_rules(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    struct list list = processes(r);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.at[0].pid, (uint64_t)getpid());
    assert_int_equal(list.at[0].generation, 1);
    assert_true(list.at[0].started_ns > 0 && list.at[0].seen_ns >= list.at[0].started_ns);
    rig_close(r);
}

static void equal_rules_have_equal_sums(void **state)
{
    struct rig *r = rig_open(RULES, NULL), *same = rig_open(REORDERED, NULL);
    struct rig *other = rig_open(CHANGED, NULL);
    (void)state;
    assert_int_equal(processes(r).at[0].rules, processes(same).at[0].rules);
    assert_int_not_equal(processes(r).at[0].rules, processes(other).at[0].rules);
    rig_close(r);
    rig_close(same);
    rig_close(other);
}

/* Waits for a byte from a child, or sends one. */
static void pass(int fd)
{
    char byte = 1;
    assert_int_equal(write(fd, &byte, 1), 1);
}

static void await(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

static void a_killed_process_is_gone_when_it_was_silent_for_long(void **state)
{
    char path[64], why[256];
    int ready[2];
    struct weir_process process;
    struct weir_table *table;
    (void)state;
    table_path(path, sizeof(path));
    struct weir_options options = {.table_path = path};
    struct rig *r = rig_open(RULES, &options);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* an engine of its own, as a stranger's */
        struct rig *own = rig_open(CHANGED, &options);
        (void)own;
        pass(ready[1]);
        pause();
        _exit(0);
    }
    await(ready[0]);
    assert_int_equal(processes(r).count, 2);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(processes(r).count, 2); /* nobody knows yet */
    assert_int_equal(weir_table_attach(&table, path, why, sizeof(why)), 0);
    uint64_t later_ns = weir_table_now(table) + (WEIR_PROCESS_SILENT_S + 1) * RIG_SECOND;
    uint32_t left = 0;
    for (uint32_t i = 0; i < WEIR_PROCESSES_MAX; i++)
        left += weir_process_at(table, i, later_ns, &process);
    assert_int_equal(left, 0);
    weir_table_close(table);
    rig_close(r);
    unlink(path);
}

static void a_forked_child_is_a_process_of_its_own(void **state)
{
    int ready[2], go[2], timeout_ms;
    struct rig *r = rig_open(RULES, NULL); /* private memory, which children share */
    (void)state;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (weir_watch_step(r->w, &timeout_ms) < 0)
            _exit(1);
        pass(ready[1]);
        await(go[0]);
        weir_session_close(r->s);
        weir_close(r->w);
        _exit(0);
    }
    await(ready[0]);
    struct list list = processes(r);
    assert_int_equal(list.count, 2);
    assert_int_not_equal(list.at[0].pid, list.at[1].pid);
    assert_int_equal(list.at[0].rules, list.at[1].rules);
    pass(go[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    list = processes(r);
    assert_int_equal(list.count, 1); /* who closes is gone at once */
    assert_int_equal(list.at[0].pid, (uint64_t)getpid());
    rig_close(r);
}

static void so_many_are_listed_and_no_more(void **state)
{
    char path[64];
    (void)state;
    table_path(path, sizeof(path));
    struct weir_options options = {.table_path = path};
    static struct weir *engines[WEIR_PROCESSES_MAX];
    struct rig *r = rig_open(RULES, &options);
    for (uint32_t i = 0; i < WEIR_PROCESSES_MAX; i++)
        assert_int_equal(weir_open(&engines[i], &options), 0); /* the last one goes unlisted */
    assert_int_equal(processes(r).count, WEIR_PROCESSES_MAX);
    for (uint32_t i = 0; i < WEIR_PROCESSES_MAX; i++)
        weir_close(engines[i]);
    assert_int_equal(processes(r).count, 1);
    rig_close(r);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_lists_itself_and_its_rules),
        cmocka_unit_test(equal_rules_have_equal_sums),
        cmocka_unit_test(a_killed_process_is_gone_when_it_was_silent_for_long),
        cmocka_unit_test(a_forked_child_is_a_process_of_its_own),
        cmocka_unit_test(so_many_are_listed_and_no_more),
    };
    return cmocka_run_group_tests_name("engine_process", tests, NULL, NULL);
}
