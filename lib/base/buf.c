/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define BUF_FIRST ((size_t)256)

void weir_buf_init(struct weir_buf *buf, size_t len_max)
{
    *buf = (struct weir_buf){.len_max = len_max};
}

/* What memory of so many bytes costs of a budget. */
static size_t price(size_t cap)
{
    return cap > WEIR_BUF_UNPAID ? cap - WEIR_BUF_UNPAID : 0;
}

void weir_buf_fini(struct weir_buf *buf)
{
    free(buf->ptr);
    weir_budget_give(buf->budget, price(buf->cap));
    *buf = (struct weir_buf){.len_max = buf->len_max, .budget = buf->budget};
}

/* Makes room for `more` bytes, or remembers that there is none. */
static bool reserve(struct weir_buf *buf, size_t more)
{
    if (buf->has_failed || more > buf->len_max - buf->len)
        goto fail;
    if (more <= buf->cap - buf->len)
        return true;
    size_t cap = buf->cap ? buf->cap : BUF_FIRST;
    while (cap - buf->len < more)
        cap *= 2;
    if (cap > buf->len_max)
        cap = buf->len_max;
    size_t more_paid = price(cap) - price(buf->cap);
    if (!weir_budget_take(buf->budget, more_paid))
        goto fail;
    char *ptr = realloc(buf->ptr, cap);
    if (!ptr) {
        weir_budget_give(buf->budget, more_paid);
        goto fail;
    }
    buf->ptr = ptr;
    buf->cap = cap;
    return true;
fail:
    buf->has_failed = true;
    return false;
}

void weir_buf_add(struct weir_buf *buf, struct weir_str str)
{
    if (str.len == 0 || !reserve(buf, str.len))
        return;
    memcpy(buf->ptr + buf->len, str.ptr, str.len);
    buf->len += str.len;
}

void weir_buf_add_char(struct weir_buf *buf, char c)
{
    weir_buf_add(buf, (struct weir_str){.ptr = &c, .len = 1});
}

void weir_buf_cut(struct weir_buf *buf, size_t len)
{
    WEIR_ASSERT(len <= buf->len);
    buf->len = len;
    buf->has_failed = false;
}

char *weir_buf_room(struct weir_buf *buf, size_t want, size_t *got)
{
    size_t left = buf->len_max - buf->len;
    if (want > left)
        want = left;
    if (want == 0 || !reserve(buf, want)) {
        buf->has_failed = true;
        return NULL;
    }
    *got = want;
    return buf->ptr + buf->len;
}
