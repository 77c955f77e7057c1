/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire.h"

#include "net/internal.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct weir_wire {
    int fd;
    SSL *ssl; /* NULL: plain */
};

/* ---- TLS ---- */

static const char *tls_error(SSL *ssl)
{
    long verdict = ssl != NULL ? SSL_get_verify_result(ssl) : X509_V_OK;
    unsigned long code = ERR_peek_error();
    if (verdict != X509_V_OK)
        return X509_verify_cert_error_string(verdict);
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    return reason != NULL ? reason : "the connection ended";
}

static int begin_tls(struct weir_wire *wire, const char *address, struct weir_tls *tls, char *why,
                     size_t why_len)
{
    char host[WEIR_ADDRESS_HOST_LEN_MAX + 1] = "";
    const char *port;
    ERR_clear_error();
    if (weir_address_split(address, host, &port))
        wire->ssl = weir_tls_client_ssl(tls, host);
    if (wire->ssl != NULL && SSL_set_fd(wire->ssl, wire->fd) == 1 && SSL_connect(wire->ssl) == 1)
        return 0;
    snprintf(why, why_len, "%s: TLS: %s", address, tls_error(wire->ssl));
    return WEIR_ERR_IO;
}

/* ---- the wire ---- */

int weir_wire_open(struct weir_wire **out, const char *address, uint32_t timeout_ms,
                   struct weir_tls *tls, char *why, size_t why_len)
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
        return SSL_write(wire->ssl, at, len < INT_MAX ? (int)len : INT_MAX);
    ssize_t sent = send(wire->fd, at, len, MSG_NOSIGNAL);
    return sent < 0 && errno == EINTR ? 0 : sent;
}

int weir_wire_send(struct weir_wire *wire, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t sent = send_some(wire, at, len);
        if (sent < 0 || (sent == 0 && wire->ssl != NULL))
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
