/* fuzz_http_request.c - any request with any headers, from a trusted proxy: attributes that keep
 * their promises, or a refusal in words.
 *
 * The input is a request as HTTP has it; what lib/proto/http1 refuses is not looked at.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "proto/uri.h"
#include "serve/http_request.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static struct weir_http_options options;
static struct weir_http_peer peer;
static struct weir_http_request request; /* large */

/* Looks an attribute up and reads every byte of it. */
static struct weir_str get(const char *name)
{
    struct weir_str value = {.len = 0};
    volatile char sink;
    if (weir_http_request_attribute(&request, weir_str_of(name), &value) <= 0)
        return (struct weir_str){.ptr = NULL};
    for (size_t i = 0; i < value.len; i++)
        sink = value.ptr[i];
    (void)sink;
    return value;
}

/* A path that was normalised stays as it is when its special characters are escaped again. */
static void check_path(struct weir_str path)
{
    static char escaped[3 * WEIR_HTTP1_HEAD_MAX + 1], out[3 * WEIR_HTTP1_HEAD_MAX + 1];
    static const char hex[] = "0123456789abcdef";
    struct weir_str again, query;
    size_t used = 0;
    WEIR_ASSERT(path.len > 0);
    if (weir_str_eq(path, WEIR_STR("*")))
        return;
    WEIR_ASSERT(path.ptr[0] == '/' && !memmem(path.ptr, path.len, "//", 2));
    WEIR_ASSERT(!memmem(path.ptr, path.len, "/./", 3) && !memmem(path.ptr, path.len, "/../", 4));
    for (size_t i = 0; i < path.len; i++) {
        unsigned char c = (unsigned char)path.ptr[i];
        if (c != '%' && c != '?' && c != '#') {
            escaped[used++] = (char)c;
            continue;
        }
        escaped[used++] = '%';
        escaped[used++] = hex[c >> 4];
        escaped[used++] = hex[c & 15];
    }
    struct weir_str target = {.ptr = escaped, .len = used};
    WEIR_ASSERT(weir_uri_normalise(target, out, &again, &query) == 0);
    WEIR_ASSERT(weir_str_eq(again, path));
}

static bool on_request(void *ctx, const struct weir_http1_request *http)
{
    static const char *const names[] = {"method",  "scheme",  "host",     "user",
                                        "tier",    "page",    "header.X", "cookie.sid",
                                        "query.a", "query.a", "query.",   "other"};
    struct weir_str below = {.len = 0};
    const char *why = NULL;
    (void)ctx;
    if (weir_str_starts(http->target, WEIR_STR("/check/")))
        below = (struct weir_str){.ptr = http->target.ptr + 6, .len = http->target.len - 6};
    if (weir_http_request_read(&request, http, below, &peer, &options, &why) != 0) {
        WEIR_ASSERT(why && why[0] != '\0');
        return true;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        get(names[i]);
    WEIR_ASSERT(request.scratch_used <= sizeof(request.scratch));
    struct weir_str path = get("path"), address = get("remote_address");
    struct weir_address parsed;
    WEIR_ASSERT(address.ptr && weir_address_parse(&parsed, address));
    if (path.ptr)
        check_path(path);
    return true;
}

static void on_refuse(void *ctx, int status)
{
    (void)ctx, (void)status;
}

static void on_go_on(void *ctx)
{
    (void)ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct weir_http1_calls calls = {on_request, on_refuse, on_go_on};
    struct weir_http_settings settings = weir_http_settings_default;
    struct weir_http1 *http = NULL;
    char why[200];
    settings.user_header = "X-Remote-User";
    settings.attributes = "tier=header:X-Tier,page=query:page";
    settings.trusted_proxies = "127.0.0.1,10.0.0.0/8";
    if (weir_http_options_read(&options, &settings, why, sizeof(why)) != 0 ||
        weir_http1_new(&http, &calls, NULL) != 0)
        abort();
    weir_http_peer_read(&peer, "127.0.0.1", &options);
    (void)!weir_http1_feed(http, bytes, len);
    weir_http1_free(http);
    return 0;
}
