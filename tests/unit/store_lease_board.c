/* store_lease_board.c - all workers know what the store said last of a key.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/lease_board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void the_last_word_is_known(void **state)
{
    (void)state;
    struct weir_lease_board *board;
    struct weir_lease_word said;
    assert_int_equal(weir_lease_board_new(&board, 16), 0);
    assert_false(weir_lease_board_read(board, 7, &said));
    weir_lease_board_write(board, 7,
                           (struct weir_lease_word){.left = 10, .reset_ns = 100, .mark = 5});
    weir_lease_board_write(board, 7, (struct weir_lease_word){.left = 3, .reset_ns = 90});
    assert_true(weir_lease_board_read(board, 7, &said));
    assert_int_equal(said.left, 3);
    assert_int_equal(said.reset_ns, 90);
    assert_int_equal(said.mark, 5); /* it granted nothing the second time */
    weir_lease_board_free(board);
}

/* Of those that share a place, the last; never one's numbers for another. */
static void keys_do_not_mix(void **state)
{
    (void)state;
    struct weir_lease_board *board;
    struct weir_lease_word said;
    uint32_t known = 0;
    assert_int_equal(weir_lease_board_new(&board, 16), 0);
    for (uint64_t key = 1; key <= 100; key++)
        weir_lease_board_write(board, key, (struct weir_lease_word){.left = key});
    for (uint64_t key = 1; key <= 100; key++) {
        if (!weir_lease_board_read(board, key, &said))
            continue;
        assert_int_equal(said.left, key);
        known++;
    }
    assert_in_range(known, 8, 16);
    weir_lease_board_free(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_word_is_known),
        cmocka_unit_test(keys_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
