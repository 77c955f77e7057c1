/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"

#include "algo/fixed_window.h"
#include "algo/gcra.h"
#include "algo/leaky_bucket.h"
#include "algo/sliding_counter.h"
#include "base/atomic16.h"
#include "base/err.h"
#include "base/hash.h"

/* Dates are window numbers modulo these, plus 1, so that 0 is free to mean never. */
#define CELL_DATES 4095u
#define BLOOM_DATES 65535u
#define AHEAD_MAX 8u

#define COUNT_BITS 26u
#define CELL_DATE_SHIFT 52u
#define BLOOM_BITS 48u
#define BLOOM_MASK ((UINT64_C(1) << BLOOM_BITS) - 1)

/* One request on its way through the sketch. */
struct pass {
    struct weir_limit limit; /* as the cells can keep it */
    const struct weir_approx *approx;
    uint64_t key;
    uint64_t now_ns;
};

static bool is_bucket(const struct weir_limit *limit)
{
    WEIR_ASSERT(limit->algorithm != WEIR_CONCURRENCY);
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

static bool has_bloom(const struct weir_limit *limit, const struct weir_approx *approx)
{
    return limit->algorithm == WEIR_FIXED_WINDOW && approx->bloom_words > 0;
}

uint64_t weir_approx_bytes(const struct weir_limit *limit, const struct weir_approx *approx)
{
    uint64_t cell_bytes = is_bucket(limit) ? sizeof(union weir_u16b) : sizeof(uint64_t);
    uint64_t bloom_words = has_bloom(limit, approx) ? approx->bloom_words : 0;
    return approx->width * cell_bytes * approx->depth + bloom_words * sizeof(uint64_t);
}

void weir_approx_from_error(struct weir_approx *out, double error, double confidence)
{
    out->width = 1;
    if (!(error > 2.0 / WEIR_SKETCH_WIDTH_MAX))
        out->width = WEIR_SKETCH_WIDTH_MAX;
    else if (error < 2.0)
        out->width = (uint32_t)(2.0 / error);
    while (out->width < WEIR_SKETCH_WIDTH_MAX && error * out->width < 2.0)
        out->width++; /* what the division rounded down */
    out->depth = 1;
    for (double miss = 0.5; miss > 1.0 - confidence && out->depth < WEIR_SKETCH_DEPTH_MAX;
         miss /= 2)
        out->depth++;
}

/* The top 32 bits of x, stretched over 0 .. range - 1 (multiply and shift: no division). */
static uint64_t scale(uint64_t x, uint64_t range)
{
    return ((x >> 32) * range) >> 32;
}

static uint64_t cell_index(const struct pass *pass, uint32_t row)
{
    uint64_t spread = weir_mix64(pass->key + (row + 1) * UINT64_C(0x9e3779b97f4a7c15));
    return (uint64_t)row * pass->approx->width + scale(spread, pass->approx->width);
}

/* The window number nearest to index that has this date; behind it, or at most AHEAD_MAX ahead.
 * UINT64_MAX: it would lie before the epoch, so nobody wrote it. */
static uint64_t number_of(uint64_t date, uint64_t dates, uint64_t index)
{
    uint64_t ahead = (date - 1 + dates - index % dates) % dates;
    if (ahead <= AHEAD_MAX)
        return index + ahead;
    return index + ahead >= dates ? index + ahead - dates : UINT64_MAX;
}

/* ---- cells of windows ---- */

static uint64_t *window_cell(const struct pass *pass, uint32_t row)
{
    return (uint64_t *)pass->approx->cells + cell_index(pass, row);
}

static uint64_t pack(const struct weir_slide *slide)
{
    return (slide->index % CELL_DATES + 1) << CELL_DATE_SHIFT | slide->previous << COUNT_BITS |
           slide->current;
}

static struct weir_slide unpack(const struct pass *pass, uint64_t cell)
{
    struct weir_slide slide = {0};
    if (cell == 0)
        return slide;
    slide.index =
        number_of(cell >> CELL_DATE_SHIFT, CELL_DATES, pass->now_ns / pass->limit.window_ns);
    if (slide.index == UINT64_MAX)
        return (struct weir_slide){0};
    slide.previous = cell >> COUNT_BITS & WEIR_SKETCH_COUNT_MAX;
    slide.current = cell & WEIR_SKETCH_COUNT_MAX;
    return slide;
}

/* A cell as it is now: its window opened. */
static struct weir_slide open_cell(const struct pass *pass, uint64_t cell)
{
    struct weir_slide slide = unpack(pass, cell);
    weir_slide_open(&slide, pass->limit.window_ns, pass->now_ns);
    return slide;
}

/* All cells are read and swapped in one total order: who adds to every row and then reads every
 * row must not have its reads served before its additions are seen. */
static uint64_t load(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static bool swap(uint64_t *at, uint64_t *seen, uint64_t value)
{
    return __atomic_compare_exchange_n(at, seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* ---- the Bloom filter ---- */

static uint64_t *bloom_word(const struct pass *pass)
{
    return &pass->approx->bloom[scale(weir_mix64(~pass->key), pass->approx->bloom_words)];
}

/* Three bits of the word; two of them may be the same. */
static uint64_t bloom_bits(const struct pass *pass)
{
    uint64_t spread = weir_mix64(weir_mix64(~pass->key));
    uint64_t bits = 0;
    for (int i = 0; i < 3; i++, spread >>= 16)
        bits |= UINT64_C(1) << ((spread & 0xffff) * BLOOM_BITS >> 16);
    return bits;
}

/* Whether a word has the first hit of this key in window `index`.  A word of a window ahead no
 * longer says; then yes, as what is counted once too often admits no more. */
static bool bloom_holds(const struct pass *pass, uint64_t word, uint64_t index)
{
    uint64_t number = word == 0 ? UINT64_MAX : number_of(word >> BLOOM_BITS, BLOOM_DATES, index);
    if (number == UINT64_MAX || number < index)
        return false;
    uint64_t bits = bloom_bits(pass);
    return number > index || (word & bits) == bits;
}

static bool bloom_has(const struct pass *pass, uint64_t index)
{
    return has_bloom(&pass->limit, pass->approx) &&
           bloom_holds(pass, load(bloom_word(pass)), index);
}

/* How many of the hits went into the filter: 1 for the first of this key in this window. */
static uint64_t bloom_add(const struct pass *pass, uint64_t index)
{
    uint64_t date = (index % BLOOM_DATES + 1) << BLOOM_BITS;
    uint64_t *at = bloom_word(pass);
    uint64_t seen = load(at), word;
    do {
        if (bloom_holds(pass, seen, index))
            return 0;
        bool is_of_now = (seen & ~BLOOM_MASK) == date;
        word = (is_of_now ? seen : date) | bloom_bits(pass);
    } while (!swap(at, &seen, word));
    return 1;
}

/* ---- windows ---- */

/* previous + current + hits <= L */
static void decide_unweighted(const struct pass *pass, struct weir_slide *slide, uint64_t hits,
                              struct weir_verdict *out)
{
    const struct weir_limit *limit = &pass->limit;
    struct weir_moment at = weir_slide_open(slide, limit->window_ns, pass->now_ns);
    uint64_t used = slide->previous + slide->current;
    *out = (struct weir_verdict){.allowed = weir_sat_add(used, hits) <= limit->requests,
                                 .limit = limit->requests,
                                 .before = used};
    if (out->allowed)
        slide->current += hits;
    else if (hits > limit->requests)
        out->retry_after_ns = WEIR_NEVER;
    else
        out->retry_after_ns = weir_moment_until(
            &at, limit->window_ns, slide->current + hits <= limit->requests ? 1 : 2, 0);
    out->remaining = weir_sat_sub(limit->requests, slide->previous + slide->current);
    out->reset_after_ns = weir_slide_reset_after(slide, &at, limit->window_ns);
}

/* What the exact algorithm would say if one row were all. */
static void decide_row(const struct pass *pass, struct weir_slide slide, uint64_t hits,
                       struct weir_verdict *out)
{
    if (pass->limit.algorithm == WEIR_FIXED_WINDOW) {
        struct weir_window window = {.index = slide.index, .count = slide.current};
        weir_fixed_window_take(&pass->limit, &window, pass->now_ns, hits, out);
    } else if (pass->limit.algorithm == WEIR_SLIDING_WINDOW_COUNTER && pass->limit.buckets == 1) {
        weir_sliding_counter_take(&pass->limit, &slide, WEIR_SKETCH_COUNT_MAX, pass->now_ns, hits,
                                  out);
    } else {
        decide_unweighted(pass, &slide, hits, out);
    }
}

/* Every row counts this key and may count others: of the rows that allow it, or of all if none
 * does, what is least is nearest to the truth, in each number of the verdict. */
static void decide_rows(const struct pass *pass, const struct weir_slide *rows, uint64_t hits,
                        struct weir_verdict *out)
{
    decide_row(pass, rows[0], hits, out);
    for (uint32_t row = 1; row < pass->approx->depth; row++) {
        struct weir_verdict other;
        decide_row(pass, rows[row], hits, &other);
        if (other.allowed && !out->allowed)
            *out = other;
        if (other.allowed != out->allowed)
            continue;
        out->remaining = weir_max(out->remaining, other.remaining);
        out->reset_after_ns = weir_min(out->reset_after_ns, other.reset_after_ns);
        out->retry_after_ns = weir_min(out->retry_after_ns, other.retry_after_ns);
        out->before = weir_min(out->before, other.before);
    }
}

static void read_rows(const struct pass *pass, struct weir_slide *rows)
{
    for (uint32_t row = 0; row < pass->approx->depth; row++)
        rows[row] = open_cell(pass, load(window_cell(pass, row)));
}

/* Decides on rows as they are, with what the filter holds beside them. */
static void decide_with_filter(const struct pass *pass, const struct weir_slide *rows,
                               uint64_t in_filter, uint64_t hits, struct weir_verdict *out)
{
    struct weir_slide sums[WEIR_SKETCH_DEPTH_MAX] = {0};
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        sums[row] = rows[row];
        sums[row].current += in_filter;
    }
    decide_rows(pass, sums, hits, out);
}

/* The window that the filter counts in: that of the row least ahead, which has this key and
 * perhaps no other. */
static uint64_t filter_index(const struct pass *pass, const struct weir_slide *rows)
{
    uint64_t index = UINT64_MAX;
    for (uint32_t row = 0; row < pass->approx->depth; row++)
        index = weir_min(index, rows[row].index);
    return index;
}

static void look_windows(const struct pass *pass, uint64_t hits, struct weir_verdict *out)
{
    struct weir_slide rows[WEIR_SKETCH_DEPTH_MAX];
    read_rows(pass, rows);
    decide_with_filter(pass, rows, bloom_has(pass, filter_index(pass, rows)), hits, out);
}

/* Stores that the window was opened, as the exact algorithms do though nothing is added: a clock
 * that then goes back finds it open.  Most often it is; where another is faster it is too. */
static void settle_windows(const struct pass *pass)
{
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        uint64_t *at = window_cell(pass, row);
        uint64_t seen = load(at);
        struct weir_slide slide = open_cell(pass, seen);
        if (pack(&slide) != seen)
            swap(at, &seen, pack(&slide));
    }
}

/* Adds to every row; rows[] is what each then was. */
static void add_to_rows(const struct pass *pass, uint64_t hits, struct weir_slide *rows)
{
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        uint64_t *at = window_cell(pass, row);
        uint64_t seen = load(at);
        do {
            rows[row] = open_cell(pass, seen);
            rows[row].current = weir_min(rows[row].current + hits, WEIR_SKETCH_COUNT_MAX);
        } while (!swap(at, &seen, pack(&rows[row])));
    }
}

/* Takes back from rows whose window is still the one that was added to.  A count at its maximum
 * has forgotten what it holds, and stays there. */
static void take_from_rows(const struct pass *pass, uint64_t hits, const struct weir_slide *rows)
{
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        uint64_t *at = window_cell(pass, row);
        uint64_t seen = load(at);
        struct weir_slide slide;
        do {
            slide = open_cell(pass, seen);
            if (slide.index != rows[row].index || slide.current == WEIR_SKETCH_COUNT_MAX)
                break;
            slide.current = weir_sat_sub(slide.current, hits);
        } while (!swap(at, &seen, pack(&slide)));
    }
}

/* The window that was added to, as its row has it now. */
static struct weir_slide read_again(const struct pass *pass, uint32_t row,
                                    const struct weir_slide *added)
{
    struct weir_slide slide = unpack(pass, load(window_cell(pass, row)));
    if (slide.index == added->index + 1) /* another's clock is past the end of the window */
        return (struct weir_slide){added->index, added->previous, slide.previous};
    if (slide.index > added->index)
        return *added;
    slide.index = added->index;
    return slide;
}

static void take_windows(const struct pass *pass, uint64_t hits, struct weir_verdict *out)
{
    struct weir_slide rows[WEIR_SKETCH_DEPTH_MAX];
    read_rows(pass, rows);
    uint64_t index = filter_index(pass, rows);
    bool is_in_filter = bloom_has(pass, index);
    decide_with_filter(pass, rows, is_in_filter, hits, out);
    if (!out->allowed || hits == 0) {
        settle_windows(pass);
        return;
    }
    uint64_t first = 0;
    if (!is_in_filter && has_bloom(&pass->limit, pass->approx)) {
        first = bloom_add(pass, index);
        is_in_filter = true; /* ours, or that of another who was faster */
    }
    add_to_rows(pass, hits - first, rows);
    struct weir_slide before[WEIR_SKETCH_DEPTH_MAX];
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        before[row] = read_again(pass, row, &rows[row]);
        before[row].current = weir_sat_sub(before[row].current + is_in_filter, hits);
    }
    decide_rows(pass, before, hits, out);
    /* Bits of the filter are shared, so they stay: the key is counted one too high then. */
    if (!out->allowed)
        take_from_rows(pass, hits - first, rows);
}

static void give_windows(const struct pass *pass, uint64_t hits, struct weir_verdict *out)
{
    look_windows(pass, 0, out);
    uint64_t before = out->before;
    struct weir_slide rows[WEIR_SKETCH_DEPTH_MAX];
    read_rows(pass, rows);
    /* Not more than this key can have added: the rest of a cell is others'. */
    for (uint32_t row = 0; row < pass->approx->depth; row++)
        hits = weir_min(hits, rows[row].current);
    take_from_rows(pass, hits, rows);
    look_windows(pass, 0, out);
    out->allowed = true;
    out->retry_after_ns = 0;
    out->before = before;
}

/* ---- buckets ---- */

static union weir_u16b *bucket_cell(const struct pass *pass, uint32_t row)
{
    return (union weir_u16b *)pass->approx->cells + cell_index(pass, row);
}

/* A cell's high word: cuts 47 << 17 | num 17.  It counts how often the cell was cut to an empty
 * bucket by one who added nothing: see take_buckets(). */
#define NUM_BITS 17u
#define NUM_MASK ((UINT64_C(1) << NUM_BITS) - 1)

/* A fraction of another denominator (the rate was changed) is rounded up. */
static struct weir_tat tat_of(const struct pass *pass, union weir_u16b cell)
{
    uint32_t num = (uint32_t)(cell.hi & NUM_MASK);
    if (num >= pass->limit.step_den)
        return (struct weir_tat){.ns = cell.lo + 1};
    return (struct weir_tat){.ns = cell.lo, .num = num};
}

static union weir_u16b cell_of(struct weir_tat tat, uint64_t cuts)
{
    return (union weir_u16b){.lo = tat.ns, .hi = cuts << NUM_BITS | tat.num};
}

/* The least over the rows; with cuts[], over those that were not cut since. */
static struct weir_tat least_tat(const struct pass *pass, const uint64_t *cuts)
{
    struct weir_tat least = {.ns = UINT64_MAX};
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        union weir_u16b cell = weir_load16(bucket_cell(pass, row));
        struct weir_tat tat = tat_of(pass, cell);
        if (cuts != NULL && cell.hi >> NUM_BITS != cuts[row])
            continue;
        if (tat.ns < least.ns || (tat.ns == least.ns && tat.num < least.num))
            least = tat;
    }
    return least;
}

static void decide_bucket(const struct pass *pass, struct weir_tat tat, uint64_t hits,
                          struct weir_verdict *out)
{
    if (pass->limit.algorithm == WEIR_LEAKY_BUCKET)
        weir_leaky_bucket_take(&pass->limit, &tat, pass->now_ns, hits, out);
    else
        weir_token_bucket_take(&pass->limit, &tat, pass->now_ns, hits, out);
}

/* Adds a cost to every row; cuts[] is how often each was cut by then.  A row is cut to an empty
 * bucket first, which is as full as any key alone can be, so no key is under-counted by it. */
static void add_to_buckets(const struct pass *pass, const struct weir_gcra *g,
                           struct weir_span cost, uint64_t *cuts)
{
    bool adds = cost.ns > 0 || cost.num > 0;
    for (uint32_t row = 0; row < pass->approx->depth; row++) {
        union weir_u16b *at = bucket_cell(pass, row);
        union weir_u16b seen, next;
        do {
            seen = weir_load16(at);
            cuts[row] = seen.hi >> NUM_BITS;
            struct weir_tat tat = tat_of(pass, seen);
            struct weir_span ahead = weir_gcra_ahead(g, &tat, pass->now_ns);
            ahead = weir_span_add(ahead, cost, g->den);
            next = cell_of(weir_gcra_tat(ahead, pass->now_ns), cuts[row]);
            bool is_cut = !adds && next.lo < seen.lo;
            next.hi += (uint64_t)is_cut << NUM_BITS;
        } while (!weir_eq16(seen, next) && !weir_cas16(at, seen, next) && adds);
    }
}

/* What two threads took of the last token is not given back: once time has moved on, a cell that
 * is cut at now has forgotten the hits, and taking them back would eat another's.
 *
 * A row above the cap tells threads that they raced for the last place.  One that was cut since we
 * added to it cannot tell any more, so we do not ask it. */
static void take_buckets(const struct pass *pass, uint64_t hits, struct weir_verdict *out)
{
    struct weir_gcra g = weir_gcra_of(&pass->limit);
    decide_bucket(pass, least_tat(pass, NULL), hits, out);
    uint64_t added = out->allowed ? hits : 0;
    struct weir_span cost = weir_span_times(g.step, added, g.den);
    uint64_t cuts[WEIR_SKETCH_DEPTH_MAX];
    add_to_buckets(pass, &g, cost, cuts);
    if (added == 0)
        return;
    struct weir_tat after = least_tat(pass, cuts);
    struct weir_span before = {.ns = after.ns, .num = after.num};
    before =
        weir_span_less(before, cost) ? (struct weir_span){0} : weir_span_sub(before, cost, g.den);
    decide_bucket(pass, (struct weir_tat){before.ns, before.num}, hits, out);
}

/* ---- the three ways in ---- */

/* Refused hits are not added; and a count must be able to show that it is over the limit. */
static struct pass pass_of(const struct weir_limit *limit, const struct weir_approx *approx,
                           uint64_t key, uint64_t now_ns)
{
    WEIR_ASSERT(approx->depth >= 1 && approx->depth <= WEIR_SKETCH_DEPTH_MAX);
    struct pass pass = {.limit = *limit, .approx = approx, .key = key, .now_ns = now_ns};
    pass.limit.count_rejected = false;
    if (!is_bucket(limit))
        pass.limit.requests = (uint32_t)weir_min(limit->requests, WEIR_SKETCH_COUNT_MAX - 1);
    return pass;
}

void weir_sketch_take(const struct weir_limit *limit, const struct weir_approx *approx,
                      uint64_t key, uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct pass pass = pass_of(limit, approx, key, now_ns);
    if (is_bucket(limit)) {
        take_buckets(&pass, hits, out);
        return;
    }
    take_windows(&pass, hits, out);
    out->limit = limit->requests;
}

void weir_sketch_look(const struct weir_limit *limit, const struct weir_approx *approx,
                      uint64_t key, uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct pass pass = pass_of(limit, approx, key, now_ns);
    if (is_bucket(limit)) {
        decide_bucket(&pass, least_tat(&pass, NULL), hits, out);
        return;
    }
    look_windows(&pass, hits, out);
    out->limit = limit->requests;
}

void weir_sketch_give(const struct weir_limit *limit, const struct weir_approx *approx,
                      uint64_t key, uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (is_bucket(limit)) {
        weir_sketch_look(limit, approx, key, now_ns, 0, out);
        return;
    }
    if (weir_limit_is_closed(limit, 0, out))
        return;
    struct pass pass = pass_of(limit, approx, key, now_ns);
    give_windows(&pass, hits, out);
    out->limit = limit->requests;
}
