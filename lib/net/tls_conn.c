/* tls_conn.c - TLS between a socket and a protocol, without copies of its own.
 *
 * OpenSSL's memory BIOs keep what they once grew to, for as long as the connection lives.  Ours has
 * no memory: it reads from the bytes that are being fed, and writes to the connection's output.
 *
 *     socket --> loop->input --[ BIO, SSL_read ]--> loop->plain --> protocol->feed()
 *     socket <-- conn->out   <-[ BIO, SSL_write ]-- conn->plain <-- weir_conn_send()
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <string.h>

static int bio_read(BIO *bio, char *to, int len)
{
    struct weir_conn *conn = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (conn->cipher_len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = conn->cipher_len < (size_t)len ? conn->cipher_len : (size_t)len;
    memcpy(to, conn->cipher, n);
    conn->cipher += n;
    conn->cipher_len -= n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *from, int len)
{
    struct weir_conn *conn = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    conn->out = weir_outbuf_append(conn->side->loop, conn->out, from, (size_t)len);
    return conn->out != NULL ? len : -1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *ptr)
{
    (void)bio;
    (void)number;
    (void)ptr;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *method;
static uv_once_t method_once = UV_ONCE_INIT;

/* layer: the one thing made at run time for all threads: OpenSSL has no way to declare it const. */
static void make_method(void)
{
    method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "weir connection");
    if (method == NULL)
        return;
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_ctrl(method, bio_ctrl);
}

int weir_tls_begin(struct weir_conn *conn)
{
    uv_once(&method_once, make_method);
    BIO *bio = method != NULL ? BIO_new(method) : NULL;
    SSL *ssl = weir_tls_ssl(conn->side->listener->tls);
    if (bio == NULL || ssl == NULL) {
        BIO_free(bio);
        SSL_free(ssl);
        return WEIR_ERR_NOMEM;
    }
    BIO_set_data(bio, conn);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    conn->ssl = ssl;
    return 0;
}

static void fail(struct weir_conn *conn)
{
    unsigned long code = ERR_peek_last_error();
    /* The alert that says why is in conn->out already; nothing else can be said any more. */
    conn->is_finishing = conn->is_finished = true;
    weir_outbuf_release(conn->side->loop, conn->plain);
    conn->plain = NULL;
    weir_listener_tell(conn->side->listener, WEIR_NET_TLS, conn->peer,
                       code != 0 ? ERR_reason_error_string(code) : NULL);
    ERR_clear_error();
}

void weir_tls_feed(struct weir_conn *conn, const uint8_t *bytes, size_t len)
{
    struct weir_loop *loop = conn->side->loop;
    conn->cipher = bytes;
    conn->cipher_len = len;
    for (;;) {
        ERR_clear_error();
        int got = SSL_read(conn->ssl, loop->plain, PLAIN_LEN);
        if (got > 0) {
            weir_conn_feed(conn, loop->plain, (size_t)got);
            continue;
        }
        int what = SSL_get_error(conn->ssl, got);
        if (what == SSL_ERROR_ZERO_RETURN)
            conn->is_finishing = true;
        else if (what != SSL_ERROR_WANT_READ)
            fail(conn);
        break;
    }
    conn->cipher = NULL;
    conn->cipher_len = 0;
}

void weir_tls_encrypt(struct weir_conn *conn)
{
    struct weir_loop *loop = conn->side->loop;
    size_t done = 0;
    if (conn->plain == NULL || !SSL_is_init_finished(conn->ssl))
        return;
    while (done < conn->plain->len) {
        size_t left = conn->plain->len - done;
        ERR_clear_error();
        int wrote =
            SSL_write(conn->ssl, conn->plain->bytes + done, left > INT_MAX ? INT_MAX : (int)left);
        if (wrote <= 0) {
            conn->is_doomed = true;
            ERR_clear_error();
            break;
        }
        done += (size_t)wrote;
    }
    weir_outbuf_release(loop, conn->plain);
    conn->plain = NULL;
}

void weir_tls_goodbye(struct weir_conn *conn)
{
    if (!SSL_is_init_finished(conn->ssl) || (SSL_get_shutdown(conn->ssl) & SSL_SENT_SHUTDOWN) != 0)
        return;
    ERR_clear_error();
    SSL_shutdown(conn->ssl); /* one way is enough: the socket is shut next */
    ERR_clear_error();
}
