/* fuzz_desk.c - any bytes as frames, to the service and to who asks it: what is understood is
 * written again, and means the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "proto/desk.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static struct weir_desk_room room;
static struct weir_desk_told told;

/* What was read and written again is the frame that it was. */
static void same(struct weir_buf *out, bool is_written, const struct weir_desk_frame *frame)
{
    struct weir_str left = weir_buf_str(out);
    struct weir_desk_frame again;
    WEIR_ASSERT(is_written);
    WEIR_ASSERT(weir_desk_next(&left, &again) == 1 && left.len == 0);
    WEIR_ASSERT(again.kind == frame->kind && again.id == frame->id);
    WEIR_ASSERT(weir_str_eq(again.body, frame->body));
}

static void read_question(struct weir_buf *out, const struct weir_desk_frame *frame)
{
    struct weir_request request;
    struct weir_desk_place place;
    if ((frame->kind == WEIR_DESK_CHECK || frame->kind == WEIR_DESK_REFILL) &&
        weir_desk_read_check(frame->body, &room, &request) == 0)
        same(out, weir_desk_put_check(out, frame->kind, frame->id, &request), frame);
    if ((frame->kind == WEIR_DESK_GIVE || frame->kind == WEIR_DESK_RENEW) &&
        weir_desk_read_place(frame->body, &place) == 0)
        same(out, weir_desk_put_place(out, frame->kind, frame->id, &place), frame);
}

/* What has no answer, and so no id. */
static void read_word(struct weir_buf *out, const struct weir_desk_frame *frame)
{
    struct weir_request request;
    struct weir_desk_hello hello;
    struct weir_desk_owed owed;
    struct weir_desk_spent spent;
    if (frame->kind == WEIR_DESK_OWE &&
        weir_desk_read_owe(frame->body, &room, &owed, &request) == 0)
        same(out, weir_desk_put_owe(out, &owed, &request), frame);
    if (frame->kind == WEIR_DESK_SPENT && weir_desk_read_spent(frame->body, &spent) == 0)
        same(out, weir_desk_put_spent(out, &spent), frame);
    if (frame->kind == WEIR_DESK_HELLO && weir_desk_read_hello(frame->body, &hello) == 0)
        same(out, weir_desk_put_hello(out, &hello), frame);
}

static void read_answer(struct weir_buf *out, const struct weir_desk_frame *frame)
{
    struct weir_desk_welcome welcome;
    uint64_t mark;
    int err;
    if (frame->kind == WEIR_DESK_DECISION && weir_desk_read_decision(frame->body, &told) == 0)
        same(out, weir_desk_put_decision(out, frame->id, told.nodes, &told.decision), frame);
    if (frame->kind == WEIR_DESK_WELCOME && frame->id == 0 &&
        weir_desk_read_welcome(frame->body, &welcome) == 0)
        same(out, weir_desk_put_welcome(out, &welcome), frame);
    if (frame->kind == WEIR_DESK_FAULT && weir_desk_read_fault(frame->body, &err) == 0)
        same(out, weir_desk_put_fault(out, frame->id, err), frame);
    if (frame->kind == WEIR_DESK_RENEWED && weir_desk_read_renewed(frame->body, &err, &mark) == 0)
        same(out, weir_desk_put_renewed(out, frame->id, err, mark), frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct weir_str left = {.ptr = (const char *)bytes, .len = len};
    struct weir_desk_frame frame;
    struct weir_buf out;
    weir_buf_init(&out, 4 * WEIR_DESK_FRAME_MAX);
    while (weir_desk_next(&left, &frame) > 0) {
        weir_buf_cut(&out, 0);
        read_question(&out, &frame);
        weir_buf_cut(&out, 0);
        if (frame.id == 0)
            read_word(&out, &frame);
        weir_buf_cut(&out, 0);
        read_answer(&out, &frame);
    }
    weir_buf_fini(&out);
    return 0;
}
