/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/uri.h"
#include "serve/http_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* ---- paths ---- */

static const char *normal(const char *target)
{
    static char text[256];
    char out[256];
    struct weir_str path, query;
    if (weir_uri_normalise(weir_str_of(target), out, &path, &query) != 0)
        return "refused";
    snprintf(text, sizeof(text), "%.*s%s%.*s", WEIR_STR_ARG(path), query.ptr ? " ? " : "",
             (int)query.len, query.ptr ? query.ptr : "");
    return text;
}

static void paths_are_what_nginx_calls_the_uri(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/", "/"},
        {"/a/b", "/a/b"},
        {"/a/", "/a/"},
        {"//a///b//", "/a/b/"},
        {"/a/./b/.", "/a/b/"},
        {"/a/../b", "/b"},
        {"/a/b/..", "/a/"},
        {"/a/b/../../c", "/c"},
        {"/a//../b", "/b"},
        {"/..", "refused"},
        {"/../a", "refused"},
        {"/a/../..", "refused"},
        {"/a/...", "/a/..."},
        {"/a/..b/.c", "/a/..b/.c"},
        {"/%6cogin", "/login"},
        {"/%6Cogin", "/login"},
        {"/a%2Fb", "/a/b"},
        {"/a%2f%2fb", "/a/b"},
        {"/a/%2e%2e/b", "/b"},
        {"/a/%2e%2E%2fb", "/b"},
        {"/%2e%2e", "refused"},
        {"/a%00", "refused"},
        {"/a%", "refused"},
        {"/a%4", "refused"},
        {"/a%4g", "refused"},
        {"/a%25", "/a%"},
        {"/a%2541", "/a%41"},
        {"/a%3Fb?c", "/a?b ? c"},
        {"/a%23b#c", "/a#b"},
        {"/a?b#c", "/a ? b"},
        {"/a#b?c", "/a"},
        {"/a?", "/a ? "},
        {"/a?/../x", "/a ? /../x"},
        {"/a+b", "/a+b"},
        {"/a;x=1/b", "/a;x=1/b"},
        {"/\xc3\xa4", "/\xc3\xa4"},
        {"/%c3%a4", "/\xc3\xa4"},
        {"", "refused"},
        {"a", "refused"},
        {"?", "refused"},
        {"%2Fa", "refused"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(normal(cases[i][0]), cases[i][1]);
}

/* ---- requests ---- */

static struct weir_http_options options;
static struct weir_http_request request;
static struct weir_http1_header headers[64];
static struct weir_http1_request http;
static struct weir_http_peer peer;
static const char *why;

static void set_options(struct weir_http_settings settings)
{
    char words[200] = "";
    assert_int_equal(weir_http_options_read(&options, &settings, words, sizeof(words)), 0);
}

/* Reads a request with these headers ("Name: value", ended by NULL) as a peer sent it. */
static int read_from(const char *peer_text, const char *below, const char *const *lines)
{
    uint32_t count = 0;
    for (; lines[count]; count++) {
        const char *colon = strchr(lines[count], ':');
        assert_non_null(colon);
        headers[count].name.ptr = lines[count];
        headers[count].name.len = (size_t)(colon - lines[count]);
        headers[count].value = weir_str_of(colon + 2);
    }
    http = (struct weir_http1_request){.method = WEIR_STR("GET"),
                                       .target = WEIR_STR("/check"),
                                       .headers = headers,
                                       .header_count = count};
    why = "";
    weir_http_peer_read(&peer, peer_text, &options);
    return weir_http_request_read(&request, &http, weir_str_of(below), &peer, &options, &why);
}

#define LINES(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *get(const char *name)
{
    static char text[8192];
    struct weir_str value;
    if (weir_http_request_attribute(&request, weir_str_of(name), &value) <= 0)
        return "absent";
    snprintf(text, sizeof(text), "%.*s", WEIR_STR_ARG(value));
    return text;
}

static int setup(void **state)
{
    (void)state;
    set_options(weir_http_settings_default);
    return 0;
}

static void forwarded_headers_name_the_original_request(void **state)
{
    (void)state;
    assert_int_equal(
        read_from("127.0.0.1", "",
                  LINES("Host: weir", "x-forwarded-method: POST",
                        "X-Forwarded-Uri: /a//b?x=1&y=%41+b", "X-Forwarded-Host: Ex.Org:8443",
                        "X-Forwarded-Proto: https", "X-Forwarded-For: 192.0.2.7")),
        0);
    assert_string_equal(get("method"), "POST");
    assert_string_equal(get("path"), "/a/b");
    assert_string_equal(get("host"), "ex.org");
    assert_string_equal(get("scheme"), "https");
    assert_string_equal(get("remote_address"), "192.0.2.7");
    assert_string_equal(get("query.x"), "1");
    assert_string_equal(get("query.y"), "A b");
    assert_string_equal(get("query.y"), "A b");
    assert_string_equal(get("query.z"), "absent");
    assert_string_equal(get("user"), "absent");
    assert_string_equal(get("tenant"), "absent");
}

static void nginx_names_it_by_its_own_headers(void **state)
{
    (void)state;
    assert_int_equal(
        read_from("127.0.0.1", "",
                  LINES("Host: weir", "X-Original-URI: /a?b", "X-Original-Method: PUT")),
        0);
    assert_string_equal(get("method"), "PUT");
    assert_string_equal(get("path"), "/a");
    assert_string_equal(get("host"), "weir");
    assert_string_equal(get("scheme"), "http");
    assert_string_equal(get("remote_address"), "127.0.0.1");
    assert_int_equal(read_from("127.0.0.1", "",
                               LINES("Host: weir", "X-Original-URL: https://Ex.org./a?b",
                                     "X-Original-URI: /a?b")),
                     0);
    assert_string_equal(get("host"), "ex.org");
    assert_string_equal(get("scheme"), "https");
    assert_string_equal(get("path"), "/a");
    assert_string_equal(get("method"), "absent"); /* the question is a GET, whatever was asked */
    assert_int_equal(
        read_from("127.0.0.1", "", LINES("Host: h", "X-Original-URL: https://[::1]:8")), 0);
    assert_string_equal(get("host"), "[::1]");
    assert_string_equal(get("path"), "/");
}

static void the_request_line_names_it_below_check(void **state)
{
    (void)state;
    assert_int_equal(read_from("192.0.2.1", "/v1/x?domain=no", LINES("Host: Api.Example")), 0);
    assert_string_equal(get("path"), "/v1/x");
    assert_string_equal(get("method"), "GET");
    assert_string_equal(get("host"), "api.example");
    assert_string_equal(get("query.domain"), "no");
    assert_int_equal(read_from("127.0.0.1", "", LINES("Host: h")), 0);
    assert_string_equal(get("path"), "absent");
    assert_string_equal(get("method"), "GET");
    assert_int_equal(read_from("127.0.0.1", "/", LINES("Host: h")), 0);
    assert_string_equal(get("path"), "/");
}

static void who_is_not_trusted_is_not_believed(void **state)
{
    (void)state;
    assert_int_equal(
        read_from("192.0.2.1", "",
                  LINES("Host: h", "X-Forwarded-For: 198.51.100.1", "X-Forwarded-Uri: /a",
                        "X-Original-URI: /b", "X-Forwarded-Method: PUT", "X-Forwarded-Host: evil",
                        "X-Forwarded-Proto: https")),
        0);
    assert_string_equal(get("remote_address"), "192.0.2.1");
    assert_string_equal(get("path"), "absent");
    assert_string_equal(get("method"), "GET");
    assert_string_equal(get("host"), "h");
    assert_string_equal(get("scheme"), "http");
}

/* A client sends the header that its gateway does not set. */
static void sources_that_disagree_are_refused(void **state)
{
    (void)state;
    const char *const *const bad[] = {
        LINES("Host: h", "X-Original-URI: /login", "X-Forwarded-Uri: /harmless"),
        LINES("Host: h", "X-Original-URI: /login", "X-Original-URL: http://h/harmless"),
        LINES("Host: h", "X-Forwarded-Uri: /login", "X-Forwarded-Uri: /harmless"),
        LINES("Host: h", "X-Original-Method: PUT", "X-Forwarded-Method: GET"),
        LINES("Host: h", "X-Original-URL: nonsense"),
        LINES("Host: h", "X-Original-URL: ://h/a"),
        LINES("Host: h", "X-Original-URL: http:///a"),
        LINES("Host: h", "X-Forwarded-Uri: /%00"),
        LINES("Host: h", "X-Forwarded-Uri: "),
        LINES("Host: h", "X-Forwarded-Uri: a"),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_from("127.0.0.1", "", bad[i]), WEIR_ERR_INVALID);
        assert_true(strlen(why) > 10);
    }
    assert_int_equal(read_from("127.0.0.1", "/a", LINES("Host: h", "X-Forwarded-Uri: /b")),
                     WEIR_ERR_INVALID);
    assert_int_equal(read_from("127.0.0.1", "/", LINES("Host: h", "X-Forwarded-Uri: /b")), 0);
    assert_string_equal(get("path"), "/b");
    assert_int_equal(
        read_from("127.0.0.1", "", LINES("Host: h", "X-Forwarded-Uri: /b", "X-Original-URI: /b")),
        0);
    /* the other family's method is not believed */
    assert_int_equal(read_from("127.0.0.1", "",
                               LINES("Host: h", "X-Original-URI: /b", "X-Forwarded-Method: PUT")),
                     0);
    assert_string_equal(get("method"), "absent");
}

static void settings_say_which_source_counts(void **state)
{
    (void)state;
    struct weir_http_settings settings = weir_http_settings_default;
    const char *const *lines =
        LINES("Host: h", "X-Original-URI: /original", "X-Forwarded-Uri: /forwarded");
    settings.original_request = "original";
    set_options(settings);
    assert_int_equal(read_from("127.0.0.1", "/line", lines), 0);
    assert_string_equal(get("path"), "/original");
    settings.original_request = "forwarded";
    set_options(settings);
    assert_int_equal(read_from("127.0.0.1", "/line", lines), 0);
    assert_string_equal(get("path"), "/forwarded");
    settings.original_request = "line";
    set_options(settings);
    assert_int_equal(read_from("127.0.0.1", "/line", lines), 0);
    assert_string_equal(get("path"), "/line");
}

static const char *client(const char *peer_text, const char *first, const char *second)
{
    assert_int_equal(read_from(peer_text, "", LINES("Host: h", first, second)), 0);
    return get("remote_address");
}

static void the_client_is_the_rightmost_that_is_not_trusted(void **state)
{
    (void)state;
    struct weir_http_settings settings = weir_http_settings_default;
    settings.trusted_proxies = "10.0.0.0/8, 2001:db8::/32, 127.0.0.1, unix";
    set_options(settings);
    static const char *const cases[][4] = {
        {"10.0.0.1", "X-Forwarded-For: 1.1.1.1, 2.2.2.2", "X-A: b", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 10.9.9.9", "X-A: b", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: 1.1.1.1", "x-forwarded-for: 2.2.2.2,10.0.0.2", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: 2.2.2.2", "X-Forwarded-For: 10.0.0.2", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: 10.0.0.3,10.0.0.2", "X-A: b", "10.0.0.3"},
        {"10.0.0.1", "X-Forwarded-For: 2.2.2.2:8080", "X-A: b", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: [2001:DB9::1]:443", "X-A: b", "2001:db9::1"},
        {"10.0.0.1", "X-Forwarded-For: 2001:db9::1", "X-A: b", "2001:db9::1"},
        {"10.0.0.1", "X-Forwarded-For: ::ffff:2.2.2.2", "X-A: b", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: 2.2.2.2, 2001:db8::5", "X-A: b", "2.2.2.2"},
        {"::ffff:10.0.0.1", "X-Forwarded-For: 2.2.2.2", "X-A: b", "2.2.2.2"},
        {"10.0.0.1", "X-Forwarded-For: 2.2.2.2, nonsense", "X-A: b", "10.0.0.1"},
        {"10.0.0.1", "X-Forwarded-For: 2.2.2.2, nonsense, 10.0.0.2", "X-A: b", "10.0.0.2"},
        {"10.0.0.1", "X-Forwarded-For: ", "X-A: b", "10.0.0.1"},
        {"10.0.0.1", "X-Forwarded-For: ,", "X-A: b", "10.0.0.1"},
        {"10.0.0.1", "X-A: b", "X-B: c", "10.0.0.1"},
        {"11.0.0.1", "X-Forwarded-For: 2.2.2.2", "X-A: b", "11.0.0.1"},
        {"127.0.0.2", "X-Forwarded-For: 2.2.2.2", "X-A: b", "127.0.0.2"},
        {"unix", "X-Forwarded-For: 2.2.2.2", "X-A: b", "2.2.2.2"},
        {"unix", "X-A: b", "X-B: c", "unix"},
        {"2001:DB8:0:0::1", "X-A: b", "X-B: c", "2001:db8::1"},
        {"fe80::1%eth0", "X-A: b", "X-B: c", "fe80::1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(client(cases[i][0], cases[i][1], cases[i][2]), cases[i][3]);
}

static void trust_in_all_of_ipv6_is_none_in_ipv4(void **state)
{
    (void)state;
    struct weir_http_settings settings = weir_http_settings_default;
    settings.trusted_proxies = "::/0";
    set_options(settings);
    assert_string_equal(client("2001:db8::1", "X-Forwarded-For: 2.2.2.2", "X-A: b"), "2.2.2.2");
    assert_string_equal(client("10.0.0.1", "X-Forwarded-For: 2.2.2.2", "X-A: b"), "10.0.0.1");
}

static void headers_cookies_and_queries_are_attributes(void **state)
{
    (void)state;
    assert_int_equal(read_from("127.0.0.1", "/p?a=1&b&c=&a=2&%64=4&e=%zz&=x",
                               LINES("Host: h", "X-Api-Key: one", "X-Api-Key: two",
                                     "Cookie: sid=abc; theme=dark", "Cookie: other=x=y")),
                     0);
    static const char *const cases[][2] = {
        {"header.X-Api-Key", "one"},
        {"header.x-api-key", "one"},
        {"header.Missing", "absent"},
        {"header.", "absent"},
        {"cookie.sid", "abc"},
        {"cookie.theme", "dark"},
        {"cookie.other", "x=y"},
        {"cookie.Sid", "absent"},
        {"query.a", "1"},
        {"query.b", ""},
        {"query.c", ""},
        {"query.d", "4"},
        {"query.e", "%zz"},
        {"query.f", "absent"},
        {"query.", "absent"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(get(cases[i][0]), cases[i][1]);
    assert_false(request.has_failed);
}

static void a_user_is_believed_only_where_settings_say_so(void **state)
{
    (void)state;
    struct weir_http_settings settings = weir_http_settings_default;
    settings.user_header = "X-Remote-User";
    settings.attributes = "tier=header:X-Tier, session=cookie:sid, page = query:p";
    char words[200];
    assert_int_equal(weir_http_options_read(&options, &settings, words, sizeof(words)),
                     WEIR_ERR_INVALID); /* spaces around '=' */
    settings.attributes = "tier=header:X-Tier, session=cookie:sid,page=query:p";
    set_options(settings);
    const char *const *lines = LINES("Host: h", "X-Remote-User: ann", "X-Tier: gold",
                                     "Cookie: sid=7", "X-Forwarded-Uri: /?p=3");
    assert_int_equal(read_from("127.0.0.1", "", lines), 0);
    assert_string_equal(get("user"), "ann");
    assert_string_equal(get("tier"), "gold");
    assert_string_equal(get("session"), "7");
    assert_string_equal(get("page"), "3");
    assert_int_equal(read_from("192.0.2.1", "", lines), 0);
    assert_string_equal(get("user"), "absent");
    assert_string_equal(get("tier"), "absent");
    assert_int_equal(read_from("127.0.0.1", "", LINES("Host: h", "X-Remote-User: ")), 0);
    assert_string_equal(get("user"), "absent");
    assert_int_equal(
        read_from("127.0.0.1", "", LINES("Host: h", "X-Remote-User: ann", "X-Remote-User: root")),
        0);
    assert_string_equal(get("user"), "absent");
    assert_true(request.has_failed); /* one of them is the client's own */
}

static void what_does_not_fit_fails_the_request(void **state)
{
    (void)state;
    static char below[WEIR_HTTP1_TARGET_MAX + 1] = "/%41?";
    size_t used = strlen(below);
    for (int i = 0; used < 8000; i++)
        used += (size_t)snprintf(below + used, sizeof(below) - used, "k%d=%%41%0*d&", i, 100, 0);
    assert_int_equal(read_from("127.0.0.1", below, LINES("Host: h")), 0);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 70; i++) {
            char name[20];
            snprintf(name, sizeof(name), "query.k%d", i);
            struct weir_str value;
            if (weir_http_request_attribute(&request, weir_str_of(name), &value) > 0)
                assert_int_equal(value.len, 101);
        }
    }
    assert_true(request.has_failed || request.scratch_used <= sizeof(request.scratch));
}

static void settings_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const char *const proxies[] = {"10.0.0.0/33", "10.0.0.0/",    "10.0.0.0/-1", "::/129",
                                          "localhost",   "10.0.0.0/8/8", "Unix"};
    char words[200];
    struct weir_http_settings settings = weir_http_settings_default;
    for (size_t i = 0; i < sizeof(proxies) / sizeof(proxies[0]); i++) {
        settings.trusted_proxies = proxies[i];
        words[0] = '\0';
        assert_int_equal(weir_http_options_read(&options, &settings, words, sizeof(words)),
                         WEIR_ERR_INVALID);
        assert_non_null(strstr(words, proxies[i]));
    }
    static const char *const attributes[] = {"x", "=header:X", "x=header:", "x=body:X", "x=X"};
    settings = weir_http_settings_default;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        settings.attributes = attributes[i];
        assert_int_equal(weir_http_options_read(&options, &settings, words, sizeof(words)),
                         WEIR_ERR_INVALID);
    }
    settings = weir_http_settings_default;
    settings.trusted_proxies = "";
    assert_int_equal(weir_http_options_read(&options, &settings, words, sizeof(words)), 0);
    assert_int_equal(options.proxy_count, 0);
    assert_false(options.trusts_unix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_what_nginx_calls_the_uri),
        cmocka_unit_test_setup(forwarded_headers_name_the_original_request, setup),
        cmocka_unit_test_setup(nginx_names_it_by_its_own_headers, setup),
        cmocka_unit_test_setup(the_request_line_names_it_below_check, setup),
        cmocka_unit_test_setup(who_is_not_trusted_is_not_believed, setup),
        cmocka_unit_test_setup(sources_that_disagree_are_refused, setup),
        cmocka_unit_test_setup(settings_say_which_source_counts, setup),
        cmocka_unit_test_setup(the_client_is_the_rightmost_that_is_not_trusted, setup),
        cmocka_unit_test_setup(trust_in_all_of_ipv6_is_none_in_ipv4, setup),
        cmocka_unit_test_setup(headers_cookies_and_queries_are_attributes, setup),
        cmocka_unit_test_setup(a_user_is_believed_only_where_settings_say_so, setup),
        cmocka_unit_test_setup(what_does_not_fit_fails_the_request, setup),
        cmocka_unit_test_setup(settings_that_make_no_sense_are_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
