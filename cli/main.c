/* main.c - finds the command, parses its options, runs it, and answers with its exit status.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct cli_command *const commands[] = {
#define CLI_COMMAND(name) &cli_command_##name,
#define CLI_COMING(name, what)
#include "commands.def"
#undef CLI_COMMAND
#undef CLI_COMING
};

static const struct cli_coming comings[] = {
#define CLI_COMMAND(name)
#define CLI_COMING(name, what) {#name, what},
#include "commands.def"
#undef CLI_COMMAND
#undef CLI_COMING
};

const struct cli_command *cli_command_at(size_t index)
{
    return index < CLI_COUNT_OF(commands) ? commands[index] : NULL;
}

const struct cli_coming *cli_coming_at(size_t index)
{
    return index < CLI_COUNT_OF(comings) ? &comings[index] : NULL;
}

static const struct cli_command *command_named(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT_OF(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* Says why there is no such command: not yet, or not ever. */
static enum cli_exit refuse_command(const char *name)
{
    const char *names[CLI_COUNT_OF(commands) + 1] = {NULL};
    for (size_t i = 0; i < CLI_COUNT_OF(comings); i++) {
        if (strcmp(comings[i].name, name) == 0) {
            cli_complain("'%s' (%s) is not in this version; it comes with a later one", name,
                         comings[i].what);
            return CLI_WORLD;
        }
    }
    for (size_t i = 0; i < CLI_COUNT_OF(commands); i++)
        names[i] = commands[i]->name;
    const char *nearest = cli_nearest(name, names);
    if (nearest != NULL)
        cli_complain("'%s' is not a command; did you mean '%s'?", name, nearest);
    else
        cli_complain("'%s' is not a command; 'weir --help' lists them", name);
    return CLI_USAGE;
}

static bool asks_for_help(size_t argc, char **argv)
{
    for (size_t i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static enum cli_exit run_command(const struct cli_command *command, size_t argc, char **argv)
{
    if (asks_for_help(argc, argv)) {
        cli_help_brief(stdout, command);
        return CLI_DONE;
    }
    struct cli_operands operands;
    void *settings = malloc(command->settings_len);
    if (settings == NULL) {
        cli_complain("out of memory");
        return CLI_WORLD;
    }
    memcpy(settings, command->defaults, command->settings_len);
    enum cli_exit status = cli_parse(command, settings, argc, argv, &operands);
    if (status == CLI_DONE)
        status = command->run(settings, &operands);
    free(settings);
    return status;
}

static enum cli_exit help(size_t argc, char **argv)
{
    if (argc == 0) {
        cli_help_program(stdout);
        return CLI_DONE;
    }
    const struct cli_command *command = command_named(argv[0]);
    if (command == NULL)
        return refuse_command(argv[0]);
    cli_help_command(stdout, command);
    return CLI_DONE;
}

static enum cli_exit dispatch(size_t argc, char **argv)
{
    if (argc == 0) {
        cli_help_program(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[0];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(word, "--version") == 0) {
        printf("weir %s\n", weir_version());
        return CLI_DONE;
    }
    const struct cli_command *command = command_named(word);
    if (command == NULL)
        return refuse_command(word);
    return run_command(command, argc - 1, argv + 1);
}

/* A closed standard stream stays closed to us, and yet nothing that is opened later gets its
 * number: words for people would go into a socket, and libuv stops the program. */
static bool keep_numbers(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode) != fd)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!keep_numbers())
        return CLI_WORLD;
    enum cli_exit status = dispatch(argc > 0 ? (size_t)argc - 1 : 0, argv + 1);
    /* A full disk must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_complain("cannot write the output: %s", strerror(errno));
        return CLI_WORLD;
    }
    return (int)status;
}
