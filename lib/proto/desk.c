/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/desk.h"

#include "base/str.h"

#define HEAD_LEN 16u
#define MAGIC UINT32_C(0x72696577) /* "weir" */

/* ---- numbers and texts ---- */

static void write_at(char *at, uint64_t number, unsigned len)
{
    for (unsigned i = 0; i < len; i++)
        at[i] = (char)(uint8_t)(number >> (8 * i));
}

static void put(struct weir_buf *out, uint64_t number, unsigned len)
{
    char bytes[8];
    write_at(bytes, number, len);
    weir_buf_add(out, (struct weir_str){.ptr = bytes, .len = len});
}

static void put_text(struct weir_buf *out, struct weir_str text)
{
    if (text.len > UINT16_MAX) {
        out->has_failed = true;
        return;
    }
    put(out, text.len, 2);
    weir_buf_add(out, text);
}

/* What is left of a body. */
struct reader {
    struct weir_str left;
    bool is_bad; /* it ended too soon, or says what cannot be */
};

static struct weir_str get_bytes(struct reader *r, size_t len)
{
    struct weir_str got = {.ptr = r->left.ptr, .len = len};
    if (r->is_bad || len > r->left.len) {
        r->is_bad = true;
        return (struct weir_str){.ptr = "", .len = 0};
    }
    r->left.ptr += len;
    r->left.len -= len;
    return got;
}

static uint64_t get(struct reader *r, unsigned len)
{
    struct weir_str bytes = get_bytes(r, len);
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.len; i++)
        number |= (uint64_t)(uint8_t)bytes.ptr[i] << (8 * i);
    return number;
}

static struct weir_str get_text(struct reader *r)
{
    return get_bytes(r, (size_t)get(r, 2));
}

/* A number that may be at most so much. */
static uint64_t get_at_most(struct reader *r, unsigned len, uint64_t most)
{
    uint64_t number = get(r, len);
    r->is_bad |= number > most;
    return r->is_bad ? 0 : number;
}

/* Nothing may follow. */
static int end(const struct reader *r)
{
    return r->is_bad || r->left.len > 0 ? WEIR_ERR_INVALID : 0;
}

/* ---- frames ---- */

static size_t begin_frame(struct weir_buf *out, enum weir_desk_kind kind, uint64_t id)
{
    size_t from = out->len;
    put(out, 0, 4);
    put(out, kind, 4);
    put(out, id, 8);
    return from;
}

static bool end_frame(struct weir_buf *out, size_t from)
{
    size_t len = out->len - from;
    if (out->has_failed || len > WEIR_DESK_FRAME_MAX) {
        weir_buf_cut(out, from);
        return false;
    }
    write_at(out->ptr + from, len, 4);
    return true;
}

int weir_desk_next(struct weir_str *in, struct weir_desk_frame *out)
{
    struct reader r = {.left = *in};
    if (in->len < HEAD_LEN)
        return 0;
    uint64_t len = get(&r, 4), kind = get(&r, 4);
    out->id = get(&r, 8);
    if (len < HEAD_LEN || len > WEIR_DESK_FRAME_MAX || kind < WEIR_DESK_HELLO ||
        kind > WEIR_DESK_SPENT)
        return WEIR_ERR_INVALID;
    if (len > in->len)
        return 0;
    out->kind = (enum weir_desk_kind)kind;
    out->body = get_bytes(&r, (size_t)len - HEAD_LEN);
    *in = r.left;
    return 1;
}

/* ---- greetings ---- */

/* What both sides begin with: who they are, and on which table. */
static size_t begin_greeting(struct weir_buf *out, enum weir_desk_kind kind, uint32_t version,
                             uint64_t table)
{
    size_t from = begin_frame(out, kind, 0);
    put(out, MAGIC, 4);
    put(out, version, 4);
    put(out, table, 8);
    return from;
}

static struct reader read_greeting(struct weir_str body, uint32_t *version, uint64_t *table)
{
    struct reader r = {.left = body};
    r.is_bad = get(&r, 4) != MAGIC;
    *version = (uint32_t)get(&r, 4);
    *table = get(&r, 8);
    return r;
}

bool weir_desk_put_hello(struct weir_buf *out, const struct weir_desk_hello *hello)
{
    return end_frame(out, begin_greeting(out, WEIR_DESK_HELLO, hello->version, hello->table));
}

int weir_desk_read_hello(struct weir_str body, struct weir_desk_hello *out)
{
    struct reader r = read_greeting(body, &out->version, &out->table);
    return end(&r);
}

bool weir_desk_put_welcome(struct weir_buf *out, const struct weir_desk_welcome *welcome)
{
    size_t from = begin_greeting(out, WEIR_DESK_WELCOME, welcome->version, welcome->table);
    put(out, welcome->has_store, 1);
    put(out, welcome->has_leases, 1);
    put(out, welcome->store, 8);
    put(out, welcome->nodes, 4);
    put(out, welcome->on_error, 1);
    return end_frame(out, from);
}

int weir_desk_read_welcome(struct weir_str body, struct weir_desk_welcome *out)
{
    struct reader r = read_greeting(body, &out->version, &out->table);
    out->has_store = get_at_most(&r, 1, 1) != 0;
    out->has_leases = get_at_most(&r, 1, 1) != 0;
    out->store = get(&r, 8);
    out->nodes = (uint32_t)get(&r, 4);
    out->on_error = (uint8_t)get_at_most(&r, 1, 3);
    return end(&r);
}

/* ---- questions ---- */

enum { HAS_HITS = 1, IS_NEGATIVE = 2, HAS_OVERRIDE = 4 };

static void put_descriptor(struct weir_buf *out, const struct weir_descriptor *d)
{
    put(out,
        (d->has_hits ? HAS_HITS : 0u) | (d->is_negative_hits ? IS_NEGATIVE : 0u) |
            (d->override != NULL ? HAS_OVERRIDE : 0u),
        1);
    put(out, d->hits, 8);
    if (d->override != NULL) {
        put(out, d->override->requests_per_unit, 4);
        put(out, d->override->unit, 1);
    }
    put(out, d->entry_count, 1);
    for (uint32_t i = 0; i < d->entry_count; i++) {
        put_text(out, d->entries[i].key);
        put_text(out, d->entries[i].value);
    }
}

static void put_request(struct weir_buf *out, const struct weir_request *request)
{
    put_text(out, request->domain);
    put(out, request->hits_addend, 4);
    put(out, request->descriptor_count, 1);
    for (uint32_t i = 0; i < request->descriptor_count; i++)
        put_descriptor(out, &request->descriptors[i]);
}

bool weir_desk_put_check(struct weir_buf *out, enum weir_desk_kind kind, uint64_t id,
                         const struct weir_request *request)
{
    size_t from = begin_frame(out, kind, id);
    put_request(out, request);
    return end_frame(out, from);
}

static void get_descriptor(struct reader *r, struct weir_descriptor *d,
                           struct weir_override *override, struct weir_entry *entries)
{
    uint64_t flags = get_at_most(r, 1, HAS_HITS | IS_NEGATIVE | HAS_OVERRIDE);
    *d = (struct weir_descriptor){
        .entries = entries,
        .has_hits = flags & HAS_HITS,
        .is_negative_hits = flags & IS_NEGATIVE,
        .hits = get(r, 8),
    };
    if (flags & HAS_OVERRIDE) {
        override->requests_per_unit = (uint32_t)get(r, 4);
        override->unit = (enum weir_unit)get_at_most(r, 1, WEIR_UNIT_WEEK);
        d->override = override;
    }
    d->entry_count = (uint32_t)get_at_most(r, 1, WEIR_ENTRIES_MAX);
    for (uint32_t i = 0; i < d->entry_count; i++) {
        entries[i].key = get_text(r);
        entries[i].value = get_text(r);
    }
}

static void get_request(struct reader *r, struct weir_desk_room *room, struct weir_request *out)
{
    struct weir_entry *entries = room->entries;
    *out = (struct weir_request){.domain = get_text(r), .descriptors = room->descriptors};
    out->hits_addend = (uint32_t)get(r, 4);
    out->descriptor_count = (uint32_t)get_at_most(r, 1, WEIR_DESCRIPTORS_MAX);
    for (uint32_t i = 0; i < out->descriptor_count; i++) {
        get_descriptor(r, &room->descriptors[i], &room->overrides[i], entries);
        entries += room->descriptors[i].entry_count;
    }
}

int weir_desk_read_check(struct weir_str body, struct weir_desk_room *room,
                         struct weir_request *out)
{
    struct reader r = {.left = body};
    get_request(&r, room, out);
    return end(&r);
}

/* ---- what was decided without asking ---- */

bool weir_desk_put_owe(struct weir_buf *out, const struct weir_desk_owed *owed,
                       const struct weir_request *request)
{
    size_t from = begin_frame(out, WEIR_DESK_OWE, 0);
    put(out, owed->times, 4);
    put(out, owed->since_ns, 8);
    put_request(out, request);
    return end_frame(out, from);
}

int weir_desk_read_owe(struct weir_str body, struct weir_desk_room *room,
                       struct weir_desk_owed *owed, struct weir_request *request)
{
    struct reader r = {.left = body};
    owed->times = (uint32_t)get(&r, 4);
    owed->since_ns = get(&r, 8);
    get_request(&r, room, request);
    return end(&r);
}

void weir_desk_owe_again(char *frame, uint64_t since_ns)
{
    struct reader r = {.left = {.ptr = frame + HEAD_LEN, .len = 4}};
    uint64_t times = get(&r, 4);
    times += times < UINT32_MAX;
    write_at(frame + HEAD_LEN, times, 4);
    write_at(frame + HEAD_LEN + 4, since_ns, 8);
}

bool weir_desk_put_spent(struct weir_buf *out, const struct weir_desk_spent *spent)
{
    size_t from = begin_frame(out, WEIR_DESK_SPENT, 0);
    put(out, spent->leased, 8);
    put(out, spent->tokens, 8);
    put(out, spent->refused, 8);
    return end_frame(out, from);
}

int weir_desk_read_spent(struct weir_str body, struct weir_desk_spent *out)
{
    struct reader r = {.left = body};
    out->leased = get(&r, 8);
    out->tokens = get(&r, 8);
    out->refused = get(&r, 8);
    return end(&r);
}

/* ---- tickets ---- */

void weir_desk_put_away(struct weir_buf *out, uint8_t op, struct weir_str name)
{
    put(out, op, 1);
    put_text(out, name);
}

bool weir_desk_next_away(struct weir_str *away, uint8_t *op, struct weir_str *name)
{
    struct reader r = {.left = *away};
    *op = (uint8_t)get(&r, 1);
    *name = get_text(&r);
    *away = r.left;
    return !r.is_bad;
}

/* The fields of a place that are numbers, and how long each is. */
#define PLACE_NUMBERS(X)                                                                           \
    X(key, 8)                                                                                      \
    X(mark, 8)                                                                                     \
    X(requests, 4)                                                                                 \
    X(burst, 4)                                                                                    \
    X(window_s, 4)                                                                                 \
    X(buckets, 4)                                                                                  \
    X(record, 4)                                                                                   \
    X(lag_ms, 4)                                                                                   \
    X(algorithm, 1)                                                                                \
    X(window_class, 1)                                                                             \
    X(window_shift, 1)                                                                             \
    X(generation, 1)                                                                               \
    X(round_up, 1)                                                                                 \
    X(refill_interval, 1)

static void put_place(struct weir_buf *out, const struct weir_place *place)
{
#define X(field, len) put(out, place->field, len);
    PLACE_NUMBERS(X)
#undef X
    put(out, place->count_if.count, 1);
    for (uint32_t i = 0; i < place->count_if.count && i < WEIR_STATUSES_MAX; i++)
        put(out, place->count_if.statuses[i], 2);
}

static void get_place(struct reader *r, struct weir_place *out)
{
    *out = (struct weir_place){.key = 0};
#define X(field, len) out->field = (__typeof__(out->field))get(r, len);
    PLACE_NUMBERS(X)
#undef X
    out->count_if.count = (uint16_t)get_at_most(r, 1, WEIR_STATUSES_MAX);
    for (uint32_t i = 0; i < out->count_if.count; i++)
        out->count_if.statuses[i] = (uint16_t)get(r, 2);
}

bool weir_desk_put_place(struct weir_buf *out, enum weir_desk_kind kind, uint64_t id,
                         const struct weir_desk_place *place)
{
    size_t from = begin_frame(out, kind, id);
    put(out, place->op, 1);
    put_text(out, place->name);
    put(out, place->hits, 8);
    put_place(out, &place->place);
    return end_frame(out, from);
}

int weir_desk_read_place(struct weir_str body, struct weir_desk_place *out)
{
    struct reader r = {.left = body};
    out->op = (uint8_t)get(&r, 1);
    out->name = get_text(&r);
    out->hits = get(&r, 8);
    get_place(&r, &out->place);
    return end(&r);
}

bool weir_desk_put_renewed(struct weir_buf *out, uint64_t id, int err, uint64_t mark)
{
    size_t from = begin_frame(out, WEIR_DESK_RENEWED, id);
    put(out, (uint32_t)-err, 4);
    put(out, mark, 8);
    return end_frame(out, from);
}

int weir_desk_read_renewed(struct weir_str body, int *err, uint64_t *mark)
{
    struct reader r = {.left = body};
    *err = -(int)get_at_most(&r, 4, INT16_MAX);
    *mark = get(&r, 8);
    return end(&r);
}

static void put_ticket(struct weir_buf *out, const struct weir_ticket *ticket)
{
    put(out, ticket->count, 1);
    if (ticket->count == 0)
        return;
    put(out, ticket->hits, 8);
    put(out, ticket->renew_ns, 8);
    put_text(out, ticket->away);
    for (uint32_t i = 0; i < ticket->count; i++)
        put_place(out, &ticket->places[i]);
}

static void get_ticket(struct reader *r, struct weir_ticket *out)
{
    out->count = (uint32_t)get_at_most(r, 1, WEIR_PLACES_MAX);
    if (out->count == 0)
        return;
    out->hits = get(r, 8);
    out->renew_ns = get(r, 8);
    out->away = get_text(r);
    for (uint32_t i = 0; i < out->count; i++)
        get_place(r, &out->places[i]);
}

/* ---- answers ---- */

enum { IS_LIMITED = 1, IS_UNLIMITED = 2, IS_SHADOW = 4, IS_QUOTA = 8, HAS_RULE = 16 };

/* Metadata stay at home: nobody tells them in a header. */
static void put_rule(struct weir_buf *out, const struct weir_rule_info *rule)
{
    put_text(out, rule->id);
    put_text(out, rule->name);
    put(out, rule->unit, 1);
    put(out, rule->unit_multiplier, 4);
    put(out, rule->requests_per_unit, 4);
    put(out, rule->algorithm, 1);
}

static void get_rule(struct reader *r, struct weir_rule_info *out)
{
    *out = (struct weir_rule_info){.id = get_text(r), .name = get_text(r), .metadata = {.ptr = ""}};
    out->unit = (enum weir_unit)get_at_most(r, 1, WEIR_UNIT_WEEK);
    out->unit_multiplier = (uint32_t)get(r, 4);
    out->requests_per_unit = (uint32_t)get(r, 4);
    out->algorithm = (enum weir_algorithm)get_at_most(r, 1, WEIR_CONCURRENCY);
}

static void put_status(struct weir_buf *out, const struct weir_status *s)
{
    put(out,
        (s->is_limited ? IS_LIMITED : 0u) | (s->is_unlimited ? IS_UNLIMITED : 0u) |
            (s->is_shadow ? IS_SHADOW : 0u) | (s->is_quota ? IS_QUOTA : 0u) |
            (s->rule != NULL ? HAS_RULE : 0u),
        1);
    put(out, s->code, 1);
    put(out, s->unit, 1);
    put(out, s->limit, 8);
    put(out, s->remaining, 8);
    put(out, s->reset_after_ns, 8);
    put(out, s->retry_after_ns, 8);
    put(out, s->delay_ns, 8);
    if (s->rule != NULL)
        put_rule(out, s->rule);
    put_ticket(out, &s->ticket);
}

static enum weir_code get_code(struct reader *r)
{
    uint64_t code = get_at_most(r, 1, WEIR_CODE_OVER_LIMIT);
    r->is_bad |= code == 0;
    return (enum weir_code)code;
}

static void get_status(struct reader *r, struct weir_status *s, struct weir_rule_info *rule)
{
    uint64_t flags = get_at_most(r, 1, 2 * HAS_RULE - 1);
    s->is_limited = flags & IS_LIMITED;
    s->is_unlimited = flags & IS_UNLIMITED;
    s->is_shadow = flags & IS_SHADOW;
    s->is_quota = flags & IS_QUOTA;
    s->code = get_code(r);
    s->unit = (enum weir_unit)get_at_most(r, 1, WEIR_UNIT_WEEK);
    s->limit = get(r, 8);
    s->remaining = get(r, 8);
    s->reset_after_ns = get(r, 8);
    s->retry_after_ns = get(r, 8);
    s->delay_ns = get(r, 8);
    s->rule = flags & HAS_RULE ? rule : NULL;
    if (s->rule != NULL)
        get_rule(r, rule);
    get_ticket(r, &s->ticket);
}

bool weir_desk_put_decision(struct weir_buf *out, uint64_t id, uint32_t nodes,
                            const struct weir_decision *decision)
{
    size_t from = begin_frame(out, WEIR_DESK_DECISION, id);
    put(out, nodes, 4);
    put(out, decision->overall, 1);
    put(out, decision->status_count, 1);
    for (uint32_t i = 0; i < decision->status_count; i++)
        put_status(out, &decision->statuses[i]);
    return end_frame(out, from);
}

int weir_desk_read_decision(struct weir_str body, struct weir_desk_told *out)
{
    struct reader r = {.left = body};
    out->nodes = (uint32_t)get(&r, 4);
    out->decision = (struct weir_decision){.overall = get_code(&r), .statuses = out->statuses};
    out->decision.status_count = (uint32_t)get_at_most(&r, 1, WEIR_DESCRIPTORS_MAX);
    for (uint32_t i = 0; i < out->decision.status_count; i++)
        get_status(&r, &out->statuses[i], &out->rules[i]);
    return end(&r);
}

bool weir_desk_put_fault(struct weir_buf *out, uint64_t id, int err)
{
    size_t from = begin_frame(out, WEIR_DESK_FAULT, id);
    put(out, (uint32_t)-err, 4);
    return end_frame(out, from);
}

int weir_desk_read_fault(struct weir_str body, int *err)
{
    struct reader r = {.left = body};
    *err = -(int)get_at_most(&r, 4, INT16_MAX);
    return end(&r);
}
