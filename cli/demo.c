/* demo.c - `weir demo`: weir at work, with nothing prepared.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct settings {
    const char *rules;
    const char *table;
    double seconds; /* 0: until Ctrl-C */
    bool terminal;
};

/* The rules as a file of our own, since an engine reads rules from files. */
struct rules_file {
    char folder[64];
    char path[96];
};

static int write_rules(struct rules_file *out, const char *text)
{
    const char *tmp = getenv("TMPDIR");
    struct rules_file file;
    int len = snprintf(file.folder, sizeof(file.folder), "%s/weir-demo-XXXXXX",
                       tmp != NULL ? tmp : "/tmp");
    if (len < 0 || (size_t)len >= sizeof(file.folder)) /* a very long TMPDIR */
        snprintf(file.folder, sizeof(file.folder), "/tmp/weir-demo-XXXXXX");
    /* nginx's workers, who may be somebody else, read it again when it changes. */
    if (mkdtemp(file.folder) == NULL || chmod(file.folder, 0755) != 0)
        return WEIR_ERR_IO;
    snprintf(file.path, sizeof(file.path), "%s/demo.yaml", file.folder);
    *out = file;
    FILE *to = fopen(file.path, "w");
    if (to == NULL)
        return WEIR_ERR_IO;
    fputs(text, to);
    return fclose(to) == 0 ? 0 : WEIR_ERR_IO;
}

static void remove_rules(const struct rules_file *file)
{
    if (file->folder[0] == '\0')
        return;
    unlink(file->path);
    rmdir(file->folder);
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    const struct settings *set = settings;
    struct rules_file file = {.folder = ""};
    const char *path = set->rules;
    int err = 0;
    (void)operands;
    if (path == NULL) {
        err = write_rules(&file, set->terminal ? cli_terminal_rules : cli_demo_rules);
        path = file.path;
        if (err != 0)
            cli_complain("demo: cannot write its rules: %s", strerror(errno));
    }
    enum cli_exit status = cli_exit_of(err);
    if (err == 0 && !set->terminal) {
        status = demo_gateway(path, set->table, set->seconds);
    } else if (err == 0) {
        err = demo_terminal(path, set->table, set->seconds);
        if (err != 0)
            cli_complain("demo: %s", weir_strerror(err));
        status = cli_exit_of(err);
    }
    remove_rules(&file);
    return status;
}

static const struct cli_option options[] = {
    CLI_OPTION(CLI_FLAG, terminal, NULL,
               "no network: made-up traffic, decisions streaming by, totals for each rule"),
    CLI_OPTION(CLI_TEXT, rules, "PATH",
               "a copy of examples/rules/demo.yaml (terminal.yaml); what you change there takes "
               "effect at once"),
    CLI_OPTION(CLI_TEXT, table, "PATH",
               "count in this file, for 'weir table stat' beside it; its own if not given"),
    CLI_OPTION(CLI_SECONDS, seconds, "N", "stop by itself; until Ctrl-C if not given"),
};

const struct cli_command cli_command_demo = {
    .name = "demo",
    .operands = "",
    .summary = "a small API, the gateway before it, and what to try",
    .about = "Starts an API with three endpoints, and nginx with weir inside before it, all on\n"
             "this machine's own addresses, and says what to try with curl.  Ctrl-C stops it.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .defaults = &(const struct settings){.seconds = 0},
    .settings_len = sizeof(struct settings),
    .run = run,
};
