/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>

const char *weir_strerror(int err)
{
    switch (err) {
    case 0:
        return "success";
#define WEIR_X(name, number, text)                                                                 \
    case WEIR_ERR_##name:                                                                          \
        return text;
        WEIR_ERRORS(WEIR_X)
#undef WEIR_X
    default:
        return "unknown error";
    }
}

_Noreturn void weir_panic(const char *claim, const char *file, int line)
{
    fprintf(stderr, "weir: bug: %s does not hold at %s:%d\n", claim, file, line);
    abort();
}
