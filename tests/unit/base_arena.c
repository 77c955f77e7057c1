/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static int open_arena(void **state)
{
    static struct weir_arena arena;
    weir_arena_init(&arena);
    *state = &arena;
    return 0;
}

static int close_arena(void **state)
{
    weir_arena_fini(*state);
    return 0;
}

static void memory_is_zeroed_and_aligned_as_asked(void **state)
{
    for (size_t align = 1; align <= 64; align *= 2) {
        for (size_t bytes = 1; bytes < 100; bytes++) {
            char *at = weir_arena_alloc(*state, bytes, align);
            assert_non_null(at);
            assert_int_equal((uintptr_t)at % align, 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(at[i], 0);
            memset(at, 0xff, bytes);
        }
    }
}

/* 1 MiB in pieces of 7 bytes crosses many chunks; each keeps what was written to it. */
static void objects_do_not_overlap_and_do_not_move(void **state)
{
    enum { PIECES = (1 << 20) / 7 };
    char **at = WEIR_ARENA_ARRAY(*state, PIECES, char *);
    assert_non_null(at);
    for (int i = 0; i < PIECES; i++) {
        at[i] = weir_arena_alloc(*state, 7, 1);
        assert_non_null(at[i]);
        memset(at[i], i & 0xff, 7);
    }
    for (int i = 0; i < PIECES; i++)
        for (int j = 0; j < 7; j++)
            assert_int_equal((unsigned char)at[i][j], i & 0xff);
}

static void an_object_larger_than_a_chunk_has_its_own(void **state)
{
    size_t bytes = (size_t)9 << 20;
    char *at = weir_arena_alloc(*state, bytes, 16);
    assert_non_null(at);
    at[0] = at[bytes - 1] = 1;
    assert_non_null(weir_arena_alloc(*state, 1, 1));
}

static void a_copy_outlives_what_it_was_made_of(void **state)
{
    char text[] = "a\0b";
    struct weir_str copy = weir_arena_str(*state, (struct weir_str){.ptr = text, .len = 3});
    memset(text, 'x', sizeof text);
    assert_true(weir_str_eq(copy, WEIR_STR("a\0b")));
    assert_true(weir_str_eq(weir_arena_str(*state, (struct weir_str){0}), WEIR_STR("")));
}

static void what_cannot_be_had_is_remembered(void **state)
{
    struct weir_arena *arena = *state;
    assert_non_null(weir_arena_alloc(arena, 1, 1));
    assert_false(arena->has_failed);
    assert_null(weir_arena_alloc(arena, SIZE_MAX, 1));
    assert_true(arena->has_failed);
    assert_non_null(weir_arena_alloc(arena, 1, 1));
    assert_true(arena->has_failed);
}

static void sizes_that_overflow_fail(void **state)
{
    struct weir_arena *arena = *state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096, SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_null(weir_arena_alloc(arena, sizes[i], 16));
    assert_null(weir_arena_array(arena, SIZE_MAX / 8 + 1, 8, 8));
    assert_null(weir_arena_array(arena, SIZE_MAX, SIZE_MAX, 1));
    assert_true(arena->has_failed);
}

static void an_arena_can_be_finished_twice_and_used_again(void **state)
{
    struct weir_arena *arena = *state;
    weir_arena_fini(arena);
    assert_non_null(weir_arena_alloc(arena, 1, 1));
    weir_arena_fini(arena);
    weir_arena_fini(arena);
    assert_int_equal(arena->bytes, 0);
    assert_non_null(weir_arena_alloc(arena, 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_is_zeroed_and_aligned_as_asked, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(objects_do_not_overlap_and_do_not_move, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(an_object_larger_than_a_chunk_has_its_own, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(a_copy_outlives_what_it_was_made_of, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(what_cannot_be_had_is_remembered, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(sizes_that_overflow_fail, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(an_arena_can_be_finished_twice_and_used_again, open_arena,
                                        close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
