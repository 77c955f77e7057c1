/* SPDX-License-Identifier: Apache-2.0 */
#include "base/atomic16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define HANDS 4
#define TURNS 20000

static union weir_u16b pair(uint64_t lo, uint64_t hi)
{
    return (union weir_u16b){.lo = lo, .hi = hi};
}

static void a_swap_needs_all_sixteen_bytes_to_match(void **state)
{
    (void)state;
    union weir_u16b cell = pair(1, 2);
    assert_false(weir_cas16(&cell, pair(1, 3), pair(7, 7)));
    assert_false(weir_cas16(&cell, pair(3, 2), pair(7, 7)));
    assert_true(weir_eq16(cell, pair(1, 2)));
    assert_true(weir_cas16(&cell, pair(1, 2), pair(7, 8)));
    assert_true(weir_eq16(cell, pair(7, 8)));
}

static void a_load_leaves_every_value_as_it_is(void **state)
{
    (void)state;
    union weir_u16b cells[] = {pair(0, 0), pair(0, 1), pair(1, 0), pair(UINT64_MAX, UINT64_MAX)};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        union weir_u16b before = cells[i];
        assert_true(weir_eq16(weir_load16(&cells[i]), before));
        assert_true(weir_eq16(weir_peek16(&cells[i]), before));
        assert_true(weir_eq16(cells[i], before));
    }
}

/* lo counts up and hi down: their sum is 0 in every value that was ever swapped in. */
static int count_up_and_down(union weir_u16b *cell)
{
    for (int turn = 0; turn < TURNS; turn++) {
        union weir_u16b old;
        do {
            old = weir_load16(cell);
            if (old.lo + old.hi != 0)
                return 1;
        } while (!weir_cas16(cell, old, pair(old.lo + 1, old.hi - 1)));
    }
    return 0;
}

static void processes_that_share_memory_lose_no_swap(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* TSan does these swaps under a lock of its own, which other processes do not see */
#endif
    union weir_u16b *cell =
        mmap(NULL, sizeof *cell, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(cell, MAP_FAILED);
    for (int hand = 0; hand < HANDS; hand++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(count_up_and_down(cell));
    }
    for (int hand = 0; hand < HANDS; hand++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(cell->lo, (uint64_t)HANDS * TURNS);
    assert_int_equal(cell->lo + cell->hi, 0);
    munmap(cell, sizeof *cell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_swap_needs_all_sixteen_bytes_to_match),
        cmocka_unit_test(a_load_leaves_every_value_as_it_is),
        cmocka_unit_test(processes_that_share_memory_lose_no_swap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
