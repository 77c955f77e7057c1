/* tls.c - certificates: read, watched, and exchanged below running connections.
 *
 * A reload makes a whole new SSL_CTX and then swaps a pointer.  Connections that exist keep the old
 * one, which dies with the last of them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES 3 /* certificate, key, authorities of the other side */

/* What tells one version of a file from another. */
struct look {
    uint64_t device, inode, size, changed_ns;
};

struct weir_tls {
    char *paths[FILES];
    char *client_san;
    bool is_client;
    bool offers_h2;
    uv_mutex_t mutex; /* around ctx: taken once for each new connection */
    SSL_CTX *ctx;
    struct look looks[FILES]; /* of the thread that reloads */
};

static void look_at(const char *path, struct look *out)
{
    struct stat is;
    *out = (struct look){0};
    if (path == NULL || stat(path, &is) != 0)
        return;
    *out = (struct look){
        .device = is.st_dev,
        .inode = is.st_ino,
        .size = (uint64_t)is.st_size,
        .changed_ns = (uint64_t)is.st_mtim.tv_sec * 1000000000 + (uint64_t)is.st_mtim.tv_nsec,
    };
}

static int complain(const char *path, const char *what, char *why, size_t why_len)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    snprintf(why, why_len, "%s: %s%s%s", path, what, reason != NULL ? ": " : "",
             reason != NULL ? reason : "");
    ERR_clear_error();
    return WEIR_ERR_IO;
}

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *offered, unsigned offered_len, void *arg)
{
    const struct weir_tls *tls = arg;
    static const unsigned char h2[] = "\x02h2", http1[] = "\x08http/1.1";
    const unsigned char *ours = tls->offers_h2 ? h2 : http1;
    unsigned ours_len = (tls->offers_h2 ? sizeof(h2) : sizeof(http1)) - 1;
    unsigned char *chosen;
    (void)ssl;
    if (SSL_select_next_proto(&chosen, out_len, ours, ours_len, offered, offered_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int require_client(SSL_CTX *ctx, const struct weir_tls *tls, char *why, size_t why_len)
{
    const char *ca = tls->paths[2];
    if (SSL_CTX_load_verify_file(ctx, ca) != 1)
        return complain(ca, "no certificates of authorities", why, why_len);
    SSL_CTX_set_client_CA_list(ctx, SSL_load_client_CA_file(ca));
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (tls->client_san != NULL) {
        X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);
        X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                                   X509_CHECK_FLAG_NO_WILDCARDS);
        if (X509_VERIFY_PARAM_set1_host(param, tls->client_san, 0) != 1)
            return complain(tls->client_san, "not a name for a client", why, why_len);
    }
    return 0;
}

static int use_own(SSL_CTX *ctx, const struct weir_tls *tls, char *why, size_t why_len)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, tls->paths[0]) != 1)
        return complain(tls->paths[0], "no certificate", why, why_len);
    if (SSL_CTX_use_PrivateKey_file(ctx, tls->paths[1], SSL_FILETYPE_PEM) != 1)
        return complain(tls->paths[1], "no private key", why, why_len);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return complain(tls->paths[1], "not the certificate's key", why, why_len);
    return 0;
}

static int set_up_server(SSL_CTX *ctx, struct weir_tls *tls, char *why, size_t why_len)
{
    static const unsigned char session_id[] = "weir";
    SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, tls);
    SSL_CTX_set_session_id_context(ctx, session_id, sizeof(session_id) - 1);
    int err = use_own(ctx, tls, why, why_len);
    return err == 0 && tls->paths[2] != NULL ? require_client(ctx, tls, why, why_len) : err;
}

static int set_up_client(SSL_CTX *ctx, const struct weir_tls *tls, char *why, size_t why_len)
{
    const char *ca = tls->paths[2];
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (ca != NULL && SSL_CTX_load_verify_file(ctx, ca) != 1)
        return complain(ca, "no certificates of authorities", why, why_len);
    if (ca == NULL && SSL_CTX_set_default_verify_paths(ctx) != 1)
        return complain("TLS", "no certificates of authorities", why, why_len);
    return tls->paths[0] != NULL ? use_own(ctx, tls, why, why_len) : 0;
}

static int build(SSL_CTX **out, struct weir_tls *tls, char *why, size_t why_len)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(tls->is_client ? TLS_client_method() : TLS_server_method());
    if (ctx == NULL)
        return complain("TLS", "out of memory", why, why_len);
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE);
    int err = tls->is_client ? set_up_client(ctx, tls, why, why_len)
                             : set_up_server(ctx, tls, why, why_len);
    if (err != 0) {
        SSL_CTX_free(ctx);
        return err;
    }
    *out = ctx;
    return 0;
}

int weir_tls_reload(struct weir_tls *tls, char *why, size_t why_len)
{
    SSL_CTX *ctx = NULL, *old;
    /* Looked at before they are read: what changes meanwhile is then read again. */
    for (int i = 0; i < FILES; i++)
        look_at(tls->paths[i], &tls->looks[i]);
    int err = build(&ctx, tls, why, why_len);
    if (err != 0)
        return err;
    uv_mutex_lock(&tls->mutex);
    old = tls->ctx;
    tls->ctx = ctx;
    uv_mutex_unlock(&tls->mutex);
    SSL_CTX_free(old);
    return 0;
}

bool weir_tls_has_changed(const struct weir_tls *tls)
{
    for (int i = 0; i < FILES; i++) {
        struct look now;
        look_at(tls->paths[i], &now);
        if (memcmp(&now, &tls->looks[i], sizeof(now)) != 0)
            return true;
    }
    return false;
}

SSL *weir_tls_ssl(struct weir_tls *tls)
{
    uv_mutex_lock(&tls->mutex);
    SSL *ssl = SSL_new(tls->ctx); /* keeps the ctx alive by itself */
    uv_mutex_unlock(&tls->mutex);
    return ssl;
}

SSL *weir_tls_client_ssl(struct weir_tls *tls, const char *host)
{
    SSL *ssl = weir_tls_ssl(tls);
    if (ssl == NULL)
        return NULL;
    /* An address in digits is no name: it is not sent, and compared as what it is.  The library's
     * macro for a name drops its const. */
    bool is_set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1 ||
                  (SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                            (void *)(uintptr_t)host) == 1 &&
                   SSL_set1_host(ssl, host) == 1);
    if (!is_set) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}

static bool copy(char **to, const char *from)
{
    if (from == NULL || from[0] == '\0')
        return true;
    *to = strdup(from);
    return *to != NULL;
}

/* Paths of certificate, key and authorities; NULL or empty: none. */
static int create(struct weir_tls **out, const struct weir_tls *like,
                  const char *const paths[static FILES], char *why, size_t why_len)
{
    struct weir_tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL || uv_mutex_init(&tls->mutex) != 0) {
        free(tls);
        snprintf(why, why_len, "out of memory");
        return WEIR_ERR_NOMEM;
    }
    int err = 0;
    tls->is_client = like->is_client;
    tls->offers_h2 = like->offers_h2;
    for (int i = 0; i < FILES; i++)
        err = copy(&tls->paths[i], paths[i]) ? err : WEIR_ERR_NOMEM;
    if (err != 0 || !copy(&tls->client_san, like->client_san)) {
        snprintf(why, why_len, "out of memory");
        err = WEIR_ERR_NOMEM;
    } else if ((tls->paths[0] == NULL) != (tls->paths[1] == NULL) ||
               (tls->paths[0] == NULL && !tls->is_client)) {
        snprintf(why, why_len, "TLS needs a certificate and a key");
        err = WEIR_ERR_INVALID;
    } else {
        err = weir_tls_reload(tls, why, why_len);
    }
    if (err != 0) {
        weir_tls_free(tls);
        return err;
    }
    *out = tls;
    return 0;
}

int weir_tls_new(struct weir_tls **out, const struct weir_tls_options *options, char *why,
                 size_t why_len)
{
    const struct weir_tls like = {.offers_h2 = options->offer_h2,
                                  .client_san = (char *)(uintptr_t)options->client_san};
    const char *paths[FILES] = {options->cert_path, options->key_path, options->client_ca_path};
    return create(out, &like, paths, why, why_len);
}

int weir_tls_client_new(struct weir_tls **out, const struct weir_tls_client_options *options,
                        char *why, size_t why_len)
{
    const struct weir_tls like = {.is_client = true};
    const char *paths[FILES] = {options->cert_path, options->key_path, options->ca_path};
    return create(out, &like, paths, why, why_len);
}

void weir_tls_free(struct weir_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->ctx);
    uv_mutex_destroy(&tls->mutex);
    for (int i = 0; i < FILES; i++)
        free(tls->paths[i]);
    free(tls->client_san);
    free(tls);
}
