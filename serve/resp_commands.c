/* resp_commands.c - what Redis's clients send beside what they came for.
 *
 * Enough of it that redis-cli, redis-py, ioredis and the like connect and stay content; the rest is
 * an unknown command.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "serve/resp_session.h"

#include <stdio.h>

#define REDIS_VERSION "7.0.0" /* whose way of talking this is: clients ask */

typedef void obey_fn(struct weir_resp_call *call);
static obey_fn obey_ping, obey_echo, obey_hello, obey_auth, obey_client, obey_command, obey_config,
    obey_del, obey_info, obey_quit, obey_reset, obey_select;
#define obey_cl_throttle NULL /* decided with others, by front_resp.c */
#define obey_throttle NULL

static const struct entry {
    const char *name;
    obey_fn *obey;
    int arity;
    bool is_open;
    int first_key;
    const char *summary;
} entries[] = {
#define WEIR_RESP_ENTRY(name, function, arity, is_open, first_key, summary)                        \
    {name, obey_##function, arity, is_open, first_key, summary},
#include "serve/resp_commands.def"
#undef WEIR_RESP_ENTRY
};

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

static const struct entry *find(struct weir_str name)
{
    for (size_t i = 0; i < ENTRIES; i++)
        if (weir_resp_is(name, entries[i].name))
            return &entries[i];
    return NULL;
}

enum weir_resp_dialect weir_resp_dialect_of(struct weir_str name)
{
    /* As nearly everybody writes it, before any way to write it. */
    if (weir_str_eq(name, WEIR_STR("CL.THROTTLE")))
        return WEIR_RESP_CELL;
    if (name.len == 11 && weir_resp_is(name, "cl.throttle"))
        return WEIR_RESP_CELL;
    return name.len == 8 && weir_resp_is(name, "throttle") ? WEIR_RESP_CRAB : WEIR_RESP_NO_THROTTLE;
}

static bool arg_is(const struct weir_resp_call *call, uint32_t i, const char *lower)
{
    return i < call->command->count && weir_resp_is(call->command->args[i], lower);
}

static void put_ok(struct weir_resp_call *call)
{
    weir_resp_put_simple(call->out, WEIR_STR("OK"));
}

static void put_syntax_error(struct weir_resp_call *call)
{
    weir_resp_put_error(call->out, WEIR_STR("ERR syntax error"));
}

static void put_arity_error(struct weir_resp_call *call, const char *name)
{
    weir_resp_put_error_about(call->out, WEIR_STR("ERR wrong number of arguments for '"),
                              weir_str_of(name), WEIR_STR("' command"));
}

/* ---- small ones ---- */

static void obey_ping(struct weir_resp_call *call)
{
    if (call->command->count > 2)
        put_arity_error(call, "ping");
    else if (call->command->count == 2)
        weir_resp_put_bulk(call->out, call->command->args[1]);
    else
        weir_resp_put_simple(call->out, WEIR_STR("PONG"));
}

static void obey_echo(struct weir_resp_call *call)
{
    weir_resp_put_bulk(call->out, call->command->args[1]);
}

static void obey_quit(struct weir_resp_call *call)
{
    put_ok(call);
    call->session->is_ending = true;
}

static void obey_reset(struct weir_resp_call *call)
{
    struct weir_resp_session *session = call->session;
    session->version = 2;
    session->name_len = 0;
    session->is_trusted = !weir_resp_needs_password(session);
    weir_resp_put_simple(call->out, WEIR_STR("RESET"));
}

static void obey_select(struct weir_resp_call *call)
{
    if (weir_str_eq(call->command->args[1], WEIR_STR("0")))
        put_ok(call);
    else
        weir_resp_put_error(call->out, WEIR_STR("ERR DB index is out of range"));
}

static void obey_del(struct weir_resp_call *call)
{
    int64_t count = 0;
    for (uint32_t i = 1; i < call->command->count; i++)
        count += weir_throttle_reset(call->session->worker->session, call->command->args[i]);
    weir_resp_put_int(call->out, count);
}

static void obey_config(struct weir_resp_call *call)
{
    if (arg_is(call, 1, "get"))
        weir_resp_put_map(call->out, 0, call->session->version);
    else
        weir_resp_put_error(call->out, WEIR_STR("ERR settings are not changed over RESP"));
}

static void obey_info(struct weir_resp_call *call)
{
    const struct weir_service *service = call->session->worker->service;
    uint64_t decided = weir_service_count(service, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_REQUESTS);
    uint64_t refused = weir_service_count(service, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_OVER_LIMIT);
    char text[512];
    int len = snprintf(text, sizeof(text),
                       "# Server\r\nredis_version:" REDIS_VERSION "\r\nweir_version:%s\r\n"
                       "redis_mode:standalone\r\n\r\n# Persistence\r\nloading:0\r\n\r\n"
                       "# Stats\r\nthrottles:%llu\r\nthrottles_limited:%llu\r\n\r\n"
                       "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n"
                       "# Cluster\r\ncluster_enabled:0\r\n",
                       weir_version(), (unsigned long long)decided, (unsigned long long)refused);
    weir_resp_put_bulk(call->out, (struct weir_str){.ptr = text, .len = (size_t)len});
}

/* ---- who is there ---- */

bool weir_resp_needs_password(const struct weir_resp_session *session)
{
    return weir_service_settings(session->worker->service)->resp_password[0] != '\0';
}

/* Whether that was it. */
static bool try_password(struct weir_resp_session *session, struct weir_str password)
{
    const char *right = weir_service_settings(session->worker->service)->resp_password;
    size_t len = strlen(right);
    /* In time that depends on what was sent alone: not on how much of it is right. */
    unsigned differs = password.len != len;
    for (size_t i = 0; i < password.len; i++)
        differs |= (unsigned char)(password.ptr[i] ^ right[len > 0 ? i % len : 0]);
    session->is_trusted = differs == 0 && len > 0;
    if (!session->is_trusted && ++session->guesses >= WEIR_RESP_GUESSES_MAX)
        session->is_ending = true;
    return session->is_trusted;
}

/* AUTH password, or AUTH default password.  False: answered with an error. */
static bool authenticate(struct weir_resp_call *call, struct weir_str user,
                         struct weir_str password)
{
    if (weir_str_eq(user, WEIR_STR("default")) && try_password(call->session, password))
        return true;
    weir_resp_put_error(call->out,
                        WEIR_STR("WRONGPASS invalid username-password pair or user is disabled."));
    WEIR_LOG(weir_service_log(call->session->worker->service), WEIR_LOG_WARN, "wrong password",
             WEIR_LOG_TEXT("protocol", "resp"),
             WEIR_LOG_TEXT("peer", weir_conn_peer(call->session->conn)));
    return false;
}

static void obey_auth(struct weir_resp_call *call)
{
    const struct weir_resp_command *command = call->command;
    if (command->count > 3)
        put_syntax_error(call);
    else if (!weir_resp_needs_password(call->session))
        weir_resp_put_error(call->out,
                            WEIR_STR("ERR AUTH <password> called without any password configured "
                                     "for the default user. Are you sure your configuration is "
                                     "correct?"));
    else if (authenticate(call, command->count == 3 ? command->args[1] : WEIR_STR("default"),
                          command->args[command->count - 1]))
        put_ok(call);
}

static bool set_name(struct weir_resp_call *call, struct weir_str name)
{
    struct weir_resp_session *session = call->session;
    bool is_fine = name.len <= sizeof(session->name);
    for (size_t i = 0; i < name.len && is_fine; i++)
        is_fine = name.ptr[i] > ' ' && name.ptr[i] <= '~';
    if (!is_fine) {
        weir_resp_put_error(call->out, WEIR_STR("ERR Client names cannot contain spaces, newlines "
                                                "or special characters, nor be long."));
        return false;
    }
    if (name.len > 0)
        memcpy(session->name, name.ptr, name.len);
    session->name_len = name.len;
    return true;
}

static void put_hello(struct weir_resp_call *call)
{
    struct weir_text *out = call->out;
    weir_resp_put_map(out, 7, call->session->version);
    weir_resp_put_bulk(out, WEIR_STR("server"));
    weir_resp_put_bulk(out, WEIR_STR("weir"));
    weir_resp_put_bulk(out, WEIR_STR("version"));
    weir_resp_put_bulk(out, WEIR_STR(REDIS_VERSION));
    weir_resp_put_bulk(out, WEIR_STR("proto"));
    weir_resp_put_int(out, call->session->version);
    weir_resp_put_bulk(out, WEIR_STR("id"));
    weir_resp_put_int(out, (int64_t)call->session->id);
    weir_resp_put_bulk(out, WEIR_STR("mode"));
    weir_resp_put_bulk(out, WEIR_STR("standalone"));
    weir_resp_put_bulk(out, WEIR_STR("role"));
    weir_resp_put_bulk(out, WEIR_STR("master"));
    weir_resp_put_bulk(out, WEIR_STR("modules"));
    weir_resp_put_array(out, 0);
}

/* HELLO [version [AUTH user password] [SETNAME name]] */
static void obey_hello(struct weir_resp_call *call)
{
    const struct weir_resp_command *command = call->command;
    struct weir_resp_session *session = call->session;
    int version = session->version;
    if (command->count > 1) {
        bool is_known = weir_str_eq(command->args[1], WEIR_STR("2")) ||
                        weir_str_eq(command->args[1], WEIR_STR("3"));
        if (!is_known) {
            weir_resp_put_error(call->out, WEIR_STR("NOPROTO unsupported protocol version"));
            return;
        }
        version = command->args[1].ptr[0] - '0';
    }
    for (uint32_t i = 2; i < command->count;) {
        if (arg_is(call, i, "auth") && i + 2 < command->count) {
            if (weir_resp_needs_password(session) &&
                !authenticate(call, command->args[i + 1], command->args[i + 2]))
                return;
            i += 3;
        } else if (arg_is(call, i, "setname") && i + 1 < command->count) {
            if (!set_name(call, command->args[i + 1]))
                return;
            i += 2;
        } else {
            put_syntax_error(call);
            return;
        }
    }
    if (!session->is_trusted) {
        weir_resp_put_error(
            call->out, WEIR_STR("NOAUTH HELLO must be called with the client already "
                                "authenticated, otherwise the HELLO <proto> AUTH <user> <pass> "
                                "option can be used to authenticate the client and select the "
                                "RESP protocol version at the same time"));
        return;
    }
    session->version = version;
    put_hello(call);
}

static void put_client_info(struct weir_resp_call *call)
{
    const struct weir_resp_session *session = call->session;
    char text[256];
    int len = snprintf(text, sizeof(text), "id=%llu addr=%s name=%.*s db=0 resp=%d\n",
                       (unsigned long long)session->id, weir_conn_peer(session->conn),
                       (int)session->name_len, session->name, session->version);
    weir_resp_put_bulk(call->out, (struct weir_str){.ptr = text, .len = (size_t)len});
}

/* What clients tell of themselves and their wishes, which change nothing here. */
static bool is_noted(const struct weir_resp_call *call)
{
    uint32_t count = call->command->count;
    if (arg_is(call, 1, "setinfo"))
        return count == 4;
    if (arg_is(call, 1, "no-evict") || arg_is(call, 1, "no-touch"))
        return count == 3;
    return arg_is(call, 1, "reply") && arg_is(call, 2, "on");
}

static void obey_client(struct weir_resp_call *call)
{
    const struct weir_resp_session *session = call->session;
    if (arg_is(call, 1, "id")) {
        weir_resp_put_int(call->out, (int64_t)session->id);
    } else if (arg_is(call, 1, "getname")) {
        if (session->name_len > 0)
            weir_resp_put_bulk(call->out, (struct weir_str){session->name, session->name_len});
        else
            weir_resp_put_null(call->out, session->version);
    } else if (arg_is(call, 1, "setname") && call->command->count == 3) {
        if (set_name(call, call->command->args[2]))
            put_ok(call);
    } else if (is_noted(call)) {
        put_ok(call);
    } else if (arg_is(call, 1, "info") || arg_is(call, 1, "list")) {
        put_client_info(call);
    } else {
        weir_resp_put_error_about(call->out,
                                  WEIR_STR("ERR unknown subcommand or wrong number of "
                                           "arguments for '"),
                                  call->command->args[1], WEIR_STR("'"));
    }
}

/* ---- COMMAND ---- */

static void put_entry(struct weir_text *out, const struct entry *entry)
{
    weir_resp_put_array(out, 10);
    weir_resp_put_bulk(out, weir_str_of(entry->name));
    weir_resp_put_int(out, entry->obey == NULL ? -5 : entry->arity); /* of those that limit */
    weir_resp_put_array(out, 2);
    weir_resp_put_simple(out, entry->first_key > 0 ? WEIR_STR("write") : WEIR_STR("loading"));
    weir_resp_put_simple(out, WEIR_STR("fast"));
    for (int i = 0; i < 2; i++)
        weir_resp_put_int(out, entry->first_key); /* first key, last key */
    weir_resp_put_int(out, entry->first_key > 0); /* step */
    for (int i = 0; i < 4; i++)
        weir_resp_put_array(out, 0); /* categories, tips, key specifications, subcommands */
}

static void put_docs(struct weir_resp_call *call, const struct entry *entry)
{
    weir_resp_put_bulk(call->out, weir_str_of(entry->name));
    weir_resp_put_map(call->out, 2, call->session->version);
    weir_resp_put_bulk(call->out, WEIR_STR("summary"));
    weir_resp_put_bulk(call->out, weir_str_of(entry->summary));
    weir_resp_put_bulk(call->out, WEIR_STR("group"));
    weir_resp_put_bulk(call->out, WEIR_STR("generic"));
}

/* COMMAND INFO and DOCS, of those that are named or of all. */
static void put_some(struct weir_resp_call *call, bool is_docs)
{
    const struct weir_resp_command *command = call->command;
    uint64_t named = command->count > 2 ? command->count - 2 : 0, known = 0;
    for (uint32_t i = 2; i < command->count; i++)
        known += find(command->args[i]) != NULL;
    if (is_docs)
        weir_resp_put_map(call->out, named > 0 ? known : ENTRIES, call->session->version);
    else
        weir_resp_put_array(call->out, named > 0 ? named : ENTRIES);
    for (size_t i = 0; i < (named > 0 ? named : ENTRIES); i++) {
        const struct entry *entry = named > 0 ? find(command->args[i + 2]) : &entries[i];
        if (entry != NULL && is_docs)
            put_docs(call, entry);
        else if (entry != NULL)
            put_entry(call->out, entry);
        else if (!is_docs)
            weir_resp_put_null(call->out, call->session->version);
    }
}

static void obey_command(struct weir_resp_call *call)
{
    if (call->command->count == 1 || arg_is(call, 1, "info")) {
        put_some(call, false);
    } else if (arg_is(call, 1, "docs")) {
        put_some(call, true);
    } else if (arg_is(call, 1, "count")) {
        weir_resp_put_int(call->out, ENTRIES);
    } else if (arg_is(call, 1, "list")) {
        weir_resp_put_array(call->out, ENTRIES);
        for (size_t i = 0; i < ENTRIES; i++)
            weir_resp_put_bulk(call->out, weir_str_of(entries[i].name));
    } else {
        weir_resp_put_error_about(call->out, WEIR_STR("ERR unknown subcommand '"),
                                  call->command->args[1], WEIR_STR("'."));
    }
}

/* ---- any of them ---- */

/* A browser that was lured into talking to us says POST and Host: it is not a client. */
static bool is_http(struct weir_str name)
{
    return weir_resp_is(name, "post") || weir_resp_is(name, "host:");
}

void weir_resp_obey(struct weir_resp_call *call)
{
    const struct weir_resp_command *command = call->command;
    struct weir_resp_session *session = call->session;
    const struct entry *entry = find(command->args[0]);
    int count = (int)command->count;
    if (entry == NULL) {
        session->is_ending = is_http(command->args[0]);
        weir_resp_put_error_about(call->out, WEIR_STR("ERR unknown command '"), command->args[0],
                                  WEIR_STR("'"));
        weir_worker_add(session->worker, WEIR_FRONT_RESP, WEIR_FRONT_COUNT_BAD, 1);
    } else if (!session->is_trusted && !entry->is_open) {
        weir_resp_put_error(call->out, WEIR_STR("NOAUTH Authentication required."));
    } else if (entry->arity > 0 ? count != entry->arity : count < -entry->arity) {
        put_arity_error(call, entry->name);
    } else {
        entry->obey(call);
    }
}
