/* reset.c - a key's counter as if it had never been used.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/local.h"
#include "table/slots.h"
#include "table/wide.h"

/* The slot is given away as an eviction gives it, but charged to nobody.  Who was about to change
 * it finds that its swap fails, and begins anew with a key that has no slot: what was decided
 * before the swap is forgotten, what is decided after it counts. */
bool weir_local_reset(struct weir_table *table, uint64_t key)
{
    struct weir_home home = weir_slots_locate(table, key);
    for (;;) {
        union weir_u16b value;
        union weir_u16b *slot = weir_slots_find(&home, &value);
        if (slot == NULL)
            return false;
        value = weir_load16(slot);
        bool is_wide = weir_slot_kind(value) == WEIR_KIND_WIDE;
        if (weir_slot_kind(value) <= WEIR_KIND_CLAIM || weir_slot_fp(value) != home.fp)
            continue; /* it has just become another's */
        struct weir_extent *extent;
        union weir_u16b control;
        if (is_wide) /* so that nobody goes on counting in what is given back */
            (void)weir_wide_freeze(table, value, &extent, &control);
        if (!weir_cas16(slot, value, (union weir_u16b){.lo = 0, .hi = 0}))
            continue;
        if (is_wide)
            weir_wide_release(table, value);
        return true;
    }
}
