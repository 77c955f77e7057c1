/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct weir_pool pool;

static int done(void **state)
{
    (void)state;
    weir_pool_fini(&pool);
    assert_int_equal(pool.kept, 0);
    return 0;
}

/* Bytes that only this block has, so that two that overlap are noticed. */
static void fill(uint8_t *block, size_t len, unsigned number)
{
    for (size_t i = 0; i < len; i++)
        block[i] = (uint8_t)(number * 31 + i);
}

static void assert_filled(const uint8_t *block, size_t len, unsigned number)
{
    for (size_t i = 0; i < len; i++)
        assert_int_equal(block[i], (uint8_t)(number * 31 + i));
}

static void blocks_of_every_length_are_aligned_and_apart(void **state)
{
    static uint8_t *blocks[600];
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (unsigned len = 0; len < 600; len++) {
            blocks[len] = weir_pool_alloc(&pool, len);
            assert_non_null(blocks[len]);
            assert_int_equal((uintptr_t)blocks[len] % 16, 0);
            fill(blocks[len], len, len);
        }
        for (unsigned len = 0; len < 600; len++) {
            assert_filled(blocks[len], len, len);
            weir_pool_free(&pool, blocks[len]);
        }
    }
}

static void what_grows_keeps_its_bytes(void **state)
{
    uint8_t *block = NULL;
    (void)state;
    for (unsigned len = 1; len < 3000; len += len / 3 + 1) {
        block = weir_pool_resize(&pool, block, len);
        assert_non_null(block);
        if (len > 1)
            assert_filled(block, 1, 7);
        fill(block, len, 7);
    }
    block = weir_pool_resize(&pool, block, 5);
    assert_filled(block, 5, 7);
    weir_pool_free(&pool, block);
}

static void zeroed_blocks_are_zero_though_used_before(void **state)
{
    (void)state;
    uint8_t *block = weir_pool_alloc(&pool, 100);
    memset(block, 0xFF, 100);
    weir_pool_free(&pool, block);
    block = weir_pool_zeroed(&pool, 10, 10);
    for (int i = 0; i < 100; i++)
        assert_int_equal(block[i], 0);
    weir_pool_free(&pool, block);
    assert_null(weir_pool_zeroed(&pool, SIZE_MAX / 2, 3));
    assert_null(weir_pool_alloc(&pool, SIZE_MAX));
}

static void only_so_much_is_kept(void **state)
{
    size_t count = WEIR_POOL_KEPT_MAX / 512 + 100;
    void **blocks = calloc(count, sizeof(*blocks));
    (void)state;
    for (size_t i = 0; i < count; i++)
        blocks[i] = weir_pool_alloc(&pool, 490);
    for (size_t i = 0; i < count; i++)
        weir_pool_free(&pool, blocks[i]);
    assert_true(pool.kept <= WEIR_POOL_KEPT_MAX);
    weir_pool_free(&pool, NULL);
    free(blocks);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, done)
    const struct CMUnitTest tests[] = {
        CASE(blocks_of_every_length_are_aligned_and_apart),
        CASE(what_grows_keeps_its_bytes),
        CASE(zeroed_blocks_are_zero_though_used_before),
        CASE(only_so_much_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
