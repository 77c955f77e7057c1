/* sketch.h - counts keys that we cannot afford to store (`counting: approximate`): count-min behind
 * a Bloom filter.
 *
 * Never under-counts; over-counts by at most 2n/width with odds 1 - 2^-depth.  Few keys in a wide
 * sketch decide exactly as counting does.
 *
 *   look at all rows, refuse if the least is too much;  add to all rows;  READ ALL ROWS AGAIN, take
 *   the least, take back if refused
 *
 * Reading again is what makes it safe between threads: of two that race for the last hit, the one
 * that finishes adding second sees both.  (Conservative update, raising only the least cells, loses
 * hits between threads.)
 *
 * Windows: a cell dates itself, so no timer rotates anything:
 *
 *     cell = date 12 bits << 52 | previous count 26 bits << 26 | current count 26 bits
 *     date = window number mod 4095, + 1                          a zeroed cell was never used
 *
 * A date up to 8 windows ahead of now is one: the clock went back.  All others are behind.  So a
 * cell that nobody touched for 4087 windows or more may, with odds of 10 in 4095, be taken for one
 * of now; it then over-counts, for two windows at most.
 *
 * Buckets: a cell is itself a GCRA (16 bytes: ns, cuts << 17 | num; cuts tells a racing thread that
 * its evidence is gone); the estimate is the least over the rows.
 * Refills at intervals are smoothed.
 * Log, and the sliding counter in sub-windows: previous + current, unweighted.
 * Refused hits are not added, whatever count_rejected says.  Concurrency cannot be sketched.
 *
 * Counts stop at WEIR_SKETCH_COUNT_MAX; of a limit that is not below it, so much can be used.
 *
 * Bloom filter (optional): the first hit of a key in a window sets bits in one self-dated word
 * (date 16 bits << 48 | 48 bits) and is not added to the rows, so that the long tail of keys seen
 * once does not fill them; a key found in it counts one more than the rows say.  Fixed windows
 * only: the sliding ones also need the window before, which a word forgets when it is dated anew.
 *
 * Purity: no clock, no malloc, no I/O.  Threads: any number at once, also in several processes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_SKETCH_H
#define WEIR_ALGO_SKETCH_H

#include "algo/limit.h"

#define WEIR_SKETCH_DEPTH_MAX 8
#define WEIR_SKETCH_WIDTH_MAX (1u << 28)
#define WEIR_SKETCH_COUNT_MAX ((1u << 26) - 1)

/* The rule's parameters, and, once bound to a table, where its cells are. */
struct weir_approx {
    uint32_t width;       /* cells in a row, at least 1 */
    uint32_t depth;       /* rows, at least 1 */
    uint32_t bloom_words; /* 0: no Bloom filter */
    void *cells;          /* 8 bytes a cell for windows, 16 for buckets; 16-byte aligned; zeroed */
    uint64_t *bloom;
};

/* Bytes that the sketch of this limit takes: cells, then Bloom words. */
uint64_t weir_approx_bytes(const struct weir_limit *limit, const struct weir_approx *approx);

/* width and depth for {error, confidence}: error = the share of all hits by which a key may be
 * over-counted.  The rest of *out is left alone. */
void weir_approx_from_error(struct weir_approx *out, double error, double confidence);

void weir_sketch_take(const struct weir_limit *limit, const struct weir_approx *approx,
                      uint64_t key, uint64_t now_ns, uint64_t hits, struct weir_verdict *out);
/* What take() would answer now; changes nothing. */
void weir_sketch_look(const struct weir_limit *limit, const struct weir_approx *approx,
                      uint64_t key, uint64_t now_ns, uint64_t hits, struct weir_verdict *out);
/* Windows subtract from the current window, down to 0 (what the Bloom filter holds stays);
 * buckets do nothing. */
void weir_sketch_give(const struct weir_limit *limit, const struct weir_approx *approx,
                      uint64_t key, uint64_t now_ns, uint64_t hits, struct weir_verdict *out);

#endif
