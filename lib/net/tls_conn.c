/* tls_conn.c - a client's connection, decrypted for its protocol.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <openssl/err.h>

int weir_tls_begin(struct weir_conn *conn)
{
    int err = weir_flow_begin(&conn->flow, weir_tls_ssl(conn->side->listener->tls));
    if (err == 0)
        SSL_set_accept_state(conn->flow.ssl);
    return err;
}

static void fail(struct weir_conn *conn)
{
    /* The alert that says why is in the output already; nothing else can be said any more. */
    conn->is_finishing = conn->is_finished = true;
    weir_outbuf_release(conn->flow.loop, conn->flow.plain);
    conn->flow.plain = NULL;
    weir_listener_tell(conn->side->listener, WEIR_NET_TLS, conn->peer, weir_flow_why());
}

void weir_tls_feed(struct weir_conn *conn, const uint8_t *bytes, size_t len)
{
    int got;
    conn->flow.cipher = bytes;
    conn->flow.cipher_len = len;
    while ((got = weir_flow_read(&conn->flow)) > 0)
        weir_conn_feed(conn, conn->flow.loop->plain, (size_t)got);
    if (got == FLOW_ENDED)
        conn->is_finishing = true;
    else if (got == FLOW_BROKEN)
        fail(conn);
    conn->flow.cipher = NULL;
    conn->flow.cipher_len = 0;
}

void weir_tls_encrypt(struct weir_conn *conn)
{
    if (!weir_flow_encrypt(&conn->flow))
        conn->is_doomed = true;
}

void weir_tls_goodbye(struct weir_conn *conn)
{
    SSL *ssl = conn->flow.ssl;
    if (!SSL_is_init_finished(ssl) || (SSL_get_shutdown(ssl) & SSL_SENT_SHUTDOWN) != 0)
        return;
    ERR_clear_error();
    SSL_shutdown(ssl); /* one way is enough: the socket is shut next */
    ERR_clear_error();
}
