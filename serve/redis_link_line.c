/* redis_link_line.c - one connection: a greeting, the script, calls, and their replies in order.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define ROOM_FIRST 256u

/* ---- what is owed ---- */

static struct owed *at(const struct weir_redis_line *line, uint64_t place)
{
    return &line->owed[place & (line->room - 1)];
}

/* Twice the room, up to what the link may have under way, and late ones besides. */
static bool grow(struct weir_redis_line *line)
{
    uint32_t room = line->room > 0 ? 2 * line->room : ROOM_FIRST;
    if (line->room > 2 * line->server->link->queue_max)
        return false;
    struct owed *owed = malloc(room * sizeof(*owed));
    if (owed == NULL)
        return false;
    for (uint64_t place = line->first; place < line->next; place++)
        owed[place & (room - 1)] = *at(line, place);
    free(line->owed);
    line->owed = owed;
    line->room = room;
    return true;
}

static bool has_room(struct weir_redis_line *line, uint32_t more)
{
    return line->next - line->first + more <= line->room || grow(line);
}

/* The command just put into out gets a reply.  There must be room. */
static void owe(struct weir_redis_line *line, enum owed_kind kind, struct weir_redis_ask *ask,
                uint64_t now_ns)
{
    *at(line, line->next++) = (struct owed){
        .ask = ask,
        .sent_ns = now_ns,
        .end = line->written + line->out.len,
        .loads = line->loads,
        .kind = (uint8_t)kind,
    };
}

static void put_load(struct weir_redis_line *line, uint64_t now_ns)
{
    line->wants_load = false;
    line->loads++;
    weir_redis_put_load(&line->out, line->server->how);
    owe(line, OWED_LOAD, NULL, now_ns);
    weir_redis_count_add(line->server->link, WEIR_REDIS_COUNT_LOADS, 1);
}

bool weir_redis_line_put(struct weir_redis_line *line, struct weir_redis_ask *ask, uint64_t now_ns)
{
    if (!has_room(line, 4) || /* the script, ASKING, the call, and a WAIT at the end */
        weir_peer_queued(line->peer) > UNSENT_MAX)
        return false;
    if (line->wants_load && !ask->is_own)
        put_load(line, now_ns);
    size_t from = line->out.len;
    uint64_t place = line->next;
    if (ask->is_asking) {
        weir_redis_put_command(&line->out, (const struct weir_str[]){WEIR_STR("ASKING")}, 1);
        owe(line, OWED_ASKING, NULL, now_ns);
    }
    ask->put(ask, &line->out, line->server->how);
    if (line->out.has_failed) {
        weir_buf_cut(&line->out, from);
        line->next = place;
        return false;
    }
    ask->is_asking = false;
    ask->tries++;
    ask->line = line;
    ask->place = line->next;
    owe(line, OWED_CALL, ask, now_ns);
    at(line, ask->place)->wait = weir_redis_wait_for(line, ask);
    line->calls++;
    return true;
}

bool weir_redis_line_put_wait(struct weir_redis_line *line, uint64_t now_ns)
{
    const struct weir_redis_link *link = line->server->link;
    char replicas[12], ms[12];
    size_t from = line->out.len;
    if (!has_room(line, 1))
        return false;
    snprintf(replicas, sizeof(replicas), "%u", (unsigned)link->replicas);
    snprintf(ms, sizeof(ms), "%u", (unsigned)link->wait_ms);
    weir_redis_put_command(
        &line->out,
        (const struct weir_str[]){WEIR_STR("WAIT"), weir_str_of(replicas), weir_str_of(ms)}, 3);
    if (line->out.has_failed) {
        weir_buf_cut(&line->out, from);
        return false;
    }
    owe(line, OWED_WAIT, NULL, now_ns);
    return true;
}

void weir_redis_line_probe(struct weir_redis_line *line, uint64_t now_ns)
{
    if (!has_room(line, 2))
        return; /* so many are owed that these are probe enough */
    if (line->wants_load)
        put_load(line, now_ns);
    weir_redis_put_call(&line->out, line->server->how, &(const struct weir_redis_call){0});
    owe(line, OWED_PROBE, NULL, now_ns);
}

void weir_redis_line_send(struct weir_redis_line *line)
{
    size_t len = line->out.len;
    if (len == 0)
        return;
    if (weir_peer_write(line->peer, line->out.ptr, len) != 0)
        weir_panic("a line's output has room for a turn's", __FILE__, __LINE__);
    line->written += len;
    weir_buf_cut(&line->out, 0);
}

void weir_redis_line_abandon(struct weir_redis_line *line, const struct weir_redis_ask *ask,
                             bool is_late)
{
    struct owed *owed = at(line, ask->place);
    WEIR_ASSERT(owed->ask == ask);
    owed->ask = NULL;
    owed->is_late = is_late;
    owed->tag = is_late ? ask->late_tag : 0;
}

/* ---- replies ---- */

/* The line must end.  Said once. */
static int end(struct weir_redis_line *line, const char *what, struct weir_str words)
{
    snprintf(line->why, sizeof(line->why), "%s%.*s", what, WEIR_STR_ARG(words));
    return WEIR_ERR_STORE;
}

static void become_ready(struct weir_redis_line *line)
{
    if (line->is_ready || line->greetings > 0)
        return;
    line->is_ready = true;
    line->ready_ns = weir_redis_now();
    weir_redis_server_ready(line->server);
}

/* Functions are not to be had here: scripts, then; nor these: what is there must do. */
static void load_otherwise(struct weir_redis_line *line)
{
    struct weir_redis_server *server = line->server;
    server->cannot_load = server->how == WEIR_REDIS_EVALSHA;
    server->how = server->cannot_load ? WEIR_REDIS_FCALL : WEIR_REDIS_EVALSHA;
    line->wants_load = !server->cannot_load;
}

static int on_loaded(struct weir_redis_line *line, struct weir_str words, uint64_t now_ns)
{
    enum weir_redis_cure cure =
        words.ptr != NULL ? weir_redis_cure_of(weir_redis_error_of(words)) : WEIR_REDIS_CURE_NONE;
    if (cure == WEIR_REDIS_CURE_GIVE_UP)
        load_otherwise(line);
    else if (cure != WEIR_REDIS_CURE_NONE && !line->is_ready)
        return end(line, "", words);
    if (!line->is_ready && line->wants_load) {
        put_load(line, now_ns);
        weir_redis_line_send(line);
    } else {
        become_ready(line);
    }
    return 0;
}

static int on_greeted(struct weir_redis_line *line, struct weir_str words, uint64_t now_ns)
{
    if (words.ptr != NULL)
        return end(line, "", words);
    line->greetings--;
    if (!line->server->has_keys) {
        become_ready(line);
    } else if (line->greetings == 0 && line->loads == 0) { /* it got them since */
        put_load(line, now_ns);
        weir_redis_line_send(line);
    }
    return 0;
}

static void on_probed(struct weir_redis_line *line, const struct owed *owed, struct weir_str words,
                      uint64_t now_ns)
{
    struct weir_redis_link *link = line->server->link;
    bool is_gone =
        words.ptr != NULL && weir_redis_cure_of(weir_redis_error_of(words)) == WEIR_REDIS_CURE_LOAD;
    if (line != line->server->line)
        return; /* it has faded */
    line->wants_load |= is_gone && owed->loads == line->loads && !line->server->cannot_load;
    if (words.ptr != NULL)
        weir_redis_server_probed(line->server, false, "it refuses");
    else
        weir_redis_server_probed(line->server, now_ns - owed->sent_ns <= link->deadline_ns,
                                 "it is slow");
}

/* What a call's error makes of it: an error of ours, or 0 where it is to be sent again. */
static int judge(struct weir_redis_line *line, const struct owed *owed, struct weir_str words)
{
    enum weir_redis_error error = weir_redis_error_of(words);
    switch (weir_redis_cure_of(error)) {
    case WEIR_REDIS_CURE_LOAD:
        line->wants_load |= owed->loads == line->loads && !line->server->cannot_load;
        return line->server->cannot_load ? WEIR_ERR_STORE_AWAY : 0;
    case WEIR_REDIS_CURE_REDIRECT:
    case WEIR_REDIS_CURE_FIND_MASTER:
    case WEIR_REDIS_CURE_WAIT:
        weir_redis_find_soon(line->server->link);
        return WEIR_ERR_STORE_AWAY;
    case WEIR_REDIS_CURE_NONE:
    case WEIR_REDIS_CURE_GIVE_UP:
        break;
    }
    bool is_refused = error == WEIR_REDIS_ERROR_NO_AUTH || error == WEIR_REDIS_ERROR_NO_PERM ||
                      error == WEIR_REDIS_ERROR_NO_COMMAND || error == WEIR_REDIS_ERROR_CROSS_SLOT;
    return is_refused ? WEIR_ERR_STORE_AWAY : WEIR_ERR_STORE;
}

/* Whether the call goes on, here or elsewhere. */
static bool goes_on(struct weir_redis_line *line, struct weir_redis_ask *ask, int err,
                    struct weir_str words)
{
    enum weir_redis_error error = weir_redis_error_of(words);
    bool is_redirected = weir_redis_cure_of(error) == WEIR_REDIS_CURE_REDIRECT;
    bool is_brief =
        error == WEIR_REDIS_ERROR_TRY_AGAIN ||
        (error == WEIR_REDIS_ERROR_CLUSTER_DOWN && weir_redis_server_down(line->server));
    if (ask == NULL || (err != 0 && !is_redirected && !is_brief))
        return false;
    if (is_redirected && !weir_redis_route_redirect(line->server, ask, words))
        return false;
    /* Two servers may for a while each take the other for the one. */
    if (is_brief || ask->tries >= TRIES_FAST)
        weir_redis_route_pause(line->server->link, ask);
    else if (!is_redirected)
        weir_redis_server_take(line->server, ask);
    return true;
}

/* For the log: Redis's words, unless ours say better what helps. */
static struct weir_str explain(const struct weir_redis_line *line, struct weir_str words)
{
    bool is_moved = weir_redis_cure_of(weir_redis_error_of(words)) == WEIR_REDIS_CURE_REDIRECT;
    if (is_moved && line->server->link->url.topology != WEIR_REDIS_CLUSTER)
        return WEIR_STR("it is part of a Cluster: name it redis-cluster://");
    return words;
}

/* The finder's, who tells of it. */
static bool is_own(const struct owed *owed)
{
    return owed->ask != NULL && owed->ask->is_own;
}

static void complain(const struct weir_redis_line *line, const struct owed *owed,
                     struct weir_str words)
{
    if (!is_own(owed) && weir_redis_cure_of(weir_redis_error_of(words)) == WEIR_REDIS_CURE_GIVE_UP)
        weir_redis_complain(line->server, owed->ask != NULL ? owed->ask->key : WEIR_STR(""), words);
}

static void on_complaint(struct weir_redis_line *line, const struct owed *owed,
                         struct weir_str words, const struct weir_redis_answer *answer)
{
    struct weir_redis_link *link = line->server->link;
    int err = judge(line, owed, words);
    if (goes_on(line, owed->ask, err, words))
        return;
    complain(line, owed, words);
    if (err == 0)
        err = WEIR_ERR_STORE_AWAY;
    if (err == WEIR_ERR_STORE_AWAY && !is_own(owed))
        answer = NULL;
    if (err == WEIR_ERR_STORE_AWAY && !owed->is_late) {
        char why[WHY_MAX];
        struct weir_str said = explain(line, words);
        snprintf(why, sizeof(why), "%.*s", WEIR_STR_ARG(said));
        weir_redis_server_fail(line->server, why);
    }
    if (owed->ask != NULL)
        weir_redis_ask_finish(link, owed->ask, err, answer);
    else
        weir_redis_tell_late(link, owed->tag, err, answer);
}

static void on_called(struct weir_redis_line *line, const struct owed *owed, struct weir_str words,
                      const struct weir_redis_answer *answer)
{
    struct weir_redis_link *link = line->server->link;
    line->calls--;
    line->has_served = true;
    if (owed->is_late)
        weir_redis_count_add(link, WEIR_REDIS_COUNT_LATE_REPLIES, 1);
    if (owed->ask != NULL)
        owed->ask->line = NULL;
    bool is_down = words.ptr != NULL && weir_redis_error_of(words) == WEIR_REDIS_ERROR_CLUSTER_DOWN;
    if (!is_down && !is_own(owed))
        weir_redis_server_up(line->server);
    if (words.ptr != NULL) {
        on_complaint(line, owed, words, answer);
        return;
    }
    if (!owed->is_late)
        weir_redis_server_succeed(line->server);
    if (owed->ask != NULL)
        weir_redis_ask_finish(link, owed->ask, 0, answer);
    else
        weir_redis_tell_late(link, owed->tag, 0, answer);
}

static int on_reply(struct weir_redis_line *line, const struct weir_redis_node *nodes,
                    uint32_t count, uint64_t now_ns)
{
    if (line->first == line->next)
        return end(line, "it says what nobody asked for", WEIR_STR(""));
    struct owed owed = *at(line, line->first++);
    const struct weir_redis_answer answer = {
        .reader = line->reader,
        .nodes = nodes,
        .node_count = count,
        .sent_ns = owed.sent_ns,
        .answered_ns = now_ns,
        .wait = owed.wait == line->waiting || owed.wait == line->wanted ? owed.wait : 0,
    };
    struct weir_str words = {0}; /* of an error */
    if (nodes[0].type == WEIR_REDIS_ERROR)
        words = weir_redis_node_str(line->reader, &nodes[0]);
    switch ((enum owed_kind)owed.kind) {
    case OWED_GREETING:
        return on_greeted(line, words, now_ns);
    case OWED_LOAD:
        return on_loaded(line, words, now_ns);
    case OWED_PROBE:
        on_probed(line, &owed, words, now_ns);
        break;
    case OWED_CALL:
        on_called(line, &owed, words, &answer);
        break;
    case OWED_ASKING:
        break; /* the call behind it tells */
    case OWED_WAIT:
        weir_redis_wait_answered(line, nodes, now_ns);
        break;
    }
    return 0;
}

static int on_feed(void *ctx, const uint8_t *bytes, size_t len)
{
    struct weir_redis_line *line = ctx;
    const struct weir_redis_node *nodes;
    uint32_t count;
    uint64_t now_ns = weir_redis_now();
    int got = weir_redis_reader_feed(line->reader, bytes, len);
    while (got == 0 && (got = weir_redis_reader_next(line->reader, &nodes, &count)) == 1)
        got = on_reply(line, nodes, count, now_ns);
    return got;
}

/* ---- life ---- */

static void on_up(void *ctx)
{
    struct weir_redis_line *line = ctx;
    struct weir_redis_server *server = line->server;
    uint64_t now_ns = weir_redis_now();
    line->greetings = server->is_sentinel
                          ? weir_redis_put_sentinel_greeting(&line->out, &server->link->url)
                          : weir_redis_put_greeting(&line->out, &server->link->url);
    for (uint32_t i = 0; i < line->greetings; i++)
        owe(line, OWED_GREETING, NULL, now_ns);
    if (server->has_keys)
        put_load(line, now_ns);
    else
        line->wants_load = !server->is_sentinel; /* should it ever get keys */
    weir_redis_line_send(line);
}

static void on_down(void *ctx, const char *why)
{
    struct weir_redis_line *line = ctx;
    weir_redis_server_lost(line->server, line, line->why[0] != '\0' ? line->why : why);
}

int weir_redis_line_open(struct weir_redis_line **out, struct weir_redis_server *server, char *why,
                         size_t why_len)
{
    static const struct weir_peer_events events = {.up = on_up, .feed = on_feed, .down = on_down};
    struct weir_redis_line *line = calloc(1, sizeof(*line));
    if (line == NULL)
        goto no_memory;
    line->server = server;
    weir_buf_init(&line->out, OUT_MAX);
    if (!grow(line) || weir_redis_reader_new(&line->reader) != 0)
        goto no_memory;
    const struct weir_peer_options options = {
        .address = server->address.text,
        .tls = server->link->tls,
        .events = &events,
        .ctx = line,
        .first = server->attempts,
        .output_max = UNSENT_MAX + 2 * OUT_MAX, /* calls, and a probe behind them */
    };
    int err = weir_peer_open(&line->peer, server->link->loop, &options, why, why_len);
    if (err != 0) {
        weir_redis_line_forget(line);
        return err;
    }
    *out = line;
    return 0;
no_memory:
    snprintf(why, why_len, "out of memory");
    weir_redis_line_forget(line);
    return WEIR_ERR_NOMEM;
}

void weir_redis_line_forget(struct weir_redis_line *line)
{
    if (line == NULL)
        return;
    weir_peer_close(line->peer);
    weir_redis_reader_free(line->reader);
    weir_buf_fini(&line->out);
    free(line->owed);
    free(line);
}

void weir_redis_line_close(struct weir_redis_line *line)
{
    struct weir_redis_link *link = line->server->link;
    uint64_t seen = line->written - weir_peer_unsent(line->peer);
    for (; line->first < line->next; line->first++) {
        struct owed owed = *at(line, line->first);
        int err = owed.end <= seen ? WEIR_ERR_STORE_LATE : WEIR_ERR_STORE_AWAY;
        if (owed.ask == NULL) {
            weir_redis_tell_late(link, owed.tag, err, NULL);
            continue;
        }
        uint64_t tag = err == WEIR_ERR_STORE_LATE ? owed.ask->late_tag : 0;
        weir_redis_ask_finish(link, owed.ask, err, NULL);
        weir_redis_tell_late(link, tag, err, NULL);
    }
    weir_redis_wait_end(line);
    weir_redis_line_forget(line);
}
