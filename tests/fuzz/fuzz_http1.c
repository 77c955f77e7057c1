/* fuzz_http1.c - any bytes as HTTP/1.1: however they are cut, the same requests, or a refusal.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"
#include "proto/http1.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* What was heard, as a hash over all of it: two ways of cutting must agree. */
struct heard {
    uint64_t hash;
    uint32_t requests, refusals;
};

static const struct weir_hash_key key = {1, 2};

static void hear(struct heard *heard, struct weir_str text)
{
    uint64_t both[2] = {heard->hash, weir_siphash13(&key, text.ptr ? text.ptr : "", text.len)};
    heard->hash = weir_siphash13(&key, both, sizeof(both));
}

static bool on_request(void *ctx, const struct weir_http1_request *request)
{
    struct heard *heard = ctx;
    WEIR_ASSERT(heard->refusals == 0);
    WEIR_ASSERT(request->method.len > 0 && request->target.len > 0);
    WEIR_ASSERT(request->target.len <= WEIR_HTTP1_TARGET_MAX);
    WEIR_ASSERT(request->header_count <= WEIR_HTTP1_HEADERS_MAX);
    WEIR_ASSERT(request->body.len <= WEIR_HTTP1_BODY_MAX);
    hear(heard, request->method);
    hear(heard, request->target);
    hear(heard, request->body);
    for (uint32_t i = 0; i < request->header_count; i++) {
        const struct weir_http1_header *header = &request->headers[i];
        WEIR_ASSERT(header->name.len > 0 && !memchr(header->name.ptr, ' ', header->name.len));
        WEIR_ASSERT(header->value.len == 0 || !memchr(header->value.ptr, '\n', header->value.len));
        hear(heard, header->name);
        hear(heard, header->value);
    }
    heard->requests++;
    return true;
}

static void on_refuse(void *ctx, int status)
{
    struct heard *heard = ctx;
    WEIR_ASSERT(status >= 400 && status < 600);
    heard->refusals++; /* where two things are wrong, cuts may decide which is seen first */
}

static void on_go_on(void *ctx)
{
    (void)ctx; /* whether it is said depends on what has come, and so on the cuts */
}

static const struct weir_http1_calls calls = {on_request, on_refuse, on_go_on};

/* Feeds pieces of these lengths, by turns, each in memory of its own. */
static struct heard feed(const uint8_t *bytes, size_t len, size_t one, size_t other)
{
    struct heard heard = {0};
    struct weir_http1 *http = NULL;
    if (weir_http1_new(&http, &calls, &heard) != 0)
        abort();
    for (size_t turn = 0; len > 0; turn++) {
        size_t piece = turn & 1 ? other : one;
        piece = piece < len ? piece : len;
        uint8_t *copy = malloc(piece);
        WEIR_ASSERT(copy);
        memcpy(copy, bytes, piece);
        if (weir_http1_feed(http, copy, piece) != 0)
            len = piece; /* the connection ends */
        free(copy);
        bytes += piece;
        len -= piece;
    }
    weir_http1_free(http);
    WEIR_ASSERT(heard.refusals <= 1);
    return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct heard whole = feed(bytes, len, len, len);
    static const size_t cuts[][2] = {{1, 1}, {3, 7}, {16, 1}, {100, 1}};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        struct heard other = feed(bytes, len, cuts[i][0], cuts[i][1]);
        WEIR_ASSERT(other.hash == whole.hash && other.requests == whole.requests);
        WEIR_ASSERT(other.refusals == whole.refusals);
    }
    return 0;
}
