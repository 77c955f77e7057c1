/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "store/redis/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* What was understood, in one line. */
static const char *read(const char *text)
{
    static char line[2048];
    struct weir_redis_url url;
    char why[256] = "";
    if (weir_redis_url_parse(&url, weir_str_of(text), why, sizeof(why)) != 0) {
        snprintf(line, sizeof(line), "! %s", why);
        return line;
    }
    int len = snprintf(line, sizeof(line), "%d%s user=%.*s password=%.*s db=%u master=%.*s",
                       (int)url.topology, url.is_tls ? "s" : "", (int)url.login.user_len,
                       url.login.user, (int)url.login.password_len, url.login.password,
                       url.database, WEIR_STR_ARG(url.master));
    if (url.sentinel_login.password_len > 0)
        len += snprintf(line + len, sizeof(line) - (size_t)len, " sentinel=%.*s:%.*s",
                        (int)url.sentinel_login.user_len, url.sentinel_login.user,
                        (int)url.sentinel_login.password_len, url.sentinel_login.password);
    for (uint32_t i = 0; i < url.host_count; i++)
        len += snprintf(line + len, sizeof(line) - (size_t)len, " %.*s|%u",
                        WEIR_STR_ARG(url.hosts[i].name), url.hosts[i].port);
    return line;
}

static void one_server(void **state)
{
    (void)state;
    assert_string_equal(read("redis://h"), "0 user= password= db=0 master= h|6379");
    assert_string_equal(read("redis://h:1/"), "0 user= password= db=0 master= h|1");
    assert_string_equal(read("rediss://u:p@h:65535/15"),
                        "0s user=u password=p db=15 master= h|65535");
    assert_string_equal(read("redis://p@h"), "0 user= password=p db=0 master= h|6379");
    assert_string_equal(read("redis://:p@h"), "0 user= password=p db=0 master= h|6379");
    assert_string_equal(read("redis://a%3ab:c%40d%2Fe@[::1]:7"),
                        "0 user=a:b password=c@d/e db=0 master= ::1|7");
    assert_string_equal(read("redis://[2001:db8::1]"),
                        "0 user= password= db=0 master= 2001:db8::1|6379");
    assert_string_equal(read("unix:/run/r.sock"), "0 user= password= db=0 master= /run/r.sock|0");
    assert_string_equal(read("redis+unix:///run/r.sock"),
                        "0 user= password= db=0 master= /run/r.sock|0");
}

static void several_servers(void **state)
{
    (void)state;
    assert_string_equal(read("redis-cluster://a:1,b,[::1]:3"),
                        "1 user= password= db=0 master= a|1 b|6379 ::1|3");
    assert_string_equal(read("redis-shards://u:p@a,b:2/4"),
                        "3 user=u password=p db=4 master= a|6379 b|2");
    assert_string_equal(read("redis-sentinel://mymaster@a,b:2/1"),
                        "2 user= password= db=1 master=mymaster a|26379 b|2");
    assert_string_equal(read("rediss-sentinel://u:p@m@a"),
                        "2s user=u password=p db=0 master=m a|26379");
}

static void sentinels_have_a_login_of_their_own(void **state)
{
    (void)state;
    assert_string_equal(read("redis-sentinel://m@a:1?sentinel_password=x%3fy"),
                        "2 user= password= db=0 master=m sentinel=:x?y a|1");
    assert_string_equal(
        read("redis-sentinel://u:p?q@m@a:1,b/3?sentinel_user=me&sentinel_password=s@/:%26"),
        "2 user=u password=p?q db=3 master=m sentinel=me:s@/:& a|1 b|26379");
    assert_string_equal(read("rediss-sentinel://m@a?sentinel_password=p&sentinel_user=u"),
                        "2s user= password= db=0 master=m sentinel=u:p a|26379");
    static const char *const bad[] = {
        "redis-sentinel://m@a?sentinel_user=u",
        "redis-sentinel://m@a?sentinel_password=",
        "redis-sentinel://m@a?sentinel_passwd=p",
        "redis-sentinel://m@a?sentinel_password=%4",
        "redis-sentinel://m@a?sentinel_password=p&more=1",
        "redis://a?sentinel_password=hunter2",
        "redis-cluster://a?sentinel_password=p",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (strncmp(read(bad[i]), "! ", 2) != 0 || strstr(read(bad[i]), "sentinel_") == NULL ||
            strstr(read(bad[i]), "hunter2") != NULL)
            fail_msg("'%s' is '%s'", bad[i], read(bad[i]));
    }
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "redis:",
                                      "http://h",
                                      "redis://",
                                      "redis://h:0",
                                      "redis://h:",
                                      "redis://h:x",
                                      "redis://h:65536",
                                      "redis://h/x",
                                      "redis://a,b",
                                      "redis://@h",
                                      "redis://u:@h",
                                      "redis://%4@h",
                                      "redis://%zz@h",
                                      "redis://[::1",
                                      "unix:",
                                      "redis://[]:1",
                                      "redis://[::1]x",
                                      "redis-cluster://h/1",
                                      "redis-cluster://a,",
                                      "redis-sentinel://a",
                                      "redis-sentinel://@a",
                                      "redis://h/4294967296",
                                      "redis://%@h"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *said = read(bad[i]);
        if (said[0] != '!' || strlen(said) < 10)
            fail_msg("'%s' is '%s'", bad[i], said);
    }
}

static void a_bad_port_is_called_that(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "redis://h:0",   "redis://h:",          "redis://h:x",
        "redis://h:-1",  "redis://h:65536",     "redis://h:99999999999999999999",
        "redis://a:b:1", "redis://[::1]:65536", "redis-cluster://a:1,b:65536"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (strcmp(read(bad[i]), "! the port of a host is not a number from 1 to 65535") != 0)
            fail_msg("'%s' is '%s'", bad[i], read(bad[i]));
    }
    assert_null(strstr(read("redis://:65536"), "port"));
    assert_non_null(strstr(read("redis://[::1]x:1"), "[IPv6]"));
}

static void secrets_are_not_repeated(void **state)
{
    (void)state;
    assert_null(strstr(read("redis://user:hunter2@h:x"), "hunter2"));
    assert_null(strstr(read("redis://user:hunter2%zz@h"), "hunter2"));
}

static void every_maximum_is_kept(void **state)
{
    (void)state;
    char text[4096], hosts[2048] = "";
    struct weir_redis_url url;
    char why[256];
    for (int secret = WEIR_REDIS_SECRET_MAX; secret <= WEIR_REDIS_SECRET_MAX + 1; secret++) {
        memset(hosts, 'p', (size_t)secret);
        hosts[secret] = '\0';
        snprintf(text, sizeof(text), "redis://%s@h", hosts);
        int err = weir_redis_url_parse(&url, weir_str_of(text), why, sizeof(why));
        assert_int_equal(err == 0, secret == WEIR_REDIS_SECRET_MAX);
    }
    for (size_t count = WEIR_REDIS_HOSTS_MAX; count <= WEIR_REDIS_HOSTS_MAX + 1; count++) {
        size_t len = (size_t)snprintf(text, sizeof(text), "redis-cluster://h");
        for (size_t i = 1; i < count; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, ",h");
        int err = weir_redis_url_parse(&url, weir_str_of(text), why, sizeof(why));
        assert_int_equal(err == 0, count == WEIR_REDIS_HOSTS_MAX);
    }
}

static void the_greeting_says_who_and_where(void **state)
{
    (void)state;
    static const struct {
        const char *url, *greeting;
        uint32_t commands;
    } known[] = {
        {"redis://h", "*1\r\n$4\r\nPING\r\n", 1},
        {"redis://p@h", "*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n*1\r\n$4\r\nPING\r\n", 2},
        {"redis://u:p@h/12",
         "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n"
         "*1\r\n$4\r\nPING\r\n",
         3},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct weir_redis_url url;
        struct weir_buf buf;
        char why[256];
        weir_buf_init(&buf, 4096);
        assert_int_equal(weir_redis_url_parse(&url, weir_str_of(known[i].url), why, sizeof(why)),
                         0);
        assert_int_equal(weir_redis_put_greeting(&buf, &url), known[i].commands);
        weir_buf_add_char(&buf, '\0');
        assert_string_equal(buf.ptr, known[i].greeting);
        weir_buf_fini(&buf);
    }
}

static void sentinels_are_greeted_by_their_own_login(void **state)
{
    (void)state;
    struct weir_redis_url url;
    struct weir_buf buf;
    char why[256];
    weir_buf_init(&buf, 4096);
    assert_int_equal(weir_redis_url_parse(
                         &url,
                         WEIR_STR("redis-sentinel://u:p@m@a/7?sentinel_user=w&sentinel_password=s"),
                         why, sizeof(why)),
                     0);
    assert_int_equal(weir_redis_put_sentinel_greeting(&buf, &url), 2);
    weir_buf_add_char(&buf, '\0');
    assert_string_equal(buf.ptr, "*3\r\n$4\r\nAUTH\r\n$1\r\nw\r\n$1\r\ns\r\n*1\r\n$4\r\nPING\r\n");
    weir_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_server),
        cmocka_unit_test(several_servers),
        cmocka_unit_test(sentinels_have_a_login_of_their_own),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_bad_port_is_called_that),
        cmocka_unit_test(secrets_are_not_repeated),
        cmocka_unit_test(every_maximum_is_kept),
        cmocka_unit_test(the_greeting_says_who_and_where),
        cmocka_unit_test(sentinels_are_greeted_by_their_own_login),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
