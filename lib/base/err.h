/* err.h - numbers to words, for the errors of weir/types.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_ERR_H
#define WEIR_BASE_ERR_H

#include <weir/types.h>
#include <weir/weir.h>

/* A bug in weir, never a fault of the world: says where, and stops.  Always on. */
#define WEIR_ASSERT(claim)                                                                         \
    do {                                                                                           \
        if (__builtin_expect(!(claim), 0))                                                         \
            weir_panic(#claim, __FILE__, __LINE__);                                                \
    } while (0)

_Noreturn void weir_panic(const char *claim, const char *file, int line);

#endif
