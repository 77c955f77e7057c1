/* algo_oracle.c - every field of every decision, against arithmetic that is exact and naive.
 *
 * The oracles are written for nothing but to be seen to be right: time and counts in 128 bits, a
 * search where there is a formula, a sorted list where there is a ring.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo_subject.h"

#include <string.h>

__extension__ typedef __int128 big;

/* What an oracle remembers of one key. */
struct memory {
    bool is_used;
    big index, previous, current; /* windows */
    big instant;                  /* buckets: in dens */
    big tick, tokens;             /* interval refill */
    uint64_t log[2 * CELLS];
    uint32_t log_len;
};

struct answer {
    bool allowed;
    big limit, remaining, reset, retry, delay; /* retry < 0: never */
};

static big least(big a, big b)
{
    return a < b ? a : b;
}

static big most(big a, big b)
{
    return a > b ? a : b;
}

static big ceil_of(big a, big b)
{
    return a / b + (a % b > 0 ? 1 : 0);
}

/* ---- windows ---- */

/* The number of the window that counts, and in *elapsed how much of it has passed. */
static big window_of(const struct weir_limit *l, struct memory *m, big t, big *elapsed)
{
    big i = t / l->window_ns;
    if (m->is_used && m->index > i) {
        m->index = least(m->index, i + 1);
        i = m->index;
    }
    *elapsed = most(0, t - i * l->window_ns);
    return i;
}

static struct answer fixed(const struct weir_limit *l, struct memory *m, big t, big h)
{
    big elapsed, i = window_of(l, m, t, &elapsed);
    big count = m->is_used && m->index == i ? m->current : 0;
    bool ok = count + h <= l->requests;
    if (ok || l->count_rejected)
        count = least(count + h, WEIR_WINDOW_COUNT_MAX);
    m->is_used = true;
    m->index = i;
    m->current = count;
    big reset = (i + 1) * l->window_ns - t;
    big retry = ok ? 0 : h > l->requests ? -1 : reset;
    return (struct answer){ok, l->requests, most(0, l->requests - count), reset, retry, 0};
}

static big estimate(const struct weir_limit *l, big previous, big current, big elapsed)
{
    big weight = previous * (l->window_ns - elapsed);
    return current + (l->round_up ? ceil_of(weight, l->window_ns) : weight / l->window_ns);
}

/* By search, in this window, the next, and the one after. */
static big counter_retry(const struct weir_limit *l, const struct memory *m, big t, big h,
                         big elapsed)
{
    big counts[3][2] = {{m->previous, m->current}, {m->current, 0}, {0, 0}};
    for (int k = 0; k < 3; k++) {
        big low = k == 0 ? elapsed : 0, high = l->window_ns - 1;
        if (estimate(l, counts[k][0], counts[k][1], high) + h > l->requests)
            continue;
        while (low < high) {
            big middle = (low + high) / 2;
            if (estimate(l, counts[k][0], counts[k][1], middle) + h <= l->requests)
                high = middle;
            else
                low = middle + 1;
        }
        return (m->index + k) * l->window_ns + low - t;
    }
    return -1;
}

static struct answer counter(const struct weir_limit *l, struct memory *m, big t, big h)
{
    big elapsed, i = window_of(l, m, t, &elapsed);
    big previous = 0, current = 0;
    if (m->is_used && m->index == i) {
        previous = m->previous;
        current = m->current;
    } else if (m->is_used && m->index == i - 1) {
        previous = m->current;
    }
    big used = estimate(l, previous, current, elapsed);
    bool ok = used + h <= l->requests;
    if (ok || l->count_rejected) {
        current = least(current + h, COUNT_MAX);
        used += h;
    }
    m->is_used = true;
    m->index = i;
    m->previous = previous;
    m->current = current;
    big reset = current ? (i + 2) * l->window_ns - t : previous ? (i + 1) * l->window_ns - t : 0;
    big retry = ok ? 0 : h > l->requests ? -1 : counter_retry(l, m, t, h, elapsed);
    return (struct answer){ok, l->requests, most(0, l->requests - used), reset, retry, 0};
}

static struct answer logged(const struct weir_limit *l, struct memory *m, big t, big h)
{
    big at = t, window = l->window_ns;
    if (m->log_len > 0)
        at = most(t, least(m->log[m->log_len - 1], t + window));
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->log_len; i++)
        if (m->log[i] >= at - window)
            m->log[n++] = (uint64_t)least(m->log[i], at);
    bool ok = n + h <= l->requests;
    if (ok || l->count_rejected)
        for (big i = 0; i < least(h, l->requests); i++)
            m->log[n++] = (uint64_t)at;
    uint32_t keep = (uint32_t)least(n, l->requests);
    if (ok || l->count_rejected)
        memmove(m->log, m->log + n - keep, keep * sizeof(m->log[0]));
    m->log_len = ok || l->count_rejected ? keep : n;
    big retry = ok ? 0 : -1;
    if (!ok && h <= l->requests)
        retry = m->log[m->log_len + h - l->requests - 1] + window + 1 - t;
    big reset = m->log_len > 0 ? m->log[m->log_len - 1] + window + 1 - t : 0;
    big remaining = most(0, (big)l->requests - m->log_len);
    return (struct answer){ok, l->requests, remaining, reset, retry, 0};
}

/* ---- buckets ---- */

/* The step in dens, and the den: exact in units of 1/L ns, unless it is too fine for the limit. */
static big step_of(const struct weir_limit *l, big *den)
{
    big gcd = l->window_ns, other = l->requests;
    while (other != 0) {
        big rest = gcd % other;
        gcd = other;
        other = rest;
    }
    *den = l->requests;
    if (l->requests / gcd <= 65536)
        return l->window_ns;
    *den = 65536;
    return ceil_of((big)l->window_ns * 65536, l->requests);
}

static struct answer token(const struct weir_limit *l, struct memory *m, big t, big h)
{
    big den, step = step_of(l, &den), cap = l->burst * step, now = t * den;
    big full_at = m->is_used ? least(most(m->instant, now), now + cap) : now;
    bool ok = (full_at - now) + h * step <= cap;
    if (ok)
        full_at += h * step;
    big left = cap - (full_at - now);
    m->is_used = true;
    m->instant = full_at;
    big retry = ok ? 0 : h > l->burst ? -1 : ceil_of(h * step - left, den);
    return (struct answer){ok, l->burst, left / step, ceil_of(full_at - now, den), retry, 0};
}

static struct answer leaky(const struct weir_limit *l, struct memory *m, big t, big h)
{
    big den, step = step_of(l, &den), now = t * den;
    big free_at = m->is_used ? least(most(m->instant, now), now + (l->burst + (big)1) * step) : now;
    big leaves = free_at + most(0, h - 1) * step;
    bool ok = h == 0 || leaves - now <= l->burst * step;
    big retry = ok ? 0 : h - 1 > l->burst ? -1 : ceil_of(leaves - now - l->burst * step, den);
    big delay = ok && h > 0 ? ceil_of(leaves - now, den) : 0;
    if (ok)
        free_at += h * step;
    m->is_used = true;
    m->instant = free_at;
    big room = 0; /* one by one, as they could enter */
    big free_time = l->burst * step - (free_at - now);
    if (free_time >= 0)
        room = free_time / step + 1;
    return (struct answer){ok, l->burst + (big)1, room, ceil_of(free_at - now, den), retry, delay};
}

static big wait_for(const struct weir_limit *l, const struct memory *m, big t, big tokens)
{
    if (tokens <= 0)
        return 0;
    return least((m->tick + ceil_of(tokens, l->requests)) * l->window_ns - t, WEIR_NEVER - 1);
}

static struct answer interval(const struct weir_limit *l, struct memory *m, big t, big h)
{
    big i = t / l->window_ns;
    big tick = most(i, least(m->tick, i + 1));
    big tokens = l->burst;
    if (m->is_used)
        tokens = least(l->burst, m->tokens + l->requests * most(0, tick - m->tick));
    bool ok = tokens >= h;
    if (ok)
        tokens -= h;
    m->is_used = true;
    m->tick = tick;
    m->tokens = tokens;
    big retry = ok ? 0 : h > l->burst ? -1 : wait_for(l, m, t, h - tokens);
    return (struct answer){ok, l->burst, tokens, wait_for(l, m, t, l->burst - tokens), retry, 0};
}

/* ---- the comparison ---- */

static struct answer oracle(const struct subject *s, struct memory *m, uint64_t t, uint64_t h)
{
    const struct weir_limit *l = &s->limit;
    if (l->requests == 0)
        return (struct answer){.allowed = h == 0, .retry = h == 0 ? 0 : -1};
    switch (s->kind) {
    case FIXED:
        return fixed(l, m, t, h);
    case COUNTER:
        return counter(l, m, t, h);
    case LOG:
        return logged(l, m, t, h);
    case TOKEN:
        return token(l, m, t, h);
    case TICK:
        return interval(l, m, t, h);
    case LEAKY:
        return leaky(l, m, t, h);
    case SUB:
    case KINDS:
        break;
    }
    abort();
}

static bool agree(const struct answer *a, const struct weir_verdict *v)
{
    return a->allowed == v->allowed && a->limit == v->limit && a->remaining == v->remaining &&
           a->reset == v->reset_after_ns && a->delay == v->delay_ns &&
           (a->retry < 0 ? v->retry_after_ns == WEIR_NEVER : a->retry == v->retry_after_ns);
}

static void describe(const struct subject *s, uint64_t t, uint64_t h, const struct answer *a,
                     const struct weir_verdict *v)
{
    const struct weir_limit *l = &s->limit;
    print_message("%s: L=%" PRIu32 " B=%" PRIu32 " W=%" PRIu64 "ns count_rejected=%d round_up=%d\n",
                  kind_names[s->kind], l->requests, l->burst, l->window_ns, l->count_rejected,
                  l->round_up);
    print_message("t=%" PRIu64 " h=%" PRIu64 "\n  must be allowed=%d limit=%" PRIu64
                  " remaining=%" PRIu64 " reset=%" PRIu64 " retry=%" PRIu64 " delay=%" PRIu64 "\n",
                  t, h, a->allowed, (uint64_t)a->limit, (uint64_t)a->remaining, (uint64_t)a->reset,
                  (uint64_t)a->retry, (uint64_t)a->delay);
    print_message("  but is  allowed=%d limit=%" PRIu64 " remaining=%" PRIu64 " reset=%" PRIu64
                  " retry=%" PRIu64 " delay=%" PRIu64 "\n",
                  v->allowed, v->limit, v->remaining, v->reset_after_ns, v->retry_after_ns,
                  v->delay_ns);
}

static void compare(enum kind kind, uint32_t limit_max, uint64_t rounds)
{
    struct luck luck = luck_of(kind_names[kind]);
    rounds = scaled(rounds);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, kind, limit_max);
        struct memory m = {0};
        uint64_t now_ns = random_start(&luck), retry_ns = 0;
        for (luck.step = 0; luck.step < 50; luck.step++) {
            now_ns = random_time(&luck, &s.limit, now_ns, retry_ns);
            uint64_t hits = random_hits(&luck, &s);
            struct answer a = oracle(&s, &m, now_ns, hits);
            struct weir_verdict v = take(&s, now_ns, hits);
            bool agrees = agree(&a, &v);
            if (!agrees)
                describe(&s, now_ns, hits, &a, &v);
            CHECK_ALL(&luck, agrees);
            retry_ns = v.retry_after_ns;
        }
    }
}

static void fixed_windows_decide_as_exact_arithmetic_does(void **state)
{
    (void)state;
    compare(FIXED, 20, 40000);
    compare(FIXED, UINT32_MAX, 40000);
}

static void sliding_counters_decide_as_exact_arithmetic_does(void **state)
{
    (void)state;
    compare(COUNTER, 20, 40000);
    compare(COUNTER, UINT32_MAX, 40000);
}

static void logs_decide_as_exact_arithmetic_does(void **state)
{
    (void)state;
    compare(LOG, 8, 40000);
    compare(LOG, CELLS, 20000);
}

static void token_buckets_decide_as_exact_arithmetic_does(void **state)
{
    (void)state;
    compare(TOKEN, 100, 40000);
    compare(TOKEN, UINT32_MAX, 40000);
}

static void refills_at_intervals_decide_as_exact_arithmetic_does(void **state)
{
    (void)state;
    compare(TICK, 100, 40000);
    compare(TICK, UINT32_MAX, 40000);
}

static void leaky_buckets_decide_as_exact_arithmetic_does(void **state)
{
    (void)state;
    compare(LEAKY, 100, 40000);
    compare(LEAKY, UINT32_MAX, 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_windows_decide_as_exact_arithmetic_does),
        cmocka_unit_test(sliding_counters_decide_as_exact_arithmetic_does),
        cmocka_unit_test(logs_decide_as_exact_arithmetic_does),
        cmocka_unit_test(token_buckets_decide_as_exact_arithmetic_does),
        cmocka_unit_test(refills_at_intervals_decide_as_exact_arithmetic_does),
        cmocka_unit_test(leaky_buckets_decide_as_exact_arithmetic_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
