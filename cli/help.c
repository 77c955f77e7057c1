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
          "weir help COMMAND   says more; so does weir COMMAND --help\n"
          "weir --version      says which weir this is\n\n"
          "Exit status: 0 done, 1 the answer is no, 2 wrong usage, 3 the world failed.\n",
          out);
}

/* Prints text from `column` on, breaking at spaces, each further line indented as far. */
static void print_wrapped(FILE *out, const char *text, size_t column)
{
    size_t at = column;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
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

static void print_option(FILE *out, const struct cli_option *option)
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
    print_wrapped(out, option->help, OPTION_COLUMN);
}

void cli_help_command(FILE *out, const struct cli_command *command)
{
    fprintf(out, "weir %s: %s\n\nusage: weir %s [OPTIONS]%s%s\n\n%s\n", command->name,
            command->summary, command->name, command->operands[0] != '\0' ? " " : "",
            command->operands, command->about);
    for (size_t i = 0; i < command->option_count; i++) {
        const char *group = command->group_at != NULL ? command->group_at(i) : NULL;
        if (group != NULL)
            fprintf(out, "%s%s\n", i > 0 ? "\n" : "", group);
        print_option(out, &command->options[i]);
    }
    fprintf(out, "  --help%*s\n", OPTION_COLUMN - 8 + 9, "this text");
}
