/* buf.h - bytes that grow, up to a maximum named at birth.
 *
 * What does not fit is not written, and the buffer says so (has_failed): a text is built in many
 * small steps, and one look at the end is enough.
 *
 * A buffer may draw on a budget: what it has beyond WEIR_BUF_UNPAID bytes is paid from there.
 *
 * Purity: no clock, no I/O.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_BUF_H
#define WEIR_BASE_BUF_H

#include "base/budget.h"

#include <weir/types.h>

#define WEIR_BUF_UNPAID 4096 /* bytes: an idle connection may keep as much for its next request */

struct weir_buf {
    char *ptr; /* malloc'ed; not ended by NUL */
    size_t len, cap, len_max;
    struct weir_budget *budget; /* NULL: none; set while the buffer is empty */
    bool has_failed;            /* over len_max, or out of memory or budget */
};

void weir_buf_init(struct weir_buf *buf, size_t len_max);
void weir_buf_fini(struct weir_buf *buf);

void weir_buf_add(struct weir_buf *buf, struct weir_str str);
void weir_buf_add_char(struct weir_buf *buf, char c);
/* Forgets all beyond len; a cut buffer may be written to again. */
void weir_buf_cut(struct weir_buf *buf, size_t len);
/* Room for at least one more byte and at most want, to be filled by the caller, who then adds to
 * len what was used.  NULL where the maximum is reached. */
char *weir_buf_room(struct weir_buf *buf, size_t want, size_t *got);

static inline struct weir_str weir_buf_str(const struct weir_buf *buf)
{
    return (struct weir_str){.ptr = buf->ptr ? buf->ptr : "", .len = buf->len};
}

#endif
