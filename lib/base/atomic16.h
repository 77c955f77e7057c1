/* atomic16.h - 16 bytes changed as one, between processes.
 *
 * C11's 16-byte atomics go to libatomic, whose fallback locks are private to a process and so
 * do not work in shared memory.  The __sync builtins compile to the instruction itself
 * (cmpxchg16b with -mcx16; casp on arm64 with LSE) or fail to link, which is what we want.
 *
 * A plain 16-byte load is not atomic on every processor, so a reader may see halves of two
 * values.  That is harmless here: whatever is computed from it goes back through weir_cas16(),
 * which compares all 16 bytes.  Who decides on a read alone uses weir_load16().
 *
 * Threads: that is the point.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_ATOMIC16_H
#define WEIR_BASE_ATOMIC16_H

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 weir_u128;

#if !defined(__SIZEOF_INT128__) || !defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
#error "weir needs a 16-byte compare-and-swap: build for x86-64 with -mcx16, or arm64 with LSE"
#endif

/* Two words of 8 bytes that are always swapped together. */
union weir_u16b {
    struct {
        uint64_t lo, hi;
    };
    weir_u128 both;
} __attribute__((aligned(16)));

/* Each half is read atomically, the pair is not: good enough to compute a proposal for cas16. */
static inline union weir_u16b weir_peek16(const union weir_u16b *at)
{
    union weir_u16b v;
    v.lo = __atomic_load_n(&at->lo, __ATOMIC_ACQUIRE);
    v.hi = __atomic_load_n(&at->hi, __ATOMIC_ACQUIRE);
    return v;
}

/* Full barrier; true iff *at was `old` in all 16 bytes and is now `new`. */
static inline bool weir_cas16(union weir_u16b *at, union weir_u16b old, union weir_u16b new)
{
    return __sync_bool_compare_and_swap(&at->both, old.both, new.both);
}

/* All 16 bytes of one instant.  Writes nothing, but takes the line as a writer would. */
static inline union weir_u16b weir_load16(union weir_u16b *at)
{
    union weir_u16b v;
    v.both = __sync_val_compare_and_swap(&at->both, (weir_u128)0, (weir_u128)0);
    return v;
}

static inline bool weir_eq16(union weir_u16b a, union weir_u16b b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

#endif
