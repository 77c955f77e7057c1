/* replay.c - `weir replay`: what would these rules have decided?
 *
 * Every line of a trace is a request with its time.  It is decided by the real engine in the
 * trace's time, on a table of its own unless one is named: an hour of traffic takes as long as its
 * lines take to read.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include "cli.h"
#include "lines.h"

#include "base/str.h"
#include "proto/request_json.h"
#include "table/table.h"

#include <errno.h>
#include <stdlib.h>

struct settings {
    const char *rules;
    const char *format;
    const char *table;
    const char *store;
    bool merge_domains;
    bool summary;
    bool check;
    bool keep_going;
    bool json;
    uint64_t table_size;
};

struct replay {
    const struct settings *settings;
    const char *name; /* of the input, in messages */
    struct weir *engine;
    struct weir_session *session;
    struct cli_store *store; /* NULL: the table decides */
    struct cli_summary *summary;
    struct cli_expect expect;
    struct weir_request_json parsed;
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    uint64_t bad_lines;
};

static void complain_line(struct replay *r, uint64_t line, const char *why)
{
    fflush(stdout);
    fprintf(stderr, "%s:%llu: %s\n", r->name, (unsigned long long)line, why);
    r->bad_lines++;
}

static bool is_blank(struct weir_str line)
{
    for (size_t i = 0; i < line.len; i++)
        if (line.ptr[i] != ' ' && line.ptr[i] != '\t' && line.ptr[i] != '\r')
            return false;
    return true;
}

/* What is done with a decision: compared, added up, or printed. */
static int deliver(struct replay *r, uint64_t line, const struct weir_decision *decision)
{
    char text[WEIR_DECISION_JSON_LEN_MAX + 1];
    if (r->settings->check && r->parsed.expect != NULL)
        cli_expect_compare(&r->expect, r->name, line, r->parsed.expect, decision);
    if (r->settings->summary)
        return cli_summary_add(r->summary, &r->parsed.request, r->parsed.now_ns, decision);
    if (r->settings->check)
        return 0;
    size_t len = weir_decision_json_write(decision, text);
    text[len] = '\n';
    fwrite(text, 1, len + 1, stdout);
    return ferror(stdout) ? WEIR_ERR_IO : 0;
}

/* 0 also for a bad line, which is counted; an error is one that ends the run. */
static int replay_line(struct replay *r, uint64_t number, struct weir_str line)
{
    char why[256];
    if (weir_request_json_parse(&r->parsed, line, why, sizeof(why)) != 0) {
        complain_line(r, number, why);
        return 0;
    }
    struct weir_decision decision = {.statuses = r->statuses};
    bool is_store = false;
    int err = r->store ? cli_store_check(r->store, &r->parsed.request, r->parsed.now_ns, &decision,
                                         &is_store)
                       : weir_check(r->session, &r->parsed.request, r->parsed.now_ns, &decision);
    if (is_store)
        return err;
    if (err != 0) {
        complain_line(r, number, weir_strerror(err));
        return 0;
    }
    return deliver(r, number, &decision);
}

static int replay_lines(struct replay *r, struct cli_lines *lines)
{
    struct weir_str line;
    int got;
    while ((got = cli_lines_next(lines, &line)) != 0) {
        int err = 0;
        if (got == WEIR_ERR_TOO_LARGE) {
            char why[96];
            snprintf(why, sizeof(why), "the line is too long; at most %u bytes are allowed",
                     WEIR_REQUEST_JSON_LEN_MAX);
            complain_line(r, lines->number, why);
        } else if (got < 0) {
            err = got;
        } else if (!is_blank(line)) {
            err = replay_line(r, lines->number, line);
        }
        if (err != 0)
            return err;
        if (r->bad_lines > 0 && !r->settings->keep_going)
            return 0;
    }
    return 0;
}

static enum cli_exit conclude(const struct replay *r)
{
    if (r->settings->summary)
        cli_summary_print(r->summary, r->settings->json);
    if (r->bad_lines > 0)
        return CLI_NO;
    if (!r->settings->check)
        return CLI_DONE;
    if (r->expect.compared == 0) {
        cli_complain("%s: no line says what to expect", r->name);
        return CLI_NO;
    }
    /* With a summary on stdout, stderr keeps the two apart. */
    fprintf(r->settings->summary ? stderr : stdout, "%llu decisions compared, %llu differ\n",
            (unsigned long long)r->expect.compared, (unsigned long long)r->expect.differing);
    return r->expect.differing == 0 ? CLI_DONE : CLI_NO;
}

static enum cli_exit replay_file(struct replay *r, FILE *file)
{
    struct cli_lines lines;
    int err = cli_lines_init(&lines, file, WEIR_REQUEST_JSON_LEN_MAX);
    if (err == 0)
        err = cli_summary_new(&r->summary);
    if (err == 0)
        err = replay_lines(r, &lines);
    int why = errno;
    cli_lines_fini(&lines);
    if (err == 0)
        return conclude(r);
    if (err != WEIR_ERR_IO)
        cli_complain("%s: %s", r->name, weir_strerror(err));
    else if (ferror(file)) /* else it is the output, of which main() speaks */
        cli_complain("%s: %s", r->name, strerror(why));
    return CLI_WORLD;
}

static enum cli_exit open_engine(struct replay *r)
{
    struct weir_options options = {
        .virtual_time = true,
        .rules_path = r->settings->rules,
        .table_path = r->settings->table,
        .table_bytes = r->settings->table_size,
        .merge_domains = r->settings->merge_domains,
        .log = cli_log,
    };
    int err = weir_open(&r->engine, &options);
    if (err == 0)
        err = weir_session_open(&r->session, r->engine);
    if (err != 0)
        return cli_cannot_open(r->settings->rules, err);
    if (r->settings->store != NULL) {
        err = cli_store_new(&r->store, r->settings->store, r->session);
        if (err == WEIR_ERR_INVALID)
            return CLI_USAGE;
    }
    return cli_exit_of(err);
}

static enum cli_exit check_settings(const struct settings *set)
{
    if (set->rules == NULL) {
        cli_complain("replay: --rules PATH is missing");
        return CLI_USAGE;
    }
    if (set->table_size > 0 && set->table_size < WEIR_TABLE_BYTES_MIN) {
        cli_complain("replay: --table-size: a table has at least 1m");
        return CLI_USAGE;
    }
    if (strcmp(set->format, "jsonl") == 0)
        return CLI_DONE;
    if (strcmp(set->format, "combined") == 0 || strcmp(set->format, "json") == 0) {
        cli_complain("replay: --format %s is not supported yet; jsonl is", set->format);
        return CLI_WORLD;
    }
    cli_complain("replay: --format '%s' is not known; jsonl is", set->format);
    return CLI_USAGE;
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    enum cli_exit status = check_settings(settings);
    if (status != CLI_DONE)
        return status;
    struct replay *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        cli_complain("out of memory");
        return CLI_WORLD;
    }
    r->settings = settings;
    weir_request_json_init(&r->parsed);

    bool is_stdin = operands->count == 0 || strcmp(operands->at[0], "-") == 0;
    r->name = is_stdin ? "stdin" : operands->at[0];
    FILE *file = is_stdin ? stdin : fopen(r->name, "rb");
    if (file == NULL) {
        cli_complain("%s: %s", r->name, strerror(errno));
        status = CLI_WORLD;
    }
    if (status == CLI_DONE)
        status = open_engine(r);
    if (status == CLI_DONE)
        status = replay_file(r, file);

    if (file != NULL && !is_stdin)
        fclose(file);
    cli_summary_free(r->summary);
    cli_store_free(r->store);
    weir_session_close(r->session);
    weir_close(r->engine);
    weir_request_json_fini(&r->parsed);
    free(r);
    return status;
}

static const struct cli_option options[] = {
    CLI_OPTION(CLI_TEXT, rules, "PATH", "the rules: a file or a directory (required)"),
    CLI_OPTION(CLI_TEXT, format, "NAME", "of the input: jsonl (access logs come later)"),
    CLI_OPTION(CLI_FLAG, summary, NULL, "a report per rule instead of decisions"),
    CLI_OPTION(CLI_FLAG, json, NULL, "the summary as one object"),
    CLI_OPTION(CLI_FLAG, check, NULL,
               "compare with the \"expect\" of each line instead; exit 1 if any differs"),
    CLI_OPTION(CLI_FLAG, keep_going, NULL,
               "skip bad lines (and exit 1 at the end) instead of stopping at the first"),
    CLI_OPTION(CLI_FLAG, merge_domains, NULL, "several rules files may speak of one domain"),
    CLI_OPTION(CLI_TEXT, table, "PATH",
               "count in this table, made if there is none; private if not given"),
    CLI_OPTION(CLI_SIZE, table_size, "SIZE", "of a table that is made: 64m if not given"),
    CLI_OPTION(CLI_TEXT, store, "URL", "decide in Redis instead: redis://HOST:PORT or unix:PATH"),
};

const struct cli_command cli_command_replay = {
    .name = "replay",
    .operands = "--rules PATH [FILE]",
    .summary = "decide a trace of requests in its own time",
    .about = "Each line of FILE (or of standard input) is one request:\n\n"
             "  {\"t_ns\": 1700000040000000000, \"domain\": \"api\", \"hits\": 1,\n"
             "   \"descriptors\": [{\"entries\": [[\"user\", \"alice\"]]}]}\n\n"
             "and gets one line, the decision.  0 hits look without taking, negative ones\n"
             "give back.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .operands_max = 1,
    .defaults = &(const struct settings){.format = "jsonl"},
    .settings_len = sizeof(struct settings),
    .run = run,
};
