/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <string.h>

#define HELP_COLUMNS 79
#define OPTION_COLUMN 26 /* where the explanation of an option begins */

void cli_help_program(FILE *out)
{
    fputs("weir decides how much traffic passes: a rate limiter.\n\n"
          "usage: weir COMMAND [OPTIONS] ...\n\n",
          out);
    const struct cli_command *command;
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++)
        fprintf(out, "  %-10s %s\n", command->name, command->summary);

    const struct cli_coming *coming;
    fputs("\nComing in later versions:\n", out);
    for (size_t i = 0; (coming = cli_coming_at(i)) != NULL; i++)
        fprintf(out, "  %-10s %s\n", coming->name, coming->what);

    fputs("\n"
          "weir help COMMAND   says more; weir COMMAND --help what fits a screen\n"
          "weir --version      says which weir this is\n\n"
          "Exit status: 0 done, 1 the answer is no, 2 wrong usage, 3 the world failed.\n",
          out);
}

/* Prints text from `column` on, breaking at spaces, each further line indented as far. */
static void print_wrapped(FILE *out, const char *text, size_t len, size_t column)
{
    size_t at = column;
    const char *end = text + len;
    while (text < end) {
        size_t word = strcspn(text, " ");
        if (word > (size_t)(end - text))
            word = (size_t)(end - text);
        if (at > column && at + word + 1 > HELP_COLUMNS) {
            fprintf(out, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", (int)word, text);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* Up to the first stop. */
static size_t first_words(const char *text)
{
    size_t len = strcspn(text, ";.");
    while (text[len] == '.' && text[len + 1] != ' ' && text[len + 1] != '\0') /* weir.yaml */
        len += 1 + strcspn(text + len + 1, ";.");
    return len;
}

static void print_option(FILE *out, const struct cli_option *option, bool is_brief)
{
    struct cli_name name;
    int used =
        fprintf(out, "  --%s%s%s", cli_name_of(&name, option), option->metavar != NULL ? " " : "",
                option->metavar != NULL ? option->metavar : "");
    if (used < 0)
        return; /* main() sees that stdout failed */
    if (used >= OPTION_COLUMN) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", OPTION_COLUMN - used, "");
    size_t len = is_brief ? first_words(option->help) : strlen(option->help);
    print_wrapped(out, option->help, len, OPTION_COLUMN);
}

static void print_usage(FILE *out, const struct cli_command *command)
{
    fprintf(out, "weir %s: %s\n\nusage: weir %s [OPTIONS]%s%s\n\n", command->name, command->summary,
            command->name, command->operands[0] != '\0' ? " " : "", command->operands);
}

static void print_help_option(FILE *out)
{
    fprintf(out, "%-*s%s\n", OPTION_COLUMN, "  --help", "this text");
}

static bool is_common(const struct cli_command *command, const struct cli_option *option)
{
    for (const char *const *name = command->common; *name != NULL; name++)
        if (strcmp(*name, option->name) == 0)
            return true;
    return false;
}

void cli_help_brief(FILE *out, const struct cli_command *command)
{
    if (command->common == NULL) {
        cli_help_command(out, command);
        return;
    }
    print_usage(out, command);
    for (size_t i = 0; i < command->option_count; i++)
        if (is_common(command, &command->options[i]))
            print_option(out, &command->options[i], true);
    print_help_option(out);
    fprintf(out, "\n'weir help %s' lists all %zu options; weir-%s(1) says more of each.\n",
            command->name, command->option_count, command->name);
}

void cli_help_command(FILE *out, const struct cli_command *command)
{
    print_usage(out, command);
    fprintf(out, "%s\n", command->about);
    for (size_t i = 0; i < command->option_count; i++) {
        const char *group = command->group_at != NULL ? command->group_at(i) : NULL;
        if (group != NULL)
            fprintf(out, "%s%s\n", i > 0 ? "\n" : "", group);
        print_option(out, &command->options[i], false);
    }
    print_help_option(out);
}
