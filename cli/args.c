/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include "base/str.h"
#include "rules/fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN_MAX 32 /* longer ones are not compared: nobody mistypes by that much */
#define OPTIONS_MAX 96  /* of one command */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

const char *cli_name_of(struct cli_name *buf, const struct cli_option *option)
{
    snprintf(buf->text, sizeof(buf->text), "%s", option->name);
    for (char *c = buf->text; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return buf->text;
}

const char *cli_nearest(const char *typed, const char *const *names)
{
    /* A beginning of the name is meant as the name, however much is missing. */
    for (size_t i = 0; names[i] != NULL; i++)
        if (typed[0] != '\0' && strncmp(typed, names[i], strlen(typed)) == 0)
            return names[i];
    return weir_suggest(weir_str_of(typed), names);
}

/* Digits only: strtoull would take "-1" for a very large number. */
static bool parse_digits(const char *text, uint64_t *out, const char **end)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *stop;
    errno = 0;
    unsigned long long value = strtoull(text, &stop, 10);
    if (errno != 0)
        return false;
    *out = value;
    *end = stop;
    return true;
}

bool cli_parse_size(const char *text, uint64_t *out)
{
    static const char suffixes[] = "kmgt";
    const char *end;
    uint64_t value;
    if (!parse_digits(text, &value, &end))
        return false;
    unsigned shift = 0;
    if (*end != '\0') {
        char lower = (char)(*end | 0x20);
        const char *suffix = strchr(suffixes, lower);
        if (suffix == NULL || end[1] != '\0')
            return false;
        shift = 10 * (unsigned)(suffix - suffixes + 1);
    }
    if (value > UINT64_MAX >> shift)
        return false;
    *out = value << shift;
    return true;
}

static bool parse_seconds(const char *text, double *out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value > 0 && value <= 1e9))
        return false;
    *out = value;
    return true;
}

static enum cli_exit refuse_value(const struct cli_option *option, const char *value,
                                  const char *wanted)
{
    cli_complain("--%s: '%s' is not %s", option->name, value, wanted);
    return CLI_USAGE;
}

static enum cli_exit set_value(const struct cli_option *option, void *settings, char *value,
                               struct cli_operands *operands)
{
    char *field = (char *)settings + option->offset;
    const char *end;
    uint64_t number;
    double seconds;
    switch (option->kind) {
    case CLI_FLAG:
        memcpy(field, &(bool){true}, sizeof(bool));
        return CLI_DONE;
    case CLI_TEXT:
    case CLI_SWITCH:
        memcpy(field, &(const char *){value != NULL ? value : "on"}, sizeof(const char *));
        return CLI_DONE;
    case CLI_OPERAND:
        operands->at[operands->count++] = value;
        return CLI_DONE;
    case CLI_COUNT:
        if (!parse_digits(value, &number, &end) || *end != '\0' || number < option->least ||
            number > option->most) {
            cli_complain("--%s: '%s' is not a number from %llu to %llu", option->name, value,
                         (unsigned long long)option->least, (unsigned long long)option->most);
            return CLI_USAGE;
        }
        memcpy(field, &number, sizeof(number));
        return CLI_DONE;
    case CLI_SIZE:
        if (!cli_parse_size(value, &number))
            return refuse_value(option, value, "a size, such as 64m or 2g");
        memcpy(field, &number, sizeof(number));
        return CLI_DONE;
    case CLI_SECONDS:
        if (!parse_seconds(value, &seconds))
            return refuse_value(option, value, "a number of seconds above 0");
        memcpy(field, &seconds, sizeof(seconds));
        return CLI_DONE;
    }
    return CLI_USAGE;
}

static enum cli_exit unknown_option(const struct cli_command *command, const char *typed)
{
    struct cli_name texts[OPTIONS_MAX];
    const char *names[OPTIONS_MAX + 1];
    size_t count = 0;
    for (; count < command->option_count && count < OPTIONS_MAX; count++)
        names[count] = cli_name_of(&texts[count], &command->options[count]);
    names[count] = NULL;
    const char *nearest = cli_nearest(typed, names);
    if (nearest != NULL)
        cli_complain("%s: --%s is not an option; did you mean --%s?", command->name, typed,
                     nearest);
    else
        cli_complain("%s: --%s is not an option; 'weir help %s' lists them", command->name, typed,
                     command->name);
    return CLI_USAGE;
}

/* Sets the option at argv[*index]; *index moves on where its value is an argument of its own. */
static enum cli_exit parse_option(const struct cli_command *command, void *settings, size_t argc,
                                  char **argv, size_t *index, struct cli_operands *operands)
{
    char name[NAME_LEN_MAX + 1];
    char *typed = argv[*index] + 2;
    char *equals = strchr(typed, '=');
    size_t len = equals != NULL ? (size_t)(equals - typed) : strlen(typed);
    snprintf(name, sizeof(name), "%.*s", (int)min_size(len, NAME_LEN_MAX), typed);

    const struct cli_option *option = NULL;
    struct cli_name each;
    for (size_t i = 0; i < command->option_count; i++)
        if (strcmp(cli_name_of(&each, &command->options[i]), name) == 0)
            option = &command->options[i];
    if (option == NULL || len > NAME_LEN_MAX)
        return unknown_option(command, name);
    if (option->kind == CLI_FLAG && equals != NULL) {
        cli_complain("%s: --%s takes no value", command->name, name);
        return CLI_USAGE;
    }
    char *value = equals != NULL ? equals + 1 : NULL;
    if (option->kind != CLI_FLAG && option->kind != CLI_SWITCH && value == NULL) {
        if (*index + 1 >= argc) {
            cli_complain("%s: --%s needs a value: %s", command->name, name, option->metavar);
            return CLI_USAGE;
        }
        value = argv[++*index];
    }
    return set_value(option, settings, value, operands);
}

static enum cli_exit check_operands(const struct cli_command *command, size_t count)
{
    if (count >= command->operands_min && count <= command->operands_max)
        return CLI_DONE;
    cli_complain("%s: too %s arguments; usage: weir %s%s%s", command->name,
                 count < command->operands_min ? "few" : "many", command->name,
                 command->operands[0] != '\0' ? " " : " [OPTIONS]", command->operands);
    return CLI_USAGE;
}

enum cli_exit cli_parse(const struct cli_command *command, void *settings, size_t argc, char **argv,
                        struct cli_operands *operands)
{
    bool only_operands = false;
    *operands = (struct cli_operands){.at = argv}; /* in front of what is yet to be read */
    for (size_t i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (!only_operands && strcmp(arg, "--") == 0) {
            only_operands = true;
        } else if (!only_operands && strncmp(arg, "--", 2) == 0) {
            enum cli_exit status = parse_option(command, settings, argc, argv, &i, operands);
            if (status != CLI_DONE)
                return status;
        } else if (!only_operands && arg[0] == '-' && arg[1] != '\0') {
            cli_complain("%s: %s is not an option; options have two dashes", command->name, arg);
            return CLI_USAGE;
        } else {
            operands->at[operands->count++] = arg;
        }
    }
    return check_operands(command, operands->count);
}
