/* Lines of the log: whole, escaped, counted.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/log.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* A log whose lines can be read back. */
struct sink {
    struct weir_log *log;
    FILE *file;
    char text[65536];
};

static void open_sink(struct sink *sink, struct weir_log_options options)
{
    sink->file = tmpfile();
    assert_non_null(sink->file);
    assert_int_equal(weir_log_new(&sink->log, fileno(sink->file), &options), 0);
}

static const char *close_sink(struct sink *sink)
{
    weir_log_free(sink->log);
    ssize_t got = pread(fileno(sink->file), sink->text, sizeof(sink->text) - 1, 0);
    assert_true(got >= 0);
    sink->text[got] = '\0';
    fclose(sink->file);
    return sink->text;
}

#define PLAIN                                                                                      \
    (struct weir_log_options)                                                                      \
    {                                                                                              \
        .level = WEIR_LOG_INFO, .lines_per_s = 1000                                                \
    }
#define JSON                                                                                       \
    (struct weir_log_options)                                                                      \
    {                                                                                              \
        .level = WEIR_LOG_INFO, .lines_per_s = 1000, .is_json = true                               \
    }

static void logfmt_quotes_what_needs_it(void **state)
{
    struct sink sink;
    (void)state;
    open_sink(&sink, PLAIN);
    WEIR_LOG(sink.log, WEIR_LOG_WARN, "an event", WEIR_LOG_TEXT("plain", "a/b:1"),
             WEIR_LOG_TEXT("spaced", "a b"), WEIR_LOG_TEXT("quoted", "say \"=\" \\"),
             WEIR_LOG_TEXT("empty", ""), WEIR_LOG_NUMBER("n", UINT64_MAX));
    const char *line = strstr(close_sink(&sink), " level=");
    assert_string_equal(line, " level=warn event=\"an event\" plain=a/b:1 spaced=\"a b\" "
                              "quoted=\"say \\\"=\\\" \\\\\" empty=\"\" n=18446744073709551615\n");
}

static void no_value_begins_a_line(void **state)
{
    struct sink sink;
    (void)state;
    open_sink(&sink, PLAIN);
    WEIR_LOG(sink.log, WEIR_LOG_INFO, "x",
             WEIR_LOG_STR("v", ((struct weir_str){"a\nlevel=error \x1b[31m\xff\0b", 22})));
    const char *text = close_sink(&sink);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "\"a\\u000alevel=error \\u001b[31m\\u00ff\\u0000b\""));
}

static void json_lines_are_json_whatever_they_hold(void **state)
{
    struct sink sink;
    char bytes[256];
    (void)state;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    open_sink(&sink, JSON);
    WEIR_LOG(sink.log, WEIR_LOG_INFO, "all bytes",
             WEIR_LOG_STR("v", ((struct weir_str){bytes, sizeof(bytes)})), WEIR_LOG_NUMBER("n", 3));
    json_error_t error;
    json_t *line = json_loads(close_sink(&sink), JSON_ALLOW_NUL, &error);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "event")), "all bytes");
    assert_int_equal(json_integer_value(json_object_get(line, "n")), 3);
    json_decref(line);
}

static void long_lines_are_cut_and_stay_json(void **state)
{
    struct sink sink;
    char *text = malloc(1u << 20);
    (void)state;
    assert_non_null(text);
    memset(text, '\n', 1u << 20); /* six bytes each */
    struct weir_str huge = {text, 1u << 20};
    open_sink(&sink, JSON);
    WEIR_LOG(sink.log, WEIR_LOG_INFO, "huge", WEIR_LOG_STR("a", huge));
    const char *line = close_sink(&sink);
    assert_true(strlen(line) <= 4096);
    assert_int_equal(line[strlen(line) - 1], '\n');
    free(text);
}

static void keys_are_hashed_unless_told(void **state)
{
    struct sink sink;
    struct weir_str key = WEIR_STR("10.1.2.3"), other = WEIR_STR("10.1.2.4");
    (void)state;
    open_sink(&sink, PLAIN);
    WEIR_LOG(sink.log, WEIR_LOG_INFO, "x", WEIR_LOG_KEY("a", key), WEIR_LOG_KEY("b", key),
             WEIR_LOG_KEY("c", other));
    struct weir_log_options shown = PLAIN;
    shown.shows_keys = true;
    weir_log_configure(sink.log, &shown);
    WEIR_LOG(sink.log, WEIR_LOG_INFO, "y", WEIR_LOG_KEY("a", key));
    char *text = sink.text, hash[3][20];
    close_sink(&sink);
    assert_int_equal(
        sscanf(strstr(text, " a="), " a=%19s b=%19s c=%19s", hash[0], hash[1], hash[2]), 3);
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    assert_true(strstr(text, "10.1.2.3") > strstr(text, "event=y"));
}

static void levels_below_are_silent(void **state)
{
    struct sink sink;
    (void)state;
    open_sink(&sink, PLAIN);
    assert_false(weir_log_wants(sink.log, WEIR_LOG_DEBUG));
    assert_true(weir_log_wants(sink.log, WEIR_LOG_ERROR));
    WEIR_LOG(sink.log, WEIR_LOG_DEBUG, "x", WEIR_LOG_NUMBER("n", 1));
    assert_string_equal(close_sink(&sink), "");
}

static void a_flood_is_cut(void **state)
{
    struct sink sink;
    struct weir_log_options few = PLAIN;
    uint64_t lines = 0;
    (void)state;
    few.lines_per_s = 10;
    open_sink(&sink, few);
    for (int i = 0; i < 1000; i++)
        WEIR_LOG(sink.log, WEIR_LOG_INFO, "x", WEIR_LOG_NUMBER("n", 1));
    for (const char *c = close_sink(&sink); *c != '\0'; c++)
        lines += *c == '\n';
    /* A second may end in between, even two on a busy machine: each brings one line more. */
    assert_in_range(lines, 10, 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logfmt_quotes_what_needs_it),
        cmocka_unit_test(no_value_begins_a_line),
        cmocka_unit_test(json_lines_are_json_whatever_they_hold),
        cmocka_unit_test(long_lines_are_cut_and_stay_json),
        cmocka_unit_test(keys_are_hashed_unless_told),
        cmocka_unit_test(levels_below_are_silent),
        cmocka_unit_test(a_flood_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
