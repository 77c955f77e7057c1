/* redis_link_urls.c - a link to Redis by every kind of address: names, users, databases, TLS,
 * shards.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "link_rig.h"

#include "../unit/identity_rig.h"

static struct redis_rig redis;
static struct link_rig rig;
static char port[8];

static void start(const char *const *args)
{
    redis_rig_start_with(&redis, args);
}

/* Whether calls by this address are answered: at once, or never. */
static void expect(const char *host, const char *database, struct weir_tls *tls, bool is_let_in)
{
    char url[256];
    snprintf(url, sizeof(url), "%s:%s%s", host, port, database);
    link_rig_start(&rig, &(const struct weir_redis_link_options){.url = url, .tls = tls});
    if (is_let_in)
        (void)link_rig_recover(&rig, put_hit);
    else
        link_rig_lose(&rig, put_hit);
    for (int i = 0; i < 5; i++) {
        struct link_tally got = link_rig_call(&rig, put_hit, 10);
        assert_int_equal(is_let_in ? got.good : got.away, 10);
    }
    link_rig_stop(&rig);
}

static void names_and_numbers_are_found(void **state)
{
    (void)state;
    start((const char *const[]){"--port", redis_rig_port(port), "--bind", "127.0.0.1", NULL});
    expect("redis://127.0.0.1", "", NULL, true);
    expect("redis://localhost", "", NULL, true); /* where ::1 comes first, it refuses */
    expect("redis://[::1]", "", NULL, false);
    expect("redis://no-such-host.invalid", "", NULL, false);
    redis_rig_stop(&redis);
}

static void users_need_their_password(void **state)
{
    (void)state;
    start((const char *const[]){"--port", redis_rig_port(port), NULL});
    redis_rig_do(&redis, "ACL SETUSER limiter on >p@ss:w/rd ~weir:* ~hit:* +@all");
    redis_rig_do(&redis, "ACL SETUSER default >secret");
    expect("redis://:secret@127.0.0.1", "", NULL, true);
    expect("redis://secret@127.0.0.1", "", NULL, true);
    expect("redis://limiter:p%40ss%3Aw%2Frd@127.0.0.1", "", NULL, true);
    expect("redis://limiter:wrong@127.0.0.1", "", NULL, false);
    expect("redis://127.0.0.1", "", NULL, false);
    redis_rig_stop(&redis);
}

static void databases_are_apart(void **state)
{
    (void)state;
    start((const char *const[]){"--port", redis_rig_port(port), NULL});
    expect("redis://127.0.0.1", "/3", NULL, true);
    redis_rig_do(&redis, "DBSIZE");
    assert_int_equal(redis.nodes[0].number, 0);
    redis_rig_do(&redis, "SELECT 3");
    redis_rig_do(&redis, "DBSIZE");
    assert_int_equal(redis.nodes[0].number, 10);
    expect("redis://127.0.0.1", "/16", NULL, false); /* there are 16, from 0 */
    redis_rig_stop(&redis);
}

/* ---- TLS ---- */

struct files {
    char folder[32], cert[64], key[64], ca[64], own_cert[64], own_key[64], other_ca[64];
    struct identity authority, server, client, stranger;
};

static void make_files(struct files *f, const char *names)
{
    snprintf(f->folder, sizeof(f->folder), "/tmp/weir-link-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->cert, sizeof(f->cert), "%s/cert.pem", f->folder);
    snprintf(f->key, sizeof(f->key), "%s/key.pem", f->folder);
    snprintf(f->ca, sizeof(f->ca), "%s/ca.pem", f->folder);
    snprintf(f->own_cert, sizeof(f->own_cert), "%s/own-cert.pem", f->folder);
    snprintf(f->own_key, sizeof(f->own_key), "%s/own-key.pem", f->folder);
    snprintf(f->other_ca, sizeof(f->other_ca), "%s/other.pem", f->folder);
    f->authority = make_identity("authority", NULL);
    f->server = make_identity_of("redis", names, &f->authority);
    f->client = make_identity("limiter", &f->authority);
    f->stranger = make_identity("stranger", NULL);
    write_identity(&f->server, f->cert, f->key);
    write_identity(&f->authority, f->ca, NULL);
    write_identity(&f->client, f->own_cert, f->own_key);
    write_identity(&f->stranger, f->other_ca, NULL);
}

static void remove_files(struct files *f)
{
    const char *const paths[] = {f->cert, f->key, f->ca, f->own_cert, f->own_key, f->other_ca};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(unlink(paths[i]), 0);
    assert_int_equal(rmdir(f->folder), 0);
    free_identity(&f->authority);
    free_identity(&f->server);
    free_identity(&f->client);
    free_identity(&f->stranger);
}

static struct weir_tls *client_of(const struct weir_tls_client_options *options)
{
    struct weir_tls *tls;
    char why[256] = "";
    if (weir_tls_client_new(&tls, options, why, sizeof(why)) != 0)
        fail_msg("%s", why);
    return tls;
}

static void expect_tls(const struct weir_tls_client_options *options, const char *host,
                       bool is_let_in)
{
    struct weir_tls *tls = client_of(options);
    expect(host, "", tls, is_let_in);
    weir_tls_free(tls);
}

static void start_tls(const struct files *f, const char *wants_clients)
{
    start((const char *const[]){"--tls-port", redis_rig_port(port), "--tls-cert-file", f->cert,
                                "--tls-key-file", f->key, "--tls-ca-cert-file", f->ca,
                                "--tls-auth-clients", wants_clients, NULL});
}

static void tls_trusts_who_should_be_trusted(void **state)
{
    struct files f;
    (void)state;
    make_files(&f, "DNS:localhost");
    start_tls(&f, "no");
    const struct weir_tls_client_options right = {.ca_path = f.ca};
    expect_tls(&right, "rediss://localhost", true);
    expect_tls(&right, "redis://localhost", false);
    expect_tls(&right, "rediss://127.0.0.1", false); /* the certificate bears another name */
    expect_tls(&(const struct weir_tls_client_options){.ca_path = f.other_ca}, "rediss://localhost",
               false);
    expect_tls(&(const struct weir_tls_client_options){0}, "rediss://localhost", false);
    redis_rig_stop(&redis);
    remove_files(&f);
}

static void tls_shows_who_we_are(void **state)
{
    struct files f;
    (void)state;
    make_files(&f, "IP:127.0.0.1");
    start_tls(&f, "yes");
    expect_tls(&(const struct weir_tls_client_options){.ca_path = f.ca,
                                                       .cert_path = f.own_cert,
                                                       .key_path = f.own_key},
               "rediss://127.0.0.1", true);
    expect_tls(&(const struct weir_tls_client_options){.ca_path = f.ca}, "rediss://127.0.0.1",
               false);
    redis_rig_stop(&redis);
    remove_files(&f);
}

/* Much at once, both ways; and connections that break amid it. */
static void tls_carries_as_much_as_plain(void **state)
{
    struct files f;
    char url[64];
    (void)state;
    make_files(&f, "IP:127.0.0.1");
    start_tls(&f, "no");
    struct weir_tls *tls = client_of(&(const struct weir_tls_client_options){.ca_path = f.ca});
    snprintf(url, sizeof(url), "rediss://127.0.0.1:%s", port);
    link_rig_start(&rig, &(const struct weir_redis_link_options){
                             .url = url, .tls = tls, .deadline_ms = LINK_RIG_PATIENT_MS});
    (void)link_rig_recover(&rig, put_count);
    for (int round = 0; round < 10; round++) {
        (void)link_rig_recover(&rig, put_count);
        assert_int_equal(link_rig_call(&rig, put_echo, 5000).good, 5000);
        for (uint32_t i = 0; i < 5000; i++)
            assert_int_equal(rig.calls[i].value, i);
        rig.all = (struct link_tally){0};
        redis_rig_do(&redis, "FLUSHALL");
        link_rig_begin(&rig, put_count, LINK_RIG_CALLS_MAX);
        redis_rig_do(&redis, "CLIENT KILL TYPE normal SKIPME yes");
        (void)link_rig_end(&rig);
        uint64_t done = 0;
        for (int i = 0; i < 16; i++) {
            char words[32];
            snprintf(words, sizeof(words), "INCRBY key:%d 0", i);
            redis_rig_do(&redis, words);
            done += (uint64_t)redis.nodes[0].number;
        }
        assert_in_range(done, rig.all.good, rig.all.good + rig.all.late);
    }
    link_rig_stop(&rig);
    weir_tls_free(tls);
    redis_rig_stop(&redis);
    remove_files(&f);
}

/* ---- shards ---- */

#define SHARDS 3

static uint64_t keys_of(struct redis_rig *shard)
{
    redis_rig_do(shard, "DBSIZE");
    return (uint64_t)shard->nodes[0].number;
}

static void shards_have_each_key_once(void **state)
{
    static struct redis_rig shards[SHARDS];
    char ports[SHARDS][8], url[160];
    (void)state;
    for (int i = 0; i < SHARDS; i++)
        redis_rig_start_with(&shards[i],
                             (const char *const[]){"--port", redis_rig_port(ports[i]), NULL});
    snprintf(url, sizeof(url), "redis-shards://127.0.0.1:%s,127.0.0.1:%s,127.0.0.1:%s", ports[0],
             ports[1], ports[2]);
    link_rig_start(&rig, &(const struct weir_redis_link_options){
                             .url = url, .deadline_ms = LINK_RIG_PATIENT_MS});
    rig.keys = 3000;
    (void)link_rig_recover(&rig, put_count);
    for (int i = 0; i < SHARDS; i++)
        redis_rig_do(&shards[i], "FLUSHALL");
    for (int round = 1; round <= 3; round++) {
        assert_int_equal(link_rig_call(&rig, put_count, 3000).good, 3000);
        for (uint32_t i = 0; i < 3000; i++)
            assert_int_equal(rig.calls[i].value, round);
    }
    uint64_t all = 0, gone = keys_of(&shards[1]);
    for (int i = 0; i < SHARDS; i++) {
        assert_in_range(keys_of(&shards[i]), 600, 1400);
        all += keys_of(&shards[i]);
    }
    assert_int_equal(all, 3000);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
    /* One is gone: its keys are, and no other. */
    redis_rig_kill(&shards[1]);
    (void)link_rig_until(&rig, put_count, 3000, 3000 - gone);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_PARTLY);
    assert_int_equal(weir_redis_link_count(rig.link, WEIR_REDIS_COUNT_SERVERS), SHARDS);
    assert_int_equal(weir_redis_link_count(rig.link, WEIR_REDIS_COUNT_SERVERS_AWAY), 1);
    redis_rig_launch(&shards[1]);
    (void)link_rig_until(&rig, put_count, 3000, 3000);
    assert_int_equal(weir_redis_link_health(rig.link), WEIR_REDIS_HEALTHY);
    link_rig_stop(&rig);
    for (int i = 0; i < SHARDS; i++)
        redis_rig_stop(&shards[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers_are_found),
        cmocka_unit_test(users_need_their_password),
        cmocka_unit_test(databases_are_apart),
        cmocka_unit_test(tls_trusts_who_should_be_trusted),
        cmocka_unit_test(tls_shows_who_we_are),
        cmocka_unit_test(tls_carries_as_much_as_plain),
        cmocka_unit_test(shards_have_each_key_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
