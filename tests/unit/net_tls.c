/* TLS and mTLS, with certificates made here; exchanged while connections live.
 * SPDX-License-Identifier: Apache-2.0 */
#include "identity_rig.h"
#include "net_rig.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

/* ---- a server with certificates in a folder, and clients ---- */

struct place {
    char dir[32], cert[64], key[64], ca[64];
    struct identity authority, server, client;
    struct weir_tls *tls;
    struct rig rig;
};

static void open_place(struct place *at, bool is_mutual, const char *client_san,
                       const struct weir_protocol *protocol)
{
    char why[256] = "";
    snprintf(at->dir, sizeof(at->dir), "/tmp/weir-tls-XXXXXX");
    assert_non_null(mkdtemp(at->dir));
    snprintf(at->cert, sizeof(at->cert), "%s/cert.pem", at->dir);
    snprintf(at->key, sizeof(at->key), "%s/key.pem", at->dir);
    snprintf(at->ca, sizeof(at->ca), "%s/ca.pem", at->dir);
    at->authority = make_identity("authority", NULL);
    at->server = make_identity("server.test", &at->authority);
    at->client = make_identity("client.test", &at->authority);
    write_identity(&at->server, at->cert, at->key);
    write_identity(&at->authority, at->ca, NULL);
    struct weir_tls_options options = {.cert_path = at->cert,
                                       .key_path = at->key,
                                       .client_ca_path = is_mutual ? at->ca : NULL,
                                       .client_san = client_san,
                                       .offer_h2 = true};
    if (weir_tls_new(&at->tls, &options, why, sizeof(why)) != 0)
        fail_msg("%s", why);
    rig_start(&at->rig, 2, &(struct weir_listen_options){.protocol = protocol, .tls = at->tls});
}

static void close_place(struct place *at)
{
    rig_stop(&at->rig, 2000);
    weir_tls_free(at->tls);
    free_identity(&at->authority);
    free_identity(&at->server);
    free_identity(&at->client);
    unlink(at->cert);
    unlink(at->key);
    unlink(at->ca);
    assert_int_equal(rmdir(at->dir), 0);
}

struct client {
    int fd;
    SSL_CTX *ctx;
    SSL *ssl;
};

static const unsigned char offer_both[] = "\x02h2\x08http/1.1";

/* Connects; as the identity, if one is given.  What SSL_connect() says. */
static int connect_tls(struct client *client, const struct place *at, const struct identity *as)
{
    client->fd = rig_client(&at->rig);
    client->ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(client->ctx);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(client->ctx), at->authority.cert);
    SSL_CTX_set_verify(client->ctx, SSL_VERIFY_PEER, NULL);
    if (as != NULL) {
        assert_int_equal(SSL_CTX_use_certificate(client->ctx, as->cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(client->ctx, as->key), 1);
    }
    client->ssl = SSL_new(client->ctx);
    assert_non_null(client->ssl);
    SSL_set1_host(client->ssl, "server.test");
    SSL_set_alpn_protos(client->ssl, offer_both, sizeof(offer_both) - 1);
    SSL_set_fd(client->ssl, client->fd);
    return SSL_connect(client->ssl);
}

static void disconnect(struct client *client)
{
    SSL_free(client->ssl);
    SSL_CTX_free(client->ctx);
    close(client->fd);
    ERR_clear_error();
}

/* With TLS 1.3 a refusal comes after the client's handshake: so it shows in the first exchange. */
static bool talks(struct client *client, const char *text)
{
    char got[64] = "";
    int len = (int)strlen(text);
    return SSL_write(client->ssl, text, len) == len &&
           SSL_read(client->ssl, got, sizeof(got) - 1) == len && strcmp(got, text) == 0;
}

/* ---- tests ---- */

static void bytes_pass_through_tls(void **state)
{
    struct place at;
    struct client client;
    const unsigned char *chosen;
    unsigned len;
    (void)state;
    open_place(&at, false, NULL, &rig_echo_protocol);
    assert_int_equal(connect_tls(&client, &at, NULL), 1);
    SSL_get0_alpn_selected(client.ssl, &chosen, &len);
    assert_int_equal(len, 2);
    assert_memory_equal(chosen, "h2", 2);
    assert_true(talks(&client, "hello"));
    assert_true(talks(&client, "again"));
    disconnect(&client);
    close_place(&at);
}

static void a_big_answer_passes_through_tls(void **state)
{
    struct place at;
    struct client client;
    size_t len = 2u << 20, got = 0;
    char *bytes = malloc(len);
    (void)state;
    assert_non_null(bytes);
    open_place(&at, false, NULL, &rig_babble_protocol);
    at.rig.answer_len = len;
    assert_int_equal(connect_tls(&client, &at, NULL), 1);
    assert_int_equal(SSL_write(client.ssl, "x", 1), 1);
    while (got < len) {
        int n = SSL_read(client.ssl, bytes + got, (int)(len - got));
        assert_true(n > 0);
        got += (size_t)n;
    }
    for (size_t i = 0; i < len; i++)
        assert_int_equal(bytes[i], 'b');
    free(bytes);
    disconnect(&client);
    close_place(&at);
}

static void the_end_is_announced(void **state)
{
    struct place at;
    struct client client;
    char byte;
    (void)state;
    open_place(&at, false, NULL, &rig_echo_protocol);
    assert_int_equal(connect_tls(&client, &at, NULL), 1);
    assert_true(talks(&client, "q"));
    int n = SSL_read(client.ssl, &byte, 1);
    assert_int_equal(SSL_get_error(client.ssl, n), SSL_ERROR_ZERO_RETURN);
    disconnect(&client);
    close_place(&at);
}

static void plain_text_to_a_tls_port_is_refused(void **state)
{
    struct place at;
    char bytes[256];
    (void)state;
    open_place(&at, false, NULL, &rig_echo_protocol);
    int fd = rig_client(&at.rig);
    rig_write(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    assert_true(rig_read(fd, bytes, sizeof(bytes)) < sizeof(bytes)); /* an alert, then the end */
    assert_int_equal(atomic_load(&at.rig.fed), 0);
    rig_await(&at.rig.events[WEIR_NET_TLS], 1);
    close(fd);
    close_place(&at);
}

static void mutual_tls_wants_a_certificate(void **state)
{
    struct place at;
    struct client client;
    (void)state;
    open_place(&at, true, NULL, &rig_echo_protocol);
    assert_false(connect_tls(&client, &at, NULL) == 1 && talks(&client, "hello"));
    disconnect(&client);
    struct identity self_made = make_identity("client.test", NULL);
    assert_false(connect_tls(&client, &at, &self_made) == 1 && talks(&client, "hello"));
    disconnect(&client);
    free_identity(&self_made);
    assert_int_equal(atomic_load(&at.rig.fed), 0);
    assert_true(connect_tls(&client, &at, &at.client) == 1 && talks(&client, "hello"));
    disconnect(&client);
    close_place(&at);
}

static void mutual_tls_may_want_a_name(void **state)
{
    struct place at;
    struct client client;
    (void)state;
    open_place(&at, true, "client.test", &rig_echo_protocol);
    struct identity other = make_identity("other.test", &at.authority);
    assert_false(connect_tls(&client, &at, &other) == 1 && talks(&client, "hello"));
    disconnect(&client);
    free_identity(&other);
    assert_true(connect_tls(&client, &at, &at.client) == 1 && talks(&client, "hello"));
    disconnect(&client);
    close_place(&at);
}

static long serial_of(const struct client *client)
{
    X509 *cert = SSL_get1_peer_certificate(client->ssl);
    assert_non_null(cert);
    long serial = ASN1_INTEGER_get(X509_get_serialNumber(cert));
    X509_free(cert);
    return serial;
}

static void certificates_are_exchanged_below_connections(void **state)
{
    struct place at;
    struct client before, after;
    char why[256];
    (void)state;
    open_place(&at, false, NULL, &rig_echo_protocol);
    assert_int_equal(connect_tls(&before, &at, NULL), 1);
    assert_true(talks(&before, "one"));
    assert_false(weir_tls_has_changed(at.tls));
    struct identity newer = make_identity("server.test", &at.authority);
    unlink(at.cert);
    unlink(at.key);
    write_identity(&newer, at.cert, at.key);
    assert_true(weir_tls_has_changed(at.tls));
    assert_int_equal(weir_tls_reload(at.tls, why, sizeof(why)), 0);
    assert_false(weir_tls_has_changed(at.tls));
    assert_int_equal(connect_tls(&after, &at, NULL), 1);
    assert_int_not_equal(serial_of(&before), serial_of(&after));
    assert_true(talks(&before, "two"));
    assert_true(talks(&after, "three"));
    disconnect(&before);
    disconnect(&after);
    free_identity(&newer);
    close_place(&at);
}

static void bad_certificates_change_nothing(void **state)
{
    struct place at;
    struct client client;
    char why[256];
    (void)state;
    open_place(&at, false, NULL, &rig_echo_protocol);
    write_identity(&at.client, at.cert, NULL); /* not the key's */
    assert_int_equal(weir_tls_reload(at.tls, why, sizeof(why)), WEIR_ERR_IO);
    assert_non_null(strstr(why, "key"));
    FILE *file = fopen(at.cert, "w");
    assert_non_null(file);
    fputs("nonsense\n", file);
    fclose(file);
    assert_int_equal(weir_tls_reload(at.tls, why, sizeof(why)), WEIR_ERR_IO);
    assert_non_null(strstr(why, at.cert));
    assert_int_equal(connect_tls(&client, &at, NULL), 1);
    assert_true(talks(&client, "hello"));
    disconnect(&client);
    close_place(&at);
}

static void missing_files_are_named(void **state)
{
    struct weir_tls *tls;
    char why[256];
    (void)state;
    struct weir_tls_options none = {0};
    assert_int_equal(weir_tls_new(&tls, &none, why, sizeof(why)), WEIR_ERR_INVALID);
    struct weir_tls_options absent = {.cert_path = "/nowhere/c.pem", .key_path = "/nowhere/k.pem"};
    assert_int_equal(weir_tls_new(&tls, &absent, why, sizeof(why)), WEIR_ERR_IO);
    assert_non_null(strstr(why, "/nowhere/c.pem"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_pass_through_tls),
        cmocka_unit_test(a_big_answer_passes_through_tls),
        cmocka_unit_test(the_end_is_announced),
        cmocka_unit_test(plain_text_to_a_tls_port_is_refused),
        cmocka_unit_test(mutual_tls_wants_a_certificate),
        cmocka_unit_test(mutual_tls_may_want_a_name),
        cmocka_unit_test(certificates_are_exchanged_below_connections),
        cmocka_unit_test(bad_certificates_change_nothing),
        cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
