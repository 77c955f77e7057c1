/* identity_rig.h - keys and certificates, made for a test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_IDENTITY_RIG_H
#define WEIR_TESTS_IDENTITY_RIG_H

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

struct identity {
    EVP_PKEY *key;
    X509 *cert;
};

static inline void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(extension);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
}

/* A certificate for these names ("DNS:a,IP:::1"), signed by the issuer; by itself, and an
 * authority, if NULL. */
static inline struct identity make_identity_of(const char *name, const char *names,
                                               const struct identity *issuer)
{
    static long serial = 1;
    struct identity made = {.key = EVP_EC_gen("P-256"), .cert = X509_new()};
    assert_non_null(made.key);
    assert_non_null(made.cert);
    const struct identity *by = issuer != NULL ? issuer : &made;
    X509_set_version(made.cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.cert), 3600);
    X509_set_pubkey(made.cert, made.key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(made.cert, X509_get_subject_name(by->cert));
    add_extension(made.cert, by->cert, NID_basic_constraints,
                  issuer == NULL ? "critical,CA:TRUE" : "CA:FALSE");
    add_extension(made.cert, by->cert, NID_subject_alt_name, names);
    assert_true(X509_sign(made.cert, by->key, EVP_sha256()) > 0);
    return made;
}

static inline struct identity make_identity(const char *name, const struct identity *issuer)
{
    char names[64];
    snprintf(names, sizeof(names), "DNS:%s", name);
    return make_identity_of(name, names, issuer);
}

static inline void free_identity(struct identity *identity)
{
    EVP_PKEY_free(identity->key);
    X509_free(identity->cert);
}

static inline void write_identity(const struct identity *identity, const char *cert_path,
                                  const char *key_path)
{
    FILE *file = fopen(cert_path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, identity->cert), 1);
    fclose(file);
    if (key_path == NULL)
        return;
    file = fopen(key_path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, identity->key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

#endif
