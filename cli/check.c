/* check.c - `weir check`: are these rules valid?
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include "base/str.h"
#include "rules/tree.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>

struct settings {
    bool merge_domains;
    bool json;
};

/* What was said about all paths together. */
struct report {
    bool is_json;
    uint64_t errors, warnings, rules, domains;
    json_t *messages; /* with is_json: {level, file, line, column, text}, in order */
};

/* Length of the "file:line:column: " that begins a message; 0 where there is none. */
static size_t place_of(const char *message, size_t *file_len, long *line, long *column)
{
    for (const char *colon = strchr(message, ':'); colon != NULL; colon = strchr(colon + 1, ':')) {
        char *end;
        if (!isdigit((unsigned char)colon[1]))
            continue;
        *line = strtol(colon + 1, &end, 10);
        if (end[0] != ':' || !isdigit((unsigned char)end[1]))
            continue;
        *column = strtol(end + 1, &end, 10);
        if (end[0] != ':' || end[1] != ' ')
            continue;
        *file_len = (size_t)(colon - message);
        return (size_t)(end + 2 - message);
    }
    return 0;
}

static void append_message(json_t *messages, enum weir_level level, const char *message)
{
    size_t file_len;
    long line, column;
    const char *name = level == WEIR_LEVEL_ERROR ? "error" : "warning";
    size_t text_at = place_of(message, &file_len, &line, &column);
    json_t *one;
    if (text_at > 0)
        one = json_pack("{s:s, s:s%, s:I, s:I, s:s}", "level", name, "file", message, file_len,
                        "line", (json_int_t)line, "column", (json_int_t)column, "text",
                        message + text_at);
    else
        one = json_pack("{s:s, s:n, s:n, s:n, s:s}", "level", name, "file", "line", "column",
                        "text", message);
    /* A file name need not be UTF-8, JSON must be: then the message is counted, not shown. */
    if (one != NULL)
        json_array_append_new(messages, one);
}

static void take_message(void *ctx, enum weir_level level, const char *line)
{
    struct report *report = ctx;
    if (level == WEIR_LEVEL_INFO)
        return;
    if (level == WEIR_LEVEL_ERROR)
        report->errors++;
    else
        report->warnings++;
    if (report->is_json)
        append_message(report->messages, level, line);
    else
        printf("%s\n", line);
}

static int check_path(struct report *report, const char *path, bool merge_domains)
{
    struct weir_rules *rules;
    struct weir_rules_options options = {
        .path = path,
        .merge_domains = merge_domains,
        .log = take_message,
        .log_ctx = report,
    };
    uint64_t errors_before = report->errors;
    int err = weir_rules_load(&rules, &options);
    if (err != 0) {
        /* Whatever fails without a word of its own still must not look like success. */
        if (report->errors == errors_before) {
            char line[512];
            snprintf(line, sizeof(line), "%s: %s", path, weir_strerror(err));
            take_message(report, WEIR_LEVEL_ERROR, line);
        }
        return err;
    }
    report->rules += weir_rules_count(rules);
    report->domains += rules->domain_count;
    weir_rules_free(rules);
    return 0;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_text(const struct report *report)
{
    struct cli_words a, b;
    if (report->errors == 0)
        printf("%s rule%s in %s domain%s: ok", cli_words_count(&a, report->rules),
               plural(report->rules), cli_words_count(&b, report->domains),
               plural(report->domains));
    else
        printf("%s error%s", cli_words_count(&a, report->errors), plural(report->errors));
    if (report->errors != 0 || report->warnings != 0)
        printf(", %s warning%s", cli_words_count(&a, report->warnings), plural(report->warnings));
    printf("\n");
}

static void print_json(const struct report *report)
{
    json_t *root = json_pack("{s:b, s:I, s:I, s:I, s:I, s:O}", "ok", report->errors == 0, "rules",
                             (json_int_t)report->rules, "domains", (json_int_t)report->domains,
                             "errors", (json_int_t)report->errors, "warnings",
                             (json_int_t)report->warnings, "messages", report->messages);
    json_dumpf(root, stdout, 0);
    printf("\n");
    json_decref(root);
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    const struct settings *set = settings;
    struct report report = {.is_json = set->json, .messages = json_array()};
    int out_of_memory = report.messages == NULL ? WEIR_ERR_NOMEM : 0;
    for (size_t i = 0; i < operands->count && out_of_memory == 0; i++)
        if (check_path(&report, operands->at[i], set->merge_domains) == WEIR_ERR_NOMEM)
            out_of_memory = WEIR_ERR_NOMEM;
    if (set->json)
        print_json(&report);
    else
        print_text(&report);
    json_decref(report.messages);
    if (out_of_memory != 0)
        return CLI_WORLD;
    return report.errors == 0 ? CLI_DONE : CLI_NO;
}

static const struct cli_option options[] = {
    {.name = "rules",
     .kind = CLI_OPERAND,
     .metavar = "PATH",
     .help = "a PATH, as the commands that run rules take it; may be repeated"},
    CLI_OPTION(CLI_FLAG, merge_domains, NULL,
               "several files of a directory may speak of one domain"),
    CLI_OPTION(CLI_FLAG, json, NULL, "one object instead of text"),
};

const struct cli_command cli_command_check = {
    .name = "check",
    .operands = "PATH...",
    .summary = "validate rules",
    .about = "Reads rules as every other command would and says all that is wrong with them,\n"
             "as file:line:column: text.  PATH is a file or a directory of files; each PATH\n"
             "is a set of its own.  Exits 0 where all are valid, whatever the warnings,\n"
             "else 1.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .operands_min = 1,
    .operands_max = SIZE_MAX,
    .defaults = &(const struct settings){.json = false},
    .settings_len = sizeof(struct settings),
    .run = run,
};
