/* Every way in which rules files change is noticed, once, after it has come to rest.  The time is
 * an argument, and the kernel queues its events before a system call returns: nothing here waits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules/watch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct place {
    char dir[64];
    char path[128];
    struct weir_rules_watch *watch;
    uint64_t now_ms;
};

static const char *in(const struct place *p, const char *name)
{
    static char full[4][192];
    static unsigned turn;
    char *out = full[turn++ % 4];
    snprintf(out, sizeof(full[0]), "%s/%s", p->dir, name);
    return out;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void run(const char *format, const struct place *p)
{
    char command[256];
    snprintf(command, sizeof(command), "cd '%s' && %s", p->dir, format);
    assert_int_equal(system(command), 0);
}

static int make(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->dir, sizeof(p->dir), "/tmp/weir_watch_XXXXXX");
    if (!p || !mkdtemp(p->dir))
        return -1;
    p->now_ms = 1000000;
    *state = p;
    return 0;
}

static int clear(void **state)
{
    struct place *p = *state;
    weir_rules_watch_free(p->watch);
    run("rm -rf -- \"$PWD\"", p);
    free(p);
    return 0;
}

/* Watches name below the directory; the first look has been had. */
static void watch(struct place *p, const char *name)
{
    int timeout_ms;
    snprintf(p->path, sizeof(p->path), "%s%s%s", p->dir, name[0] ? "/" : "", name);
    assert_int_equal(weir_rules_watch_new(&p->watch, p->path), 0);
    assert_true(weir_rules_watch_fd(p->watch) >= 0);
    assert_false(weir_rules_watch_step(p->watch, p->now_ms, &timeout_ms));
    assert_int_equal(timeout_ms, WEIR_WATCH_POLL_MS);
}

static bool step(struct place *p, unsigned passed_ms)
{
    int timeout_ms;
    p->now_ms += passed_ms;
    return weir_rules_watch_step(p->watch, p->now_ms, &timeout_ms);
}

/* A change is under way, is not believed at once, and is told once when it has come to rest. */
static void assert_noticed_by_event(struct place *p)
{
    assert_false(step(p, 1));
    assert_false(step(p, WEIR_WATCH_QUIET_MS - 1));
    assert_true(step(p, 1));
    assert_false(step(p, WEIR_WATCH_QUIET_MS));
    assert_false(step(p, WEIR_WATCH_POLL_MS));
    assert_false(step(p, WEIR_WATCH_QUIET_MS));
}

static void a_file_written_in_place_is_noticed(void **state)
{
    struct place *p = *state;
    put(in(p, "rules.yaml"), "a");
    watch(p, "rules.yaml");
    put(in(p, "rules.yaml"), "ab");
    assert_noticed_by_event(p);
}

static void a_file_renamed_over_is_noticed(void **state)
{
    struct place *p = *state;
    put(in(p, "rules.yaml"), "a");
    put(in(p, "new"), "b");
    watch(p, "rules.yaml");
    assert_int_equal(rename(in(p, "new"), in(p, "rules.yaml")), 0);
    assert_noticed_by_event(p);
    put(in(p, "rules.yaml"), "abc"); /* and the new file is watched as the old one was */
    assert_noticed_by_event(p);
}

static void a_symlink_swapped_is_noticed(void **state)
{
    struct place *p = *state;
    put(in(p, "one"), "a");
    put(in(p, "two"), "b");
    run("ln -s one rules.yaml", p);
    watch(p, "rules.yaml");
    run("ln -sfn two rules.yaml", p);
    assert_noticed_by_event(p);
}

static void a_file_behind_a_symlink_is_watched_where_it_lies(void **state)
{
    struct place *p = *state;
    run("mkdir -p far/away here && echo a > far/away/r && ln -s ../far/away/r here/rules.yaml", p);
    watch(p, "here/rules.yaml");
    put(in(p, "far/away/r"), "abc");
    assert_noticed_by_event(p);
}

static void a_symlink_in_the_middle_of_the_way_is_watched(void **state)
{
    struct place *p = *state;
    run("mkdir -p releases/1 releases/2 && echo a > releases/1/r && echo bb > releases/2/r", p);
    run("ln -s releases/1 current", p);
    watch(p, "current/r");
    run("ln -s releases/2 next && mv -T next current", p);
    assert_noticed_by_event(p);
    put(in(p, "releases/2/r"), "c");
    assert_noticed_by_event(p);
}

static void a_configmap_swap_is_noticed_for_a_file_and_for_a_directory(void **state)
{
    struct place *p = *state;
    run("mkdir ..1 && echo a > ..1/r.yaml && ln -s ..1 ..data && ln -s ..data/r.yaml r.yaml", p);
    for (int turn = 0; turn < 2; turn++) {
        watch(p, turn == 0 ? "r.yaml" : "");
        run("mkdir ..2 && echo bb > ..2/r.yaml && ln -s ..2 ..tmp && mv -T ..tmp ..data", p);
        run("rm -r ..1 && mv ..2 ..1 && ln -s ..1 ..tmp && mv -T ..tmp ..data", p);
        assert_noticed_by_event(p);
        weir_rules_watch_free(p->watch);
        p->watch = NULL;
    }
}

static void a_directory_notices_new_changed_and_deleted_files_at_any_depth(void **state)
{
    struct place *p = *state;
    put(in(p, "a.yaml"), "a");
    watch(p, "");
    put(in(p, "b.yaml"), "b");
    assert_noticed_by_event(p);
    run("mkdir deep && mkdir deep/er && echo c > deep/er/c.yaml", p);
    assert_noticed_by_event(p);
    put(in(p, "deep/er/c.yaml"), "ccc");
    assert_noticed_by_event(p);
    assert_int_equal(unlink(in(p, "deep/er/c.yaml")), 0);
    assert_noticed_by_event(p);
}

static void deleting_and_making_again_are_two_changes(void **state)
{
    struct place *p = *state;
    put(in(p, "rules.yaml"), "a");
    watch(p, "rules.yaml");
    assert_int_equal(unlink(in(p, "rules.yaml")), 0);
    assert_noticed_by_event(p);
    put(in(p, "rules.yaml"), "a");
    assert_noticed_by_event(p);
}

static void a_table_beside_a_file_of_rules_is_watched_and_other_files_are_not(void **state)
{
    struct place *p = *state;
    put(in(p, "rules.yaml"), "a");
    put(in(p, "tiers.csv"), "a,b");
    watch(p, "rules.yaml");
    put(in(p, "tiers.csv"), "a,bc");
    assert_noticed_by_event(p);
    put(in(p, "notes.txt"), "nothing to do with rules");
    int timeout_ms;
    assert_false(weir_rules_watch_step(p->watch, ++p->now_ms, &timeout_ms));
    assert_true(timeout_ms > WEIR_WATCH_QUIET_MS); /* not even worth a look */
    assert_false(step(p, WEIR_WATCH_QUIET_MS));
}

static void touching_permissions_counts_because_it_may_make_a_file_readable(void **state)
{
    struct place *p = *state;
    put(in(p, "rules.yaml"), "a");
    watch(p, "rules.yaml");
    assert_int_equal(chmod(in(p, "rules.yaml"), 0600), 0);
    assert_noticed_by_event(p);
}

static void a_stream_of_events_is_looked_at_after_a_second(void **state)
{
    struct place *p = *state;
    unsigned waited_ms = 0;
    put(in(p, "rules.yaml"), "");
    watch(p, "rules.yaml");
    char text[64] = "";
    while (strlen(text) + 1 < sizeof(text)) {
        text[strlen(text)] = 'x';
        put(in(p, "rules.yaml"), text);
        if (step(p, WEIR_WATCH_QUIET_MS / 2))
            break;
        waited_ms += WEIR_WATCH_QUIET_MS / 2;
    }
    assert_in_range(waited_ms, WEIR_WATCH_PATIENCE_MS - 100, WEIR_WATCH_PATIENCE_MS + 100);
}

static void a_change_before_the_first_step_is_found_by_it(void **state)
{
    struct place *p = *state;
    int timeout_ms;
    put(in(p, "rules.yaml"), "a");
    snprintf(p->path, sizeof(p->path), "%s/rules.yaml", p->dir);
    assert_int_equal(weir_rules_watch_new(&p->watch, p->path), 0);
    put(in(p, "rules.yaml"), "ab"); /* nobody watches yet: no event comes */
    assert_false(weir_rules_watch_step(p->watch, p->now_ms, &timeout_ms));
    assert_int_equal(timeout_ms, WEIR_WATCH_QUIET_MS);
    assert_true(step(p, WEIR_WATCH_QUIET_MS));
}

static void a_change_without_an_event_is_found_by_polling(void **state)
{
    struct place *p = *state;
    char events[4096];
    put(in(p, "rules.yaml"), "a");
    watch(p, "rules.yaml");
    put(in(p, "rules.yaml"), "ab");
    while (read(weir_rules_watch_fd(p->watch), events, sizeof(events)) > 0)
        ; /* somebody else took the events */
    assert_false(step(p, WEIR_WATCH_POLL_MS - 1));
    assert_false(step(p, 1));
    assert_true(step(p, WEIR_WATCH_QUIET_MS));
}

static void a_path_that_is_not_there_yet_is_noticed_when_it_comes(void **state)
{
    struct place *p = *state;
    watch(p, "rules.yaml");
    put(in(p, "rules.yaml"), "a");
    assert_noticed_by_event(p);
}

static void symlinks_in_a_circle_end(void **state)
{
    struct place *p = *state;
    run("ln -s b a && ln -s a b && mkdir d && ln -s .. d/up", p);
    watch(p, "a");
    weir_rules_watch_free(p->watch);
    p->watch = NULL;
    watch(p, "");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, make, clear)
    const struct CMUnitTest tests[] = {
        T(a_file_written_in_place_is_noticed),
        T(a_file_renamed_over_is_noticed),
        T(a_symlink_swapped_is_noticed),
        T(a_file_behind_a_symlink_is_watched_where_it_lies),
        T(a_symlink_in_the_middle_of_the_way_is_watched),
        T(a_configmap_swap_is_noticed_for_a_file_and_for_a_directory),
        T(a_directory_notices_new_changed_and_deleted_files_at_any_depth),
        T(deleting_and_making_again_are_two_changes),
        T(a_table_beside_a_file_of_rules_is_watched_and_other_files_are_not),
        T(touching_permissions_counts_because_it_may_make_a_file_readable),
        T(a_stream_of_events_is_looked_at_after_a_second),
        T(a_change_before_the_first_step_is_found_by_it),
        T(a_change_without_an_event_is_found_by_polling),
        T(a_path_that_is_not_there_yet_is_noticed_when_it_comes),
        T(symlinks_in_a_circle_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
