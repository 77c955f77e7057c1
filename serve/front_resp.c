/* front_resp.c - CL.THROTTLE and THROTTLE, for those who speak RESP.
 *
 *     feed   bytes -> commands -> those that limit: a batch -> weir_throttle_many() -> replies
 *
 * Clients pipeline: what comes in one piece is decided together, so that memory is fetched for many
 * at once, and all replies leave in one write.  A command of another kind ends the batch before it
 * is answered, for replies come in the order of the commands.
 *
 * The bucket's numbers are the client's, its counters the table's, or a store's (resp_wait.h);
 * rules have no say.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "serve/resp_session.h"
#include "serve/resp_wait.h"

#include <stdlib.h>

#define BATCH_MAX 64
#define OUT_LEN (2 * WEIR_RESP_REPLY_MAX)

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

/* The numbers of a command, as they were sent: all arguments from the first of them on, which lie
 * one behind the other.  Where one ends tells where the next begins. */
struct numbers {
    enum weir_resp_dialect dialect;
    uint32_t args;
    size_t first_len;
    struct weir_str text;
};

/* One feed's worth.  On the stack, and so not set to zero. */
struct turn {
    struct weir_resp_session *session;
    bool has_obeyed; /* something */
    size_t count;
    struct numbers last; /* of throttles[count - 1] */
    struct weir_throttle throttles[BATCH_MAX];
    enum weir_resp_dialect dialects[BATCH_MAX];
    struct weir_throttled outs[BATCH_MAX];
    int results[BATCH_MAX];
    struct weir_text out;
    char buf[OUT_LEN];
};

static void send_out(struct turn *turn)
{
    struct weir_str bytes = {.ptr = turn->buf, .len = weir_text_len(&turn->out)};
    if (weir_resp_is_waiting(turn->session))
        weir_resp_wait_later(turn->session, bytes);
    else
        weir_conn_send(turn->session->conn, bytes.ptr, bytes.len);
    turn->out = weir_text_in(turn->buf, sizeof(turn->buf));
}

static void make_room(struct turn *turn, size_t len)
{
    if ((size_t)(turn->out.end - turn->out.at) < len)
        send_out(turn);
}

/* ---- replies ---- */

/* Whole seconds, one more where there are milliseconds beside them: as redis-cell. */
static int64_t seconds_of(uint64_t ns)
{
    return (int64_t)(ns / NS_PER_S + (ns % NS_PER_S >= NS_PER_MS));
}

static int64_t retry_s(const struct weir_throttled *t)
{
    return t->retry_after_ns == WEIR_NEVER ? -1 : seconds_of(t->retry_after_ns);
}

static void put_result(struct weir_text *out, enum weir_resp_dialect dialect,
                       const struct weir_throttled *t)
{
    static const char head[] = {'*', '5', '\r', '\n'};
    const bool is_cell = dialect == WEIR_RESP_CELL;
    if (out->end - out->at < WEIR_RESP_THROTTLED_MAX) {
        out->has_overflowed = true;
        return;
    }
    char *at = memcpy(out->at, head, sizeof(head));
    int64_t reset = seconds_of(t->reset_after_ns), retry = t->allowed ? -is_cell : retry_s(t);
    at = weir_resp_int(at + sizeof(head), t->allowed != is_cell);
    at = weir_resp_int(at, (int64_t)t->limit);
    at = weir_resp_int(at, (int64_t)t->remaining);
    at = weir_resp_int(at, is_cell ? retry : reset);
    out->at = weir_resp_int(at, is_cell ? reset : retry);
}

static void put_refusal(struct weir_text *out, enum weir_resp_dialect dialect, struct weir_str why)
{
    weir_resp_put_error_about(
        out, dialect == WEIR_RESP_CELL ? WEIR_STR("Cell error: ") : WEIR_STR("ERR "), why,
        WEIR_STR(""));
}

void weir_resp_put_throttled(struct weir_text *out, enum weir_resp_dialect dialect, int result,
                             const struct weir_throttled *throttled)
{
    if (result == 0)
        put_result(out, dialect, throttled);
    else
        put_refusal(out, dialect, WEIR_STR("the key, or burst and period, are over a maximum"));
}

static void ask_store(struct turn *turn)
{
    send_out(turn); /* what came before */
    if (!weir_resp_wait_ask(turn->session, turn->throttles, turn->dialects, turn->count))
        turn->session->is_ending = true;
    turn->count = 0;
}

static void decide(struct turn *turn)
{
    struct weir_worker *worker = turn->session->worker;
    uint64_t refused = 0, bad = 0;
    if (turn->count == 0)
        return;
    if (worker->asks != NULL) {
        ask_store(turn);
        return;
    }
    weir_throttle_many(worker->session, turn->throttles, turn->count, weir_loop_now(worker->loop),
                       turn->outs, turn->results);
    for (size_t i = 0; i < turn->count; i++) {
        make_room(turn, WEIR_RESP_THROTTLED_MAX);
        weir_resp_put_throttled(&turn->out, turn->dialects[i], turn->results[i], &turn->outs[i]);
        bad += turn->results[i] != 0;
        refused += turn->results[i] == 0 && !turn->outs[i].allowed;
    }
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_REQUESTS, turn->count - bad);
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_OVER_LIMIT, refused);
    weir_worker_add(worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_BAD, bad);
    turn->count = 0;
}

/* ---- commands that limit ---- */

/* As Rust reads an i64: a sign, digits, and nothing else. */
static bool read_int(struct weir_str text, int64_t *out)
{
    size_t at = text.len > 0 && (text.ptr[0] == '-' || text.ptr[0] == '+');
    bool is_negative = at == 1 && text.ptr[0] == '-';
    uint64_t most = (uint64_t)INT64_MAX + is_negative;
    uint64_t number = 0;
    if (at == text.len)
        return false;
    for (; at < text.len; at++) {
        unsigned digit = (unsigned)text.ptr[at] - '0';
        if (digit > 9 || number > INT64_MAX / 10)
            return false;
        number = 10 * number + digit; /* at most INT64_MAX / 10 * 10 + 9 */
    }
    *out = (int64_t)(is_negative ? 0 - number : number);
    return number <= most;
}

static void refuse(struct turn *turn, enum weir_resp_dialect dialect, struct weir_str why)
{
    decide(turn); /* replies in order */
    make_room(turn, WEIR_RESP_REPLY_MAX);
    put_refusal(&turn->out, dialect, why);
    weir_worker_add(turn->session->worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_BAD, 1);
}

static void refuse_number(struct turn *turn, enum weir_resp_dialect dialect, int which,
                          struct weir_str text)
{
    static const char *const names[] = {"max_burst", "count_per_period", "period", "quantity"};
    decide(turn);
    make_room(turn, WEIR_RESP_REPLY_MAX);
    if (dialect == WEIR_RESP_CELL)
        weir_resp_put_error_about(&turn->out, WEIR_STR("Cell error: Couldn't parse as integer: "),
                                  text, WEIR_STR(""));
    else
        weir_resp_put_error_about(&turn->out, WEIR_STR("ERR invalid "), weir_str_of(names[which]),
                                  WEIR_STR(""));
    weir_worker_add(turn->session->worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_BAD, 1);
}

/* NULL where the numbers are good for a bucket; burst is the bucket's size. */
static const char *fault_of(const int64_t n[4], int64_t burst)
{
    if (n[1] == 0)
        return "Zero rates are not supported";
    if (burst <= 0)
        return "max_burst is too small";
    if (n[1] < 0 || n[2] <= 0)
        return "count per period and period must be positive";
    if (burst > UINT32_MAX || n[1] > UINT32_MAX || n[2] > UINT32_MAX)
        return "max_burst, count per period or period is over a maximum";
    return NULL;
}

static void add(struct turn *turn, enum weir_resp_dialect dialect,
                const struct weir_throttle *throttle)
{
    turn->dialects[turn->count] = dialect;
    turn->throttles[turn->count++] = *throttle;
    if (turn->count == BATCH_MAX)
        decide(turn);
}

static struct numbers numbers_of(const struct weir_resp_command *command,
                                 enum weir_resp_dialect dialect)
{
    const struct weir_str *first = &command->args[2], *last = &command->args[command->count - 1];
    return (struct numbers){
        .dialect = dialect,
        .args = command->count,
        .first_len = first->len,
        .text = {.ptr = first->ptr, .len = (size_t)(last->ptr + last->len - first->ptr)},
    };
}

/* Clients say the same numbers again and again: written like the last ones, they are these. */
static bool are_said_again(const struct turn *turn, const struct numbers *numbers)
{
    const struct numbers *last = &turn->last;
    return turn->count > 0 && numbers->args == last->args && numbers->dialect == last->dialect &&
           numbers->first_len == last->first_len && weir_str_eq(numbers->text, last->text);
}

/* NAME key max_burst count period [quantity] */
static void collect(struct turn *turn, const struct weir_resp_command *command,
                    enum weir_resp_dialect dialect)
{
    int64_t n[4] = {0, 0, 0, 1};
    if (command->count < 5 || command->count > 6) {
        refuse(turn, dialect,
               dialect == WEIR_RESP_CELL
                   ? WEIR_STR("Usage: cl.throttle <key> <max_burst> <count per period> <period> "
                              "[<quantity>]")
                   : WEIR_STR("wrong number of arguments for 'throttle' command"));
        return;
    }
    struct numbers numbers = numbers_of(command, dialect);
    if (are_said_again(turn, &numbers)) {
        struct weir_throttle again = turn->throttles[turn->count - 1];
        again.key = command->args[1];
        add(turn, dialect, &again);
        return;
    }
    for (uint32_t i = 2; i < command->count; i++) {
        if (!read_int(command->args[i], &n[i - 2])) {
            refuse_number(turn, dialect, (int)i - 2, command->args[i]);
            return;
        }
    }
    int64_t burst = n[0];
    if (dialect == WEIR_RESP_CELL && burst < INT64_MAX)
        burst++; /* its max_burst is what may follow the first */
    const char *fault = fault_of(n, burst);
    if (fault != NULL) {
        refuse(turn, dialect, weir_str_of(fault));
        return;
    }
    turn->last = numbers;
    add(turn, dialect,
        &(struct weir_throttle){
            .key = command->args[1],
            .burst = (uint32_t)burst,
            .count = (uint32_t)n[1],
            .period_s = (uint32_t)n[2],
            .quantity = n[3],
        });
}

/* DEL key [key ...], of keys that the store counts. */
static bool is_for_store(const struct turn *turn, const struct weir_resp_command *command)
{
    return turn->session->worker->asks != NULL && turn->session->is_trusted && command->count > 1 &&
           weir_resp_is(command->args[0], "del");
}

static void forget(struct turn *turn, const struct weir_resp_command *command)
{
    send_out(turn); /* what came before */
    if (!weir_resp_wait_forget(turn->session, command->args + 1, command->count - 1))
        turn->session->is_ending = true;
}

static void obey(struct turn *turn, const struct weir_resp_command *command)
{
    struct weir_resp_session *session = turn->session;
    enum weir_resp_dialect dialect = weir_resp_dialect_of(command->args[0]);
    if (dialect != WEIR_RESP_NO_THROTTLE && session->is_trusted) {
        collect(turn, command, dialect);
        return;
    }
    decide(turn);
    if (is_for_store(turn, command)) {
        forget(turn, command);
        return;
    }
    make_room(turn, WEIR_RESP_REPLY_MAX);
    weir_resp_obey(
        &(struct weir_resp_call){.session = session, .command = command, .out = &turn->out});
}

/* ---- the connection ---- */

static int front_open(void **state, void *ctx, struct weir_conn *conn)
{
    struct weir_resp_session *session = calloc(1, sizeof(*session));
    (void)ctx;
    if (session == NULL)
        return WEIR_ERR_NOMEM;
    session->conn = conn;
    session->worker = weir_worker_of(conn);
    session->version = 2;
    session->is_trusted = !weir_resp_needs_password(session);
    session->id = weir_worker_next_id(session->worker);
    weir_resp_init(&session->resp);
    session->resp.side.budget = &session->worker->budget;
    *state = session;
    return 0;
}

static void protocol_error(struct turn *turn)
{
    struct weir_resp_session *session = turn->session;
    make_room(turn, WEIR_RESP_REPLY_MAX);
    weir_resp_put_error_about(&turn->out, WEIR_STR("ERR Protocol error: "),
                              weir_str_of(session->resp.fault), WEIR_STR(""));
    session->is_ending = true;
    weir_worker_add(session->worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_BAD, 1);
    WEIR_LOG(weir_service_log(session->worker->service), WEIR_LOG_WARN, "connection closed",
             WEIR_LOG_TEXT("protocol", "resp"),
             WEIR_LOG_KEY("peer", weir_str_of(weir_conn_peer(session->conn))),
             WEIR_LOG_TEXT("why", session->resp.fault));
}

/* No more goes to the store than a connection may have there: what follows is read later. */
static bool has_enough(const struct turn *turn)
{
    return turn->session->worker->asks != NULL && turn->count >= weir_resp_wait_room(turn->session);
}

/* Obeys what came.  WEIR_RESP_COMMAND: there may be more, but for now this is enough. */
static enum weir_resp_next read_commands(struct turn *turn)
{
    struct weir_resp_session *session = turn->session;
    struct weir_resp_command command;
    enum weir_resp_next next = WEIR_RESP_COMMAND;
    while (!session->is_ending && !has_enough(turn) &&
           (next = weir_resp_next(&session->resp, &command)) == WEIR_RESP_COMMAND) {
        turn->has_obeyed = true;
        obey(turn, &command);
    }
    decide(turn);
    if (next == WEIR_RESP_BAD)
        protocol_error(turn);
    send_out(turn);
    return next;
}

int weir_front_resp_feed(void *state, const uint8_t *bytes, size_t len)
{
    struct weir_resp_session *session = state;
    enum weir_resp_next next;
    bool waits;
    struct turn turn;
    turn.session = session;
    turn.has_obeyed = false;
    turn.count = 0;
    turn.out = weir_text_in(turn.buf, sizeof(turn.buf));
    weir_resp_feed(&session->resp, bytes, len);
    do {
        next = read_commands(&turn);
        waits = weir_resp_wait_flush(session);
    } while (next == WEIR_RESP_COMMAND && !session->is_ending && !waits);
    if (waits && next == WEIR_RESP_COMMAND)
        weir_resp_wait_behind(session);
    weir_resp_end(&session->resp);
    if (turn.has_obeyed) {
        weir_conn_amid(session->conn, false); /* what follows has its own time */
        session->has_obeyed = true;
    }
    if (!session->is_alive && session->has_obeyed && !session->is_ending && session->is_trusted) {
        session->is_alive = true;
        weir_conn_alive(session->conn);
    }
    weir_conn_amid(session->conn, weir_resp_is_amid(&session->resp));
    return session->is_ending && !waits ? WEIR_ERR_IO : 0;
}

/* There is no way to tell a client; what it has been answered will leave. */
static void front_drain(void *state)
{
    struct weir_resp_session *session = state;
    session->is_ending = true;
    if (!weir_resp_is_waiting(session))
        weir_conn_finish(session->conn);
}

static void front_close(void *state)
{
    struct weir_resp_session *session = state;
    weir_resp_wait_free(session);
    weir_resp_fini(&session->resp);
    free(session);
}

const struct weir_protocol weir_front_resp = {
    .name = "resp",
    .open = front_open,
    .feed = weir_front_resp_feed,
    .drain = front_drain,
    .close = front_close,
};
