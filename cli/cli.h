/* cli.h - what the commands of `weir` share: their table, their options, their words.
 *
 * A command is one file and one struct cli_command: the parser, `--help` and the usage errors all
 * come from it, so they cannot disagree.  Its settings are a plain struct with defaults; an option
 * names the field that it sets by offset.  Parsing is done before a command runs: a command sees
 * settings and operands, never argv.
 *
 * Threads: one, but for bench.c, which says so itself.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <weir/weir.h>

/* The exit status, an interface of its own: scripts branch on it. */
enum cli_exit {
    CLI_DONE = 0,
    CLI_NO = 1,    /* it worked, and the answer is no: rules are invalid, decisions differ */
    CLI_USAGE = 2, /* the command line makes no sense */
    CLI_WORLD = 3, /* files, memory, permissions */
};

enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_COUNT,   /* uint64_t, from least to most */
    CLI_SIZE,    /* uint64_t: bytes, with k, m, g or t behind the number */
    CLI_SECONDS, /* double */
    CLI_SWITCH,  /* const char *: --name is "on", --name=TEXT is the text */
    CLI_OPERAND, /* no field: its value is one operand more */
};

struct cli_option {
    const char *name;    /* without its dashes; an underscore stands for one within */
    const char *metavar; /* NULL for flags and switches */
    const char *help;
    enum cli_kind kind;
    size_t offset; /* of the field in the command's settings */
    uint64_t least, most;
};

/* An option that is called like its field of the command's struct settings.  Behind the help may
 * follow .least and .most. */
#define CLI_OPTION(kind_, field, metavar_, ...)                                                    \
    {                                                                                              \
        .name = #field, .kind = (kind_), .metavar = (metavar_),                                    \
        .offset = offsetof(struct settings, field), .help = __VA_ARGS__                            \
    }

struct cli_operands {
    char **at;
    size_t count;
};

struct cli_command {
    const char *name;
    const char *operands; /* as the usage line shows them */
    const char *summary;  /* one line of `weir --help` */
    const char *about;    /* the paragraphs of `weir help NAME`; lines end in \n */
    const struct cli_option *options;
    size_t option_count;
    const char *const
        *common; /* ends with NULL: all that --help shows, as they do not fit a screen */
    const char *(*group_at)(size_t index); /* the title above an option, or NULL; may be NULL */
    size_t operands_min, operands_max;
    const void *defaults; /* of the settings, settings_len bytes */
    size_t settings_len;
    enum cli_exit (*run)(const void *settings, const struct cli_operands *operands);
};

/* A command that a later version brings: named, so that trying it gives a straight answer. */
struct cli_coming {
    const char *name;
    const char *what;
};

#define CLI_COMMAND(name) extern const struct cli_command cli_command_##name;
#define CLI_COMING(name, what)
#include "commands.def"
#undef CLI_COMMAND
#undef CLI_COMING

#define CLI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* args.c: argv (without the program and the command) to settings and operands.  CLI_DONE, or
 * CLI_USAGE with the reason on stderr.  Operands are moved to the front of argv. */
enum cli_exit cli_parse(const struct cli_command *command, void *settings, size_t argc, char **argv,
                        struct cli_operands *operands);
/* The name nearest to a mistyped one, or NULL where none is near.  names ends with NULL. */
const char *cli_nearest(const char *typed, const char *const *names);
/* "128m" to bytes.  False for what is no size, or too large. */
bool cli_parse_size(const char *text, uint64_t *out);

/* The option's name as it is typed. */
struct cli_name {
    char text[40];
};
const char *cli_name_of(struct cli_name *buf, const struct cli_option *option);

/* help.c */
void cli_help_program(FILE *out);
void cli_help_command(FILE *out, const struct cli_command *command); /* all of it */
void cli_help_brief(FILE *out, const struct cli_command *command);   /* what fits a screen */

/* main.c: the tables, for help and suggestions. */
const struct cli_command *cli_command_at(size_t index); /* NULL past the end */
const struct cli_coming *cli_coming_at(size_t index);   /* NULL past the end */

/* words.c: numbers as people write them.  Each fills and returns buf. */
struct cli_words {
    char text[96];
};
const char *cli_words_bytes(struct cli_words *buf, uint64_t bytes);  /* "64 MiB" */
const char *cli_words_duration(struct cli_words *buf, uint64_t ns);  /* "2.5 s", "3 min 20 s" */
const char *cli_words_count(struct cli_words *buf, uint64_t number); /* "1,234,567" */
/* "300 per minute", "300 per 3 hours" */
const char *cli_words_rate(struct cli_words *buf, uint64_t requests, enum weir_unit unit,
                           uint32_t multiplier);
/* "1.5 %"; a share of nothing is "-". */
const char *cli_words_share(struct cli_words *buf, uint64_t part, uint64_t whole);

/* One line on stderr, `weir: ...`; for what goes wrong. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A weir_log_fn that prints errors and warnings on stderr as they are: they begin with a place. */
void cli_log(void *ctx, enum weir_level level, const char *line);
/* What an error of the library means for the exit status. */
enum cli_exit cli_exit_of(int err);
/* Of weir_open(), whose log has named the place: says what that means. */
enum cli_exit cli_cannot_open(const char *rules, int err);

#endif
