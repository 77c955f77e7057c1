/* tls_flow.c - TLS between a socket and what is above it, without copies of its own.
 *
 * OpenSSL's memory BIOs keep what they once grew to, for as long as the connection lives.  Ours has
 * no memory: it reads from the bytes that are being fed, and writes to the flow's output.
 *
 *     socket --> loop->input --[ BIO, SSL_read ]--> whoever reads
 *     socket <-- flow->out   <-[ BIO, SSL_write ]-- flow->plain
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <string.h>

static int bio_read(BIO *bio, char *to, int len)
{
    struct flow *flow = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (flow->cipher_len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = flow->cipher_len < (size_t)len ? flow->cipher_len : (size_t)len;
    memcpy(to, flow->cipher, n);
    flow->cipher += n;
    flow->cipher_len -= n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *from, int len)
{
    struct flow *flow = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    flow->out = weir_outbuf_append(flow->loop, flow->out, from, (size_t)len);
    return flow->out != NULL ? len : -1;
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

int weir_flow_begin(struct flow *flow, SSL *ssl)
{
    uv_once(&method_once, make_method);
    BIO *bio = method != NULL ? BIO_new(method) : NULL;
    if (bio == NULL || ssl == NULL) {
        BIO_free(bio);
        SSL_free(ssl);
        return WEIR_ERR_NOMEM;
    }
    BIO_set_data(bio, flow);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    flow->ssl = ssl;
    return 0;
}

void weir_flow_end(struct flow *flow)
{
    weir_outbuf_release(flow->loop, flow->out);
    weir_outbuf_release(flow->loop, flow->plain);
    SSL_free(flow->ssl);
}

int weir_flow_read(struct flow *flow)
{
    ERR_clear_error();
    int got = SSL_read(flow->ssl, flow->loop->plain, PLAIN_LEN);
    if (got > 0)
        return got;
    switch (SSL_get_error(flow->ssl, got)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return FLOW_ENDED;
    default:
        return FLOW_BROKEN;
    }
}

const char *weir_flow_why(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code != 0 ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return why;
}

bool weir_flow_encrypt(struct flow *flow)
{
    size_t done = 0;
    if (flow->plain == NULL || !SSL_is_init_finished(flow->ssl))
        return true;
    while (done < flow->plain->len) {
        size_t left = flow->plain->len - done;
        ERR_clear_error();
        int wrote =
            SSL_write(flow->ssl, flow->plain->bytes + done, left > INT_MAX ? INT_MAX : (int)left);
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    bool is_done = done == flow->plain->len;
    ERR_clear_error();
    weir_outbuf_release(flow->loop, flow->plain);
    flow->plain = NULL;
    return is_done;
}
