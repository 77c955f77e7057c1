/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire.h"

#include "net/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct weir_wire {
    int fd;
    SSL *ssl; /* NULL: plain */
};

/* ---- TLS ---- */

static bool is_given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

/* NULL, or the file that is wrong with. */
static const char *load_files(SSL_CTX *ctx, const struct weir_wire_tls *tls)
{
    if (is_given(tls->ca_path) ? SSL_CTX_load_verify_locations(ctx, tls->ca_path, NULL) != 1
                               : SSL_CTX_set_default_verify_paths(ctx) != 1)
        return is_given(tls->ca_path) ? tls->ca_path : "the system's authorities";
    if (is_given(tls->cert_path) && SSL_CTX_use_certificate_chain_file(ctx, tls->cert_path) != 1)
        return tls->cert_path;
    if (is_given(tls->key_path) &&
        (SSL_CTX_use_PrivateKey_file(ctx, tls->key_path, SSL_FILETYPE_PEM) != 1 ||
         SSL_CTX_check_private_key(ctx) != 1))
        return tls->key_path;
    return NULL;
}

/* The name that the certificate must bear: a host, or an address. */
static bool expect_name(SSL *ssl, char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

static const char *tls_error(SSL *ssl)
{
    long verdict = ssl != NULL ? SSL_get_verify_result(ssl) : X509_V_OK;
    unsigned long code = ERR_peek_error();
    if (verdict != X509_V_OK)
        return X509_verify_cert_error_string(verdict);
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    return reason != NULL ? reason : "the connection ended";
}

static int begin_tls(struct weir_wire *wire, const char *address, const struct weir_wire_tls *tls,
                     char *why, size_t why_len)
{
    char host[WEIR_ADDRESS_HOST_LEN_MAX + 1] = "";
    const char *port, *wrong = NULL;
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (ctx == NULL)
        return WEIR_ERR_NOMEM;
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    wrong = load_files(ctx, tls);
    if (wrong == NULL)
        wire->ssl = SSL_new(ctx); /* it keeps the context */
    bool is_named = wire->ssl != NULL && weir_address_split(address, host, &port) &&
                    expect_name(wire->ssl, host);
    if (is_named && SSL_set_fd(wire->ssl, wire->fd) == 1 && SSL_connect(wire->ssl) == 1) {
        SSL_CTX_free(ctx);
        return 0;
    }
    snprintf(why, why_len, "%s: TLS: %s", wrong != NULL ? wrong : address, tls_error(wire->ssl));
    SSL_CTX_free(ctx);
    return WEIR_ERR_IO;
}

/* ---- the wire ---- */

int weir_wire_open(struct weir_wire **out, const char *address, uint32_t timeout_ms,
                   const struct weir_wire_tls *tls, char *why, size_t why_len)
{
    struct weir_wire *wire = calloc(1, sizeof(*wire));
    if (wire == NULL) {
        snprintf(why, why_len, "%s", weir_strerror(WEIR_ERR_NOMEM));
        return WEIR_ERR_NOMEM;
    }
    wire->fd = -1;
    int err = weir_dial(&wire->fd, address, SOCK_STREAM, timeout_ms, why, why_len);
    if (err == 0 && tls != NULL)
        err = begin_tls(wire, address, tls, why, why_len);
    if (err != 0) {
        weir_wire_close(wire);
        return err;
    }
    *out = wire;
    return 0;
}

void weir_wire_close(struct weir_wire *wire)
{
    if (wire == NULL)
        return;
    SSL_free(wire->ssl);
    if (wire->fd >= 0)
        close(wire->fd);
    free(wire);
}

/* How many bytes were taken; 0: interrupted; negative: no more. */
static ssize_t send_some(struct weir_wire *wire, const char *at, size_t len)
{
    if (wire->ssl != NULL)
        return SSL_write(wire->ssl, at, len < INT_MAX ? (int)len : INT_MAX) > 0
                   ? (ssize_t)(len < INT_MAX ? len : INT_MAX) /* all or nothing, by default */
                   : -1;
    ssize_t sent = send(wire->fd, at, len, MSG_NOSIGNAL);
    return sent < 0 && errno == EINTR ? 0 : sent;
}

int weir_wire_send(struct weir_wire *wire, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t sent = send_some(wire, at, len);
        if (sent < 0)
            return WEIR_ERR_IO;
        at += sent;
        len -= (size_t)sent;
    }
    return 0;
}

int weir_wire_recv(struct weir_wire *wire, void *bytes, size_t len)
{
    int most = len < INT_MAX ? (int)len : INT_MAX;
    ssize_t got;
    do {
        got = wire->ssl != NULL ? SSL_read(wire->ssl, bytes, most)
                                : recv(wire->fd, bytes, (size_t)most, 0);
    } while (got < 0 && wire->ssl == NULL && errno == EINTR);
    return got > 0 ? (int)got : WEIR_ERR_IO;
}
