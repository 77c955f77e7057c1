/* SPDX-License-Identifier: Apache-2.0 */
#include "desk/desk.h"

#include "algo/math.h"
#include "base/err.h"
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 100u
#define PENDING_MAX 1024u
#define OUT_MAX (4u << 20)  /* bytes that wait to be sent */
#define OWED_MAX (1u << 20) /* bytes of what passes while nobody is there */
#define BOARD 4096u         /* counters of which is known what is left; a power of 2 */
#define NS_PER_MS UINT64_C(1000000)

/* ---- who waits ---- */

bool weir_desk_is_there(const struct weir_desk *desk)
{
    return desk->state == WEIR_DESK_OPEN ||
           (desk->state == WEIR_DESK_GREETING && !desk->is_suspect);
}

uint64_t weir_desk_id(const struct weir_desk_entry *entry)
{
    return (uint64_t)entry->generation << 32 | (uint64_t)(entry - entry->desk->entries);
}

static struct weir_desk_entry *entry_of(struct weir_desk *desk, uint64_t id)
{
    uint64_t i = id & UINT32_MAX;
    if (i >= desk->entry_count || desk->entries[i].generation != id >> 32 ||
        desk->entries[i].fate == WEIR_DESK_FREE)
        return NULL;
    return &desk->entries[i];
}

struct weir_desk_entry *weir_desk_enter(struct weir_desk *desk, enum weir_desk_fate fate,
                                        uint64_t now_ns)
{
    struct weir_desk_entry *entry = desk->free;
    if (entry == NULL)
        return NULL;
    desk->free = entry->next;
    *entry = (struct weir_desk_entry){.fate = fate,
                                      .generation = entry->generation,
                                      .desk = desk,
                                      .sent_ns = now_ns,
                                      .before = desk->last};
    *(desk->last != NULL ? &desk->last->next : &desk->first) = entry;
    desk->last = entry;
    return entry;
}

/* Nobody waits for it any more; its answer may still come. */
static void forget(struct weir_desk_entry *entry)
{
    struct weir_desk *desk = entry->desk;
    *(entry->before != NULL ? &entry->before->next : &desk->first) = entry->next;
    *(entry->next != NULL ? &entry->next->before : &desk->last) = entry->before;
    entry->fate = WEIR_DESK_FORGOTTEN;
    if (entry->waiter != NULL)
        entry->waiter->entry = NULL;
    entry->waiter = NULL;
    entry->mark = NULL;
}

void weir_desk_leave(struct weir_desk_entry *entry)
{
    if (entry->fate != WEIR_DESK_FORGOTTEN)
        forget(entry);
    entry->fate = WEIR_DESK_FREE;
    entry->generation++;
    entry->next = entry->desk->free;
    entry->desk->free = entry;
}

void weir_desk_cancel(struct weir_desk_waiter *waiter)
{
    if (waiter->entry != NULL)
        forget(waiter->entry);
}

/* Who waits is told; entry->waiter is nobody's then. */
static void tell(struct weir_desk_waiter *waiter, struct weir_decision *decision)
{
    if (waiter != NULL)
        waiter->done(waiter, decision);
}

/* ---- what comes ---- */

/* What is left beside the tokens that lie in the table. */
static void note_left(struct weir_desk *desk, const struct weir_desk_entry *entry)
{
    if (entry->key == 0 || entry->descriptor >= desk->told.decision.status_count)
        return;
    const struct weir_status *status = &desk->told.statuses[entry->descriptor];
    struct weir_lease_at at = {.table = desk->session->engine->table,
                               .key = entry->key ^ desk->welcome.store,
                               .boot_ns = weir_table_boot_ns(),
                               .is_dated = entry->is_dated};
    weir_lease_board_write(desk->board, entry->key,
                           (struct weir_lease_word){
                               .left = weir_sat_sub(status->remaining, weir_lease_left(&at)),
                               .reset_ns = weir_sat_add(at.boot_ns, status->reset_after_ns),
                           });
}

static int on_decision(struct weir_desk *desk, const struct weir_desk_frame *frame, uint64_t now_ns)
{
    struct weir_desk_entry *entry = entry_of(desk, frame->id);
    int err = weir_desk_read_decision(frame->body, &desk->told);
    if (err != 0 || entry == NULL || entry->fate == WEIR_DESK_RENEWS)
        return WEIR_ERR_INVALID;
    if (desk->told.nodes > 0)
        desk->welcome.nodes = desk->told.nodes;
    if (entry->fate == WEIR_DESK_FORGOTTEN) {
        weir_desk_leave(entry);
        weir_desk_release_all(desk, &desk->told.decision, now_ns);
        return 0;
    }
    struct weir_desk_waiter *waiter = entry->waiter;
    note_left(desk, entry);
    weir_desk_leave(entry);
    tell(waiter, &desk->told.decision);
    return 0;
}

/* It could not be decided there: it was no good, or the rules are others by now. */
static int on_fault(struct weir_desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_desk_entry *entry = entry_of(desk, frame->id);
    int why, err = weir_desk_read_fault(frame->body, &why);
    if (err != 0 || entry == NULL)
        return WEIR_ERR_INVALID;
    struct weir_desk_waiter *waiter = entry->waiter;
    weir_desk_leave(entry);
    tell(waiter, NULL);
    return 0;
}

static int on_renewed(struct weir_desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_desk_entry *entry = entry_of(desk, frame->id);
    uint64_t mark;
    int why, err = weir_desk_read_renewed(frame->body, &why, &mark);
    if (err != 0 || entry == NULL)
        return WEIR_ERR_INVALID;
    if (entry->mark != NULL && why == 0)
        *entry->mark = mark;
    weir_desk_leave(entry);
    return 0;
}

static int on_welcome(struct weir_desk *desk, const struct weir_desk_frame *frame)
{
    struct weir_desk_welcome welcome;
    int err = weir_desk_read_welcome(frame->body, &welcome);
    if (err != 0 || desk->state != WEIR_DESK_GREETING || welcome.version != WEIR_DESK_VERSION)
        return WEIR_ERR_INVALID;
    desk->welcome = welcome;
    desk->welcome.nodes = (uint32_t)weir_max(welcome.nodes, 1);
    desk->state = WEIR_DESK_OPEN;
    desk->is_suspect = false;
    weir_desk_pay(desk);
    return 0;
}

static int on_frame(struct weir_desk *desk, const struct weir_desk_frame *frame, uint64_t now_ns)
{
    if (frame->kind == WEIR_DESK_WELCOME)
        return on_welcome(desk, frame);
    if (desk->state != WEIR_DESK_OPEN)
        return WEIR_ERR_INVALID;
    switch (frame->kind) {
    case WEIR_DESK_DECISION:
        return on_decision(desk, frame, now_ns);
    case WEIR_DESK_FAULT:
        return on_fault(desk, frame);
    case WEIR_DESK_RENEWED:
        return on_renewed(desk, frame);
    case WEIR_DESK_HELLO:
    case WEIR_DESK_WELCOME:
    case WEIR_DESK_CHECK:
    case WEIR_DESK_REFILL:
    case WEIR_DESK_GIVE:
    case WEIR_DESK_RENEW:
    case WEIR_DESK_OWE:
    case WEIR_DESK_SPENT:
        break;
    }
    return WEIR_ERR_INVALID;
}

/* Frames that have come whole; what is left of the bytes stays. */
static int read_frames(struct weir_desk *desk, uint64_t now_ns)
{
    struct weir_str left = weir_buf_str(&desk->in);
    struct weir_desk_frame frame;
    int next;
    while ((next = weir_desk_next(&left, &frame)) > 0) {
        desk->heard_ns = now_ns;
        int err = on_frame(desk, &frame, now_ns);
        if (err != 0)
            return err;
    }
    if (left.len > 0)
        memmove(desk->in.ptr, left.ptr, left.len);
    weir_buf_cut(&desk->in, left.len);
    return next;
}

int weir_desk_feed(struct weir_desk *desk, const void *bytes, size_t len, uint64_t now_ns)
{
    WEIR_ASSERT(!desk->is_feeding); /* who is told something must not feed */
    weir_buf_add(&desk->in, (struct weir_str){.ptr = bytes, .len = len});
    if (desk->in.has_failed)
        return WEIR_ERR_NOMEM;
    desk->is_feeding = true;
    int err = read_frames(desk, now_ns);
    desk->is_feeding = false;
    return err;
}

/* ---- the connection ---- */

void weir_desk_connected(struct weir_desk *desk)
{
    WEIR_ASSERT(desk->state == WEIR_DESK_GONE);
    struct weir_desk_hello hello = {.version = WEIR_DESK_VERSION,
                                    .table = weir_table_id(desk->session->engine->table)};
    if (weir_desk_put_hello(&desk->out, &hello))
        desk->state = WEIR_DESK_GREETING;
}

struct weir_str weir_desk_output(const struct weir_desk *desk)
{
    struct weir_str out = weir_buf_str(&desk->out);
    return (struct weir_str){.ptr = out.ptr + desk->out_sent, .len = out.len - desk->out_sent};
}

void weir_desk_sent(struct weir_desk *desk, size_t len)
{
    desk->out_sent += len;
    WEIR_ASSERT(desk->out_sent <= desk->out.len);
    if (desk->out_sent < desk->out.len)
        return;
    weir_buf_cut(&desk->out, 0);
    desk->out_sent = 0;
}

void weir_desk_closed(struct weir_desk *desk)
{
    WEIR_ASSERT(!desk->is_feeding);
    desk->is_suspect |= desk->state != WEIR_DESK_OPEN;
    desk->state = WEIR_DESK_GONE;
    weir_buf_cut(&desk->in, 0);
    weir_buf_cut(&desk->out, 0);
    desk->out_sent = 0;
    while (desk->first != NULL) {
        struct weir_desk_waiter *waiter = desk->first->waiter;
        weir_desk_leave(desk->first);
        tell(waiter, NULL);
    }
    for (uint32_t i = 0; i < desk->entry_count; i++) {
        if (desk->entries[i].fate == WEIR_DESK_FORGOTTEN)
            weir_desk_leave(&desk->entries[i]);
    }
}

int weir_desk_tick(struct weir_desk *desk, uint64_t now_ns, uint64_t *wait_ns)
{
    bool is_silent = false;
    struct weir_desk_entry *entry;
    while ((entry = desk->first) != NULL &&
           weir_sat_sub(now_ns, entry->sent_ns) >= desk->timeout_ns) {
        struct weir_desk_waiter *waiter = entry->waiter;
        is_silent |= desk->heard_ns <= entry->sent_ns;
        forget(entry);
        tell(waiter, NULL);
    }
    *wait_ns = entry != NULL ? weir_sat_sub(entry->sent_ns + desk->timeout_ns, now_ns) : WEIR_NEVER;
    desk->is_suspect |= is_silent;
    return is_silent ? WEIR_ERR_STORE_LATE : 0;
}

bool weir_desk_is_waited_for(const struct weir_desk *desk)
{
    return desk->first != NULL;
}

bool weir_desk_is_open(const struct weir_desk *desk, bool *is_same_table)
{
    *is_same_table = desk->welcome.table == weir_table_id(desk->session->engine->table);
    return desk->state == WEIR_DESK_OPEN;
}

void weir_desk_stats(const struct weir_desk *desk, struct weir_desk_counts *out)
{
    *out = desk->counts;
}

/* ---- life ---- */

/* alloc: when it is made. */
int weir_desk_new(struct weir_desk **out, struct weir_session *s,
                  const struct weir_desk_options *options)
{
    struct weir_desk *desk = calloc(1, sizeof(*desk));
    if (desk == NULL)
        return WEIR_ERR_NOMEM;
    desk->session = s;
    desk->timeout_ns = (options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS) * NS_PER_MS;
    desk->entry_count = options->pending_max > 0 ? options->pending_max : PENDING_MAX;
    desk->welcome.nodes = 1;
    desk->welcome.on_error = WEIR_STORE_ERROR_LOCAL;
    weir_buf_init(&desk->in, 2 * WEIR_DESK_FRAME_MAX);
    weir_buf_init(&desk->out, OUT_MAX);
    weir_buf_init(&desk->owed, OWED_MAX);
    desk->entries = calloc(desk->entry_count, sizeof(*desk->entries));
    if (desk->entries == NULL || weir_lease_board_new(&desk->board, BOARD) != 0) {
        weir_desk_free(desk);
        return WEIR_ERR_NOMEM;
    }
    for (uint32_t i = desk->entry_count; i-- > 0;) {
        desk->entries[i].desk = desk;
        desk->entries[i].next = desk->free;
        desk->free = &desk->entries[i];
    }
    *out = desk;
    return 0;
}

/* alloc: when it ends. */
void weir_desk_free(struct weir_desk *desk)
{
    if (desk == NULL)
        return;
    weir_buf_fini(&desk->in);
    weir_buf_fini(&desk->out);
    weir_buf_fini(&desk->owed);
    weir_lease_board_free(desk->board);
    free(desk->entries);
    free(desk);
}
