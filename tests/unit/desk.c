/* desk.c - deciding beside a service: who waits, for how long, what is decided without it, what is
 * given back.  The service's end is played here with its own codec.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

#include "desk/desk.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "store/op.h"
#include "table/table.h"

#define MS UINT64_C(1000000)
#define STORE UINT64_C(0x5701e)
#define ASKED_MAX 64

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: k, rate_limit: {unit: day, requests_per_unit: 10}}\n"
    "  - {key: log, rate_limit: {unit: day, requests_per_unit: 4, algorithm: sliding_window_log}}\n"
    "  - {key: open, rate_limit: {unit: day, requests_per_unit: 4, on_store_error: open}}\n"
    "  - {key: closed, rate_limit: {unit: day, requests_per_unit: 4, on_store_error: closed}}\n"
    "  - {key: host, rate_limit: {unit: day, requests_per_unit: 4, scope: host}}\n";

/* One who asks, and what came of it. */
struct asker {
    struct weir_desk_waiter waiter;
    int told; /* how often */
    bool is_answered;
    enum weir_code code;
    uint64_t remaining;
};

/* The other end. */
struct seen {
    enum weir_desk_kind kind;
    uint64_t id;
};

struct bench {
    struct rig *r;
    struct weir_desk *desk;
    struct seen seen[ASKED_MAX];
    uint32_t seen_count;
    struct weir_desk_place place; /* of the last GIVE or RENEW */
    struct weir_desk_owed owed;
    struct weir_desk_spent spent;
    struct weir_desk_room room;
};

static void on_done(struct weir_desk_waiter *waiter, struct weir_decision *decision)
{
    struct asker *asker = (struct asker *)waiter;
    asker->told++;
    asker->is_answered = decision != NULL;
    if (decision == NULL)
        return;
    asker->code = decision->overall;
    asker->remaining = decision->statuses[0].remaining;
}

static struct asker new_asker(void)
{
    return (struct asker){.waiter = {.done = on_done}};
}

static int start_with(struct bench *b, uint32_t pending_max)
{
    const struct weir_desk_options options = {.timeout_ms = 100, .pending_max = pending_max};
    memset(b, 0, sizeof(*b));
    b->r = rig_open(RULES, NULL);
    return weir_desk_new(&b->desk, b->r->s, &options);
}

static int start(void **state)
{
    static struct bench b;
    *state = &b;
    return start_with(&b, 4);
}

static int stop(void **state)
{
    struct bench *b = *state;
    weir_desk_free(b->desk);
    rig_close(b->r);
    return 0;
}

static int ask_for(struct bench *b, const char *text, struct asker *asker)
{
    rig_parse(b->r, "t", text);
    return weir_desk_check(b->desk, &b->r->request, b->r->now_ns, &b->r->decision,
                           asker != NULL ? &asker->waiter : NULL);
}

static enum weir_code decided(struct bench *b, const char *text, struct asker *asker)
{
    assert_int_equal(ask_for(b, text, asker), 0);
    return b->r->decision.overall;
}

/* Reads what is to be sent, as the service would. */
static void see(struct bench *b)
{
    struct weir_str out = weir_desk_output(b->desk);
    struct weir_str left = out;
    struct weir_desk_frame frame;
    struct weir_request request;
    b->seen_count = 0;
    while (weir_desk_next(&left, &frame) > 0) {
        b->seen[b->seen_count++] = (struct seen){.kind = frame.kind, .id = frame.id};
        if (frame.kind == WEIR_DESK_GIVE || frame.kind == WEIR_DESK_RENEW)
            assert_int_equal(weir_desk_read_place(frame.body, &b->place), 0);
        else if (frame.kind == WEIR_DESK_SPENT)
            assert_int_equal(weir_desk_read_spent(frame.body, &b->spent), 0);
        else if (frame.kind == WEIR_DESK_OWE)
            assert_int_equal(weir_desk_read_owe(frame.body, &b->room, &b->owed, &request), 0);
        else if (frame.kind != WEIR_DESK_HELLO)
            assert_int_equal(weir_desk_read_check(frame.body, &b->room, &request), 0);
    }
    assert_int_equal(left.len, 0);
    weir_desk_sent(b->desk, out.len);
}

static int feed(struct bench *b, struct weir_buf *frames)
{
    int err = weir_desk_feed(b->desk, frames->ptr, frames->len, b->r->now_ns);
    weir_buf_fini(frames);
    return err;
}

static void open_desk_of(struct bench *b, bool has_store)
{
    const struct weir_desk_welcome welcome = {.version = WEIR_DESK_VERSION,
                                              .has_store = has_store,
                                              .has_leases = has_store,
                                              .store = STORE,
                                              .nodes = 2,
                                              .on_error = WEIR_STORE_ERROR_LOCAL};
    struct weir_buf frames;
    bool is_same_table;
    weir_buf_init(&frames, SIZE_MAX);
    weir_desk_connected(b->desk);
    see(b);
    assert_int_equal(b->seen[0].kind, WEIR_DESK_HELLO);
    assert_true(weir_desk_put_welcome(&frames, &welcome));
    assert_int_equal(feed(b, &frames), 0);
    assert_true(weir_desk_is_open(b->desk, &is_same_table));
    assert_false(is_same_table); /* it has said 0 */
}

static void open_desk(struct bench *b)
{
    open_desk_of(b, true);
}

/* A decision of one status, with a slot of the store's where `name` is not NULL. */
static void put_decision(struct weir_buf *out, uint64_t id, enum weir_code code, const char *name)
{
    struct weir_status status = {.code = code, .is_limited = true, .limit = 10, .remaining = 7};
    struct weir_decision decision = {.overall = code, .status_count = 1, .statuses = &status};
    struct weir_buf away;
    weir_buf_init(&away, SIZE_MAX);
    if (name != NULL) {
        weir_desk_put_away(&away, WEIR_OP_RELEASE, weir_str_of(name));
        status.ticket.count = 1;
        status.ticket.hits = 1;
        status.ticket.places[0] =
            (struct weir_place){.mark = 99, .requests = 10, .algorithm = WEIR_CONCURRENCY};
        status.ticket.away = weir_buf_str(&away);
    }
    assert_true(weir_desk_put_decision(out, id, 3, &decision));
    weir_buf_fini(&away);
}

static int answer(struct bench *b, uint64_t id, enum weir_code code, const char *name)
{
    struct weir_buf frames;
    weir_buf_init(&frames, SIZE_MAX);
    put_decision(&frames, id, code, name);
    return feed(b, &frames);
}

/* ---- asking ---- */

static void an_answer_reaches_who_asked(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker(), two = new_asker();
    open_desk(b);
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    assert_int_equal(ask_for(b, "log=y", &two), WEIR_PENDING);
    see(b);
    assert_int_equal(b->seen_count, 2);
    assert_int_equal(answer(b, b->seen[1].id, WEIR_CODE_OVER_LIMIT, NULL), 0);
    assert_int_equal(one.told, 0);
    assert_int_equal(two.told, 1);
    assert_int_equal(two.code, WEIR_CODE_OVER_LIMIT);
    assert_int_equal(answer(b, b->seen[0].id, WEIR_CODE_OK, NULL), 0);
    assert_int_equal(one.code, WEIR_CODE_OK);
    assert_int_equal(one.remaining, 7);
    assert_false(weir_desk_is_waited_for(b->desk));
}

static void an_answer_comes_in_any_pieces(void **state)
{
    struct bench *b = *state;
    open_desk(b);
    for (size_t piece = 1; piece < 40; piece += 3) {
        struct asker one = new_asker();
        struct weir_buf frames;
        weir_buf_init(&frames, SIZE_MAX);
        assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
        see(b);
        put_decision(&frames, b->seen[0].id, WEIR_CODE_OK, "a slot");
        for (size_t at = 0; at < frames.len; at += piece) {
            size_t len = frames.len - at < piece ? frames.len - at : piece;
            assert_int_equal(one.told, 0);
            assert_int_equal(weir_desk_feed(b->desk, frames.ptr + at, len, b->r->now_ns), 0);
        }
        assert_int_equal(one.told, 1);
        weir_buf_fini(&frames);
    }
}

static void what_is_of_this_host_asks_nobody(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    open_desk(b);
    assert_int_equal(decided(b, "host=x", &one), WEIR_CODE_OK);
    assert_status(b->r, 0, WEIR_CODE_OK, 4, 3);
    see(b);
    assert_int_equal(b->seen_count, 0);
}

static void a_service_without_a_store_is_not_asked(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    assert_int_equal(decided(b, "log=x", &one), WEIR_CODE_OK); /* owed, so far */
    open_desk_of(b, false);
    assert_int_equal(decided(b, "log=x", &one), WEIR_CODE_OK);
    assert_status(b->r, 0, WEIR_CODE_OK, 4, 3); /* by the table, as ever */
    see(b);
    assert_int_equal(b->seen_count, 0);
}

static void one_more_than_may_wait_is_decided_here(void **state)
{
    struct bench *b = *state;
    struct asker askers[5];
    open_desk(b);
    for (int i = 0; i < 4; i++) {
        askers[i] = new_asker();
        assert_int_equal(ask_for(b, "log=x", &askers[i]), WEIR_PENDING);
    }
    askers[4] = new_asker();
    assert_int_equal(decided(b, "log=x", &askers[4]), WEIR_CODE_OK);
    assert_status(b->r, 0, WEIR_CODE_OK, 2, 1); /* a share: there are two machines */
}

static void a_bad_answer_ends_the_connection(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    open_desk(b);
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    see(b);
    assert_int_equal(answer(b, b->seen[0].id + 1, WEIR_CODE_OK, NULL), WEIR_ERR_INVALID);
    weir_desk_closed(b->desk);
    assert_int_equal(one.told, 1);
    assert_false(one.is_answered);
    open_desk(b);
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    uint64_t before = b->seen[0].id;
    see(b);
    assert_int_not_equal(b->seen[0].id, before); /* late answers of then are nobody's */
}

/* ---- nobody answers ---- */

static void who_has_waited_too_long_is_told(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker(), two = new_asker();
    uint64_t wait_ns;
    open_desk(b);
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    b->r->now_ns += 60 * MS;
    assert_int_equal(ask_for(b, "log=y", &two), WEIR_PENDING);
    see(b);
    assert_int_equal(answer(b, b->seen[1].id, WEIR_CODE_OK, NULL), 0); /* it is alive */
    assert_int_equal(weir_desk_tick(b->desk, b->r->now_ns + 39 * MS, &wait_ns), 0);
    assert_int_equal(wait_ns, 1 * MS);
    assert_int_equal(one.told, 0);
    assert_int_equal(weir_desk_tick(b->desk, b->r->now_ns + 40 * MS, &wait_ns), 0);
    assert_int_equal(one.told, 1);
    assert_false(one.is_answered);
    assert_true(wait_ns == WEIR_NEVER);
    /* What comes after all is nobody's, and its slot is given back. */
    assert_int_equal(answer(b, b->seen[0].id, WEIR_CODE_OK, "late"), 0);
    assert_int_equal(one.told, 1);
    see(b);
    assert_int_equal(b->seen_count, 1);
    assert_int_equal(b->seen[0].kind, WEIR_DESK_GIVE);
    assert_true(weir_str_eq(b->place.name, WEIR_STR("late")));
    assert_int_equal(b->place.place.mark, 99);
}

static void a_silent_service_is_left_and_not_waited_for_again(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    uint64_t wait_ns;
    open_desk(b);
    b->r->now_ns += MS;
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    b->r->now_ns += 100 * MS;
    assert_int_equal(weir_desk_tick(b->desk, b->r->now_ns, &wait_ns), WEIR_ERR_STORE_LATE);
    assert_int_equal(one.told, 1);
    weir_desk_closed(b->desk);
    weir_desk_connected(b->desk); /* it accepts, but says nothing */
    assert_int_equal(decided(b, "log=x", &one), WEIR_CODE_OK);
}

static void a_fresh_service_is_waited_for(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    weir_desk_connected(b->desk);
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    see(b);
    assert_int_equal(b->seen_count, 2); /* the greeting, and the question behind it */
}

static void without_a_service_each_rule_says_who_decides(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    for (int i = 0; i < 6; i++) {
        assert_int_equal(decided(b, "open=x", &one), WEIR_CODE_OK);
        assert_false(b->r->statuses[0].is_limited);
        assert_int_equal(decided(b, "closed=x", &one), WEIR_CODE_OVER_LIMIT);
        assert_status(b->r, 0, WEIR_CODE_OVER_LIMIT, 4, 0);
        assert_int_equal(b->r->statuses[0].retry_after_ns, RIG_SECOND);
        assert_int_equal(decided(b, "log=x", &one), i < 4 ? WEIR_CODE_OK : WEIR_CODE_OVER_LIMIT);
    }
    struct weir_desk_counts counts;
    weir_desk_stats(b->desk, &counts);
    assert_int_equal(counts.alone, 18);
}

static void who_leaves_is_not_told_and_its_slot_comes_back(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    open_desk(b);
    assert_int_equal(ask_for(b, "log=x", &one), WEIR_PENDING);
    see(b);
    weir_desk_cancel(&one.waiter);
    weir_desk_cancel(&one.waiter); /* does nothing */
    assert_int_equal(answer(b, b->seen[0].id, WEIR_CODE_OK, "slot"), 0);
    assert_int_equal(one.told, 0);
    see(b);
    assert_int_equal(b->seen[0].kind, WEIR_DESK_GIVE);
}

static void what_passed_alone_is_told_once_the_service_is_back(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    for (int i = 0; i < 6; i++) { /* four pass */
        (void)decided(b, "log=x", &one);
        assert_int_equal(decided(b, "closed=x; host=x", &one), WEIR_CODE_OVER_LIMIT);
    }
    assert_int_equal(decided(b, "k=x +3", &one), WEIR_CODE_OK);
    open_desk(b);
    see(b);
    assert_int_equal(b->seen_count, 2);
    assert_int_equal(b->seen[0].kind, WEIR_DESK_OWE);
    assert_int_equal(b->seen[1].kind, WEIR_DESK_OWE);
    assert_int_equal(b->owed.times, 1);
    assert_int_equal(b->owed.since_ns, b->r->now_ns);
    assert_int_equal(b->room.descriptors[0].hits, 3);
    weir_desk_closed(b->desk);
    open_desk(b);
    see(b);
    assert_int_equal(b->seen_count, 0); /* once */
}

static void what_passes_again_is_told_together(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    for (int i = 0; i < 4; i++) {
        b->r->now_ns += 5 * MS;
        assert_int_equal(decided(b, "log=x", &one), WEIR_CODE_OK);
    }
    open_desk(b);
    see(b);
    assert_int_equal(b->seen_count, 1);
    assert_int_equal(b->owed.times, 4);
    assert_int_equal(b->owed.since_ns, b->r->now_ns);
}

/* ---- leases ---- */

/* Tokens of the counter that a request meets. */
static void lease(struct bench *b, const char *text, uint32_t tokens)
{
    struct weir_session *s = b->r->s;
    rig_parse(b->r, "t", text);
    assert_int_equal(weir_plan_one(s, weir_publish_hold(s), &b->r->request, false), 0);
    const struct weir_charge *charge = s->plans[0].items[0].charges;
    uint64_t boot_ns = weir_table_boot_ns();
    struct weir_lease_at at =
        weir_lease_at(s->engine->table, STORE, charge->key, charge->limit, boot_ns);
    assert_true(weir_lease_add(&at, tokens, boot_ns + 900 * MS, b->r->now_ns));
}

static void tokens_in_the_table_decide_without_asking(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    open_desk(b);
    lease(b, "k=hot", 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(decided(b, "k=hot", &one), WEIR_CODE_OK);
        assert_int_equal(b->r->statuses[0].limit, 10);
    }
    see(b);
    assert_int_equal(b->seen_count, 2); /* once, when they ran low */
    assert_int_equal(b->seen[0].kind, WEIR_DESK_SPENT);
    assert_int_equal(b->seen[1].kind, WEIR_DESK_REFILL);
    assert_int_equal(b->spent.leased, 6);
    b->r->now_ns += RIG_SECOND;
    assert_int_equal(ask_for(b, "k=hot", &one), WEIR_PENDING);
    see(b);
    assert_int_equal(b->spent.tokens, 2); /* since then */
    assert_int_equal(stats_of(b->r, "t.k").total_hits, 8);
}

static void tokens_of_one_descriptor_do_not_decide_for_another(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    open_desk(b);
    lease(b, "k=hot", 8);
    assert_int_equal(ask_for(b, "k=hot; k=cold", &one), WEIR_PENDING);
    lease(b, "k=cold", 8);
    assert_int_equal(decided(b, "k=hot; k=cold; host=x", &one), WEIR_CODE_OK);
    assert_int_equal(b->r->decision.status_count, 3);
    assert_int_equal(b->r->statuses[2].remaining, 3);
}

static void no_token_is_spent_while_the_service_is_away(void **state)
{
    struct bench *b = *state;
    struct asker one = new_asker();
    open_desk(b);
    lease(b, "k=hot", 8);
    weir_desk_closed(b->desk);
    assert_int_equal(decided(b, "k=hot", &one), WEIR_CODE_OK); /* by the rule's policy */
    assert_status(b->r, 0, WEIR_CODE_OK, 5, 4);
}

/* ---- tickets ---- */

static struct weir_ticket a_slot(void)
{
    static const char away[] = {WEIR_OP_RELEASE, 4, 0, 's', 'l', 'o', 't'};
    struct weir_ticket ticket = {.hits = 2, .count = 1, .away = {.ptr = away, .len = 7}};
    ticket.places[0] = (struct weir_place){.mark = 5, .requests = 3, .algorithm = WEIR_CONCURRENCY};
    return ticket;
}

static void a_slot_is_renewed_and_then_released_by_its_new_mark(void **state)
{
    struct bench *b = *state;
    struct weir_ticket ticket = a_slot();
    struct weir_buf frames;
    open_desk(b);
    weir_desk_settle(b->desk, &ticket, 200, b->r->now_ns);
    assert_int_equal(weir_desk_renew(b->desk, &ticket, b->r->now_ns), 0);
    see(b);
    assert_int_equal(b->seen_count, 1);
    assert_int_equal(b->seen[0].kind, WEIR_DESK_RENEW);
    weir_buf_init(&frames, SIZE_MAX);
    assert_true(weir_desk_put_renewed(&frames, b->seen[0].id, 0, 6));
    assert_int_equal(feed(b, &frames), 0);
    weir_desk_release(b->desk, &ticket, b->r->now_ns);
    weir_desk_release(b->desk, &ticket, b->r->now_ns); /* it is empty */
    see(b);
    assert_int_equal(b->seen_count, 1);
    assert_int_equal(b->place.place.mark, 6);
    assert_int_equal(b->place.hits, 2);
}

static void a_renewal_that_comes_after_the_release_writes_nowhere(void **state)
{
    struct bench *b = *state;
    struct weir_ticket ticket = a_slot();
    struct weir_buf frames;
    open_desk(b);
    assert_int_equal(weir_desk_renew(b->desk, &ticket, b->r->now_ns), 0);
    see(b);
    weir_desk_release(b->desk, &ticket, b->r->now_ns);
    weir_buf_init(&frames, SIZE_MAX);
    assert_true(weir_desk_put_renewed(&frames, b->seen[0].id, 0, 6));
    assert_int_equal(feed(b, &frames), 0);
    assert_int_equal(ticket.places[0].mark, 5);
}

static void what_does_not_count_is_given_back(void **state)
{
    struct bench *b = *state;
    open_desk(b);
    for (int status = 200; status <= 401; status += 201) {
        struct weir_ticket ticket = a_slot();
        ticket.places[0].algorithm = WEIR_FIXED_WINDOW;
        ticket.places[0].count_if = (struct weir_status_set){.count = 1, .statuses = {401}};
        weir_desk_settle(b->desk, &ticket, status, b->r->now_ns);
        assert_int_equal(ticket.count, 0);
        see(b);
        assert_int_equal(b->seen_count, status == 200);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        T(an_answer_reaches_who_asked),
        T(an_answer_comes_in_any_pieces),
        T(what_is_of_this_host_asks_nobody),
        T(a_service_without_a_store_is_not_asked),
        T(one_more_than_may_wait_is_decided_here),
        T(a_bad_answer_ends_the_connection),
        T(who_has_waited_too_long_is_told),
        T(a_silent_service_is_left_and_not_waited_for_again),
        T(a_fresh_service_is_waited_for),
        T(without_a_service_each_rule_says_who_decides),
        T(who_leaves_is_not_told_and_its_slot_comes_back),
        T(what_passed_alone_is_told_once_the_service_is_back),
        T(what_passes_again_is_told_together),
        T(tokens_in_the_table_decide_without_asking),
        T(tokens_of_one_descriptor_do_not_decide_for_another),
        T(no_token_is_spent_while_the_service_is_away),
        T(a_slot_is_renewed_and_then_released_by_its_new_mark),
        T(a_renewal_that_comes_after_the_release_writes_nowhere),
        T(what_does_not_count_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
