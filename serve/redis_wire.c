/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_wire.h"

#include "base/str.h"
#include "net/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OUT_MAX (80u << 20)
#define ADDRESS_LEN 512
#define WHY_LEN (ADDRESS_LEN + 256)
#define TRIES 6 /* of one command: redirections, a master that has changed */

struct weir_redis_wire {
    char *text; /* the URL, of which url's names are slices */
    struct weir_redis_url url;
    uint32_t timeout_ms;
    struct weir_tls *tls;   /* NULL: plain */
    struct weir_wire *wire; /* NULL: none */
    struct weir_redis_reader *reader;
    struct weir_buf out;
    const struct weir_redis_node *nodes;
    uint32_t node_count;
    char address[ADDRESS_LEN]; /* that we are connected to */
    char why[WHY_LEN];
};

/* ---- made and freed ---- */

int weir_redis_wire_new(struct weir_redis_wire **out, const struct weir_redis_wire_options *options,
                        char *why, size_t why_len)
{
    struct weir_redis_wire *wire = calloc(1, sizeof(*wire));
    int err = WEIR_ERR_NOMEM;
    snprintf(why, why_len, "%s", weir_strerror(err));
    if (wire == NULL)
        return err;
    weir_buf_init(&wire->out, OUT_MAX);
    wire->timeout_ms = options->timeout_ms;
    wire->text = strdup(options->url);
    if (wire->text != NULL)
        err = weir_redis_url_parse(&wire->url, weir_str_of(wire->text), why, why_len);
    if (err == 0 && wire->url.topology == WEIR_REDIS_SHARDS) {
        snprintf(why, why_len, "one server is asked here, not shards: name it by redis://");
        err = WEIR_ERR_INVALID;
    }
    if (err == 0 && wire->url.is_tls &&
        weir_tls_client_new(&wire->tls, &options->tls, why, why_len) != 0)
        err = WEIR_ERR_INVALID;
    if (err != 0) {
        weir_redis_wire_free(wire);
        return err;
    }
    *out = wire;
    return 0;
}

/* Closes the connection; the next question opens another. */
static void drop(struct weir_redis_wire *wire)
{
    weir_wire_close(wire->wire);
    weir_redis_reader_free(wire->reader);
    wire->wire = NULL;
    wire->reader = NULL;
    wire->nodes = NULL;
    wire->node_count = 0;
}

void weir_redis_wire_free(struct weir_redis_wire *wire)
{
    if (wire == NULL)
        return;
    drop(wire);
    weir_tls_free(wire->tls);
    weir_buf_fini(&wire->out);
    free(wire->text);
    explicit_bzero(&wire->url, sizeof(wire->url));
    free(wire);
}

const char *weir_redis_wire_why(const struct weir_redis_wire *wire)
{
    return wire->why;
}

struct weir_redis_said weir_redis_wire_said(const struct weir_redis_wire *wire)
{
    return (struct weir_redis_said){wire->reader, wire->nodes, wire->node_count};
}

/* ---- bytes ---- */

/* Closes what is of no more use. */
static int fail(struct weir_redis_wire *wire, int err, const char *what)
{
    snprintf(wire->why, sizeof(wire->why), "%s: %s", wire->address, what);
    drop(wire);
    return err;
}

/* Waits for one reply. */
static int next_reply(struct weir_redis_wire *wire)
{
    char bytes[16384];
    int got;
    while ((got = weir_redis_reader_next(wire->reader, &wire->nodes, &wire->node_count)) == 0) {
        errno = 0;
        int len = weir_wire_recv(wire->wire, bytes, sizeof(bytes));
        if (len < 0)
            return fail(wire, len, errno == EAGAIN ? "no answer in time" : "the connection ended");
        int err = weir_redis_reader_feed(wire->reader, bytes, (size_t)len);
        if (err != 0)
            return fail(wire, err, "the answer is too large");
    }
    if (got == WEIR_ERR_TOO_LARGE)
        return fail(wire, got, "the answer is too large");
    return got < 0 ? fail(wire, got, "this is not Redis's protocol") : 0;
}

static struct weir_str words_of(const struct weir_redis_wire *wire)
{
    return weir_redis_node_str(wire->reader, &wire->nodes[0]);
}

static bool is_error(const struct weir_redis_wire *wire)
{
    return wire->nodes[0].type == WEIR_REDIS_ERROR;
}

static int say_error(struct weir_redis_wire *wire)
{
    struct weir_str words = words_of(wire);
    snprintf(wire->why, sizeof(wire->why), "%s says: %.*s", wire->address,
             (int)(words.len < 160 ? words.len : 160), words.ptr);
    return WEIR_ERR_STORE;
}

/* Sends, and waits for so many replies; all but the last must be no errors. */
static int converse(struct weir_redis_wire *wire, const struct weir_buf *out, uint32_t replies)
{
    if (weir_wire_send(wire->wire, out->ptr, out->len) != 0)
        return fail(wire, WEIR_ERR_IO, "the connection ended");
    for (; replies > 0; replies--) {
        int err = next_reply(wire);
        if (err != 0)
            return err;
        if (replies > 1 && is_error(wire))
            return say_error(wire);
    }
    return 0;
}

/* ---- connecting ---- */

static void set_address(struct weir_redis_wire *wire, struct weir_str host, uint32_t port)
{
    bool is_v6 = host.len > 0 && memchr(host.ptr, ':', host.len) != NULL;
    if (port == 0)
        snprintf(wire->address, sizeof(wire->address), "unix:%.*s", WEIR_STR_ARG(host));
    else
        snprintf(wire->address, sizeof(wire->address), is_v6 ? "[%.*s]:%u" : "%.*s:%u",
                 WEIR_STR_ARG(host), (unsigned)port);
}

static int open_wire(struct weir_redis_wire *wire)
{
    drop(wire);
    /* Certificates are renewed now and then; as long as new ones cannot be read, the old count. */
    if (wire->tls != NULL && weir_tls_has_changed(wire->tls))
        (void)!weir_tls_reload(wire->tls, wire->why, sizeof(wire->why));
    int err = weir_wire_open(&wire->wire, wire->address, wire->timeout_ms, wire->tls, wire->why,
                             sizeof(wire->why));
    if (err == 0 && weir_redis_reader_new(&wire->reader) != 0)
        err = fail(wire, WEIR_ERR_NOMEM, "out of memory");
    return err;
}

/* Connects to wire->address, and says who we are. */
static int connect_server(struct weir_redis_wire *wire)
{
    struct weir_buf out;
    int err = open_wire(wire);
    if (err != 0)
        return err;
    weir_buf_init(&out, 4 * WEIR_REDIS_SECRET_MAX);
    err = converse(wire, &out, weir_redis_put_greeting(&out, &wire->url));
    weir_buf_fini(&out);
    if (err == 0 && is_error(wire))
        err = say_error(wire);
    if (err != 0) /* what it said stays in why */
        drop(wire);
    return err;
}

/* Asks one Sentinel where the master is; wire->address becomes that. */
static int ask_sentinel(struct weir_redis_wire *wire, const struct weir_redis_host *sentinel)
{
    struct weir_buf out;
    const struct weir_str args[] = {WEIR_STR("SENTINEL"), WEIR_STR("get-master-addr-by-name"),
                                    wire->url.master};
    set_address(wire, sentinel->name, sentinel->port);
    int err = open_wire(wire);
    if (err != 0)
        return err;
    weir_buf_init(&out, 4096);
    uint32_t greetings = weir_redis_put_sentinel_greeting(&out, &wire->url);
    weir_redis_put_command(&out, args, 3);
    err = converse(wire, &out, greetings + 1);
    weir_buf_fini(&out);
    if (err == 0 && is_error(wire))
        return say_error(wire);
    if (err == 0 && wire->node_count != 3)
        return fail(wire, WEIR_ERR_STORE, "this Sentinel does not know the master");
    if (err != 0)
        return err;
    struct weir_str host = weir_redis_node_str(wire->reader, &wire->nodes[1]);
    struct weir_str port = weir_redis_node_str(wire->reader, &wire->nodes[2]);
    char number[8] = "";
    snprintf(number, sizeof(number), "%.*s", (int)(port.len < 7 ? port.len : 0), port.ptr);
    set_address(wire, host, (uint32_t)strtoul(number, NULL, 10));
    return 0;
}

static int connect_any(struct weir_redis_wire *wire)
{
    int err = WEIR_ERR_IO;
    for (uint32_t i = 0; i < wire->url.host_count && err != 0; i++) {
        const struct weir_redis_host *host = &wire->url.hosts[i];
        if (wire->url.topology == WEIR_REDIS_SENTINEL) {
            err = ask_sentinel(wire, host);
        } else {
            set_address(wire, host->name, host->port);
            err = 0;
        }
        if (err == 0)
            err = connect_server(wire);
    }
    return err;
}

/* ---- asking ---- */

/* "MOVED 42 10.0.0.1:6379": to there.  Without a host it is the one that says so. */
static int follow(struct weir_redis_wire *wire, bool *is_ask)
{
    struct weir_redis_redirect redirect;
    char where[ADDRESS_LEN];
    if (weir_redis_redirect_read(words_of(wire), &redirect) != 0)
        return say_error(wire);
    struct weir_str to = redirect.address;
    snprintf(where, sizeof(where), "%.*s", (int)(to.len < 300 ? to.len : 0), to.ptr);
    char *colon = strrchr(where, ':');
    if (colon == NULL)
        return say_error(wire);
    uint32_t port = (uint32_t)strtoul(colon + 1, NULL, 10);
    *is_ask = redirect.is_ask;
    if (colon == where) {
        char *here = strrchr(wire->address, ':');
        size_t room = sizeof(wire->address) - (size_t)(here - wire->address);
        snprintf(here, room, ":%u", (unsigned)port);
    } else {
        set_address(wire, (struct weir_str){where, (size_t)(colon - where)}, port);
    }
    return connect_server(wire);
}

/* The command, after ASKING where a redirection was for this once. */
static int send_command(struct weir_redis_wire *wire, bool is_ask)
{
    struct weir_buf asking;
    if (is_ask) {
        weir_buf_init(&asking, 64);
        weir_redis_put_command(&asking, (const struct weir_str[]){WEIR_STR("ASKING")}, 1);
        int err = converse(wire, &asking, 1);
        weir_buf_fini(&asking);
        if (err != 0)
            return err;
    }
    return converse(wire, &wire->out, 1);
}

struct weir_buf *weir_redis_wire_begin(struct weir_redis_wire *wire)
{
    weir_buf_cut(&wire->out, 0);
    return &wire->out;
}

int weir_redis_wire_ask(struct weir_redis_wire *wire)
{
    bool is_ask = false;
    if (wire->out.has_failed) {
        snprintf(wire->why, sizeof(wire->why), "too much for one command");
        return WEIR_ERR_TOO_LARGE;
    }
    for (int tries = 0; tries < TRIES; tries++) {
        int err = wire->wire == NULL ? connect_any(wire) : 0;
        if (err == 0)
            err = send_command(wire, is_ask);
        if (err != 0 || !is_error(wire))
            return err;
        enum weir_redis_cure cure = weir_redis_cure_of(weir_redis_error_of(words_of(wire)));
        is_ask = false;
        if (cure == WEIR_REDIS_CURE_REDIRECT) {
            err = follow(wire, &is_ask);
            if (err != 0)
                return err;
        } else if (cure == WEIR_REDIS_CURE_FIND_MASTER &&
                   wire->url.topology == WEIR_REDIS_SENTINEL && tries == 0) {
            drop(wire);
        } else {
            return say_error(wire);
        }
    }
    return fail(wire, WEIR_ERR_STORE, "sends us from one node to the next");
}
