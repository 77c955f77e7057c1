/* serve.c - `weir serve`: the service.
 *
 * The options are the settings of serve/config.def, as texts: what they mean is decided where
 * weir.yaml and the environment are read too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include "serve/service.h"

#include <unistd.h>

struct settings {
    const char *flags[WEIR_SETTINGS_COUNT]; /* first: options find theirs by number */
    bool print_config;
};

static void say(void *ctx, enum weir_level level, const char *line)
{
    const struct settings *set = ctx;
    /* Who asks for the settings gets settings; warnings are for those who start. */
    if (level == WEIR_LEVEL_ERROR || !set->print_config)
        cli_complain("%s", line);
}

static enum cli_exit serve(const struct weir_settings *settings, const struct settings *set)
{
    if (set->print_config) {
        weir_settings_print(settings, stdout);
        return CLI_DONE;
    }
    int err = weir_service_run(settings, set->flags);
    return err == WEIR_ERR_INVALID ? CLI_USAGE : cli_exit_of(err);
}

static enum cli_exit run(const void *given, const struct cli_operands *operands)
{
    struct settings set = *(const struct settings *)given;
    struct weir_settings settings;
    (void)operands;
    int err = weir_settings_load(&settings, set.flags, environ, say, &set);
    enum cli_exit status = err == WEIR_ERR_INVALID ? CLI_USAGE : cli_exit_of(err);
    if (err == 0)
        status = serve(&settings, &set);
    else if (err == WEIR_ERR_NOMEM) /* all else was said where it is wrong */
        cli_complain("%s", weir_strerror(err));
    weir_settings_fini(&settings);
    return status;
}

#define KIND_TEXT CLI_TEXT
#define KIND_PATH CLI_TEXT
#define KIND_URL CLI_TEXT
#define KIND_SECRET CLI_TEXT
#define KIND_WORD CLI_TEXT
#define KIND_SWITCH CLI_SWITCH
#define KIND_COUNT CLI_TEXT
#define KIND_SIZE CLI_TEXT
#define KIND_TIME CLI_TEXT
#define KIND_RATIO CLI_TEXT

static const struct cli_option options[] = {
#define WEIR_SETTING_GROUP(id, title)
#define WEIR_SETTING(id, kind_, initial, metavar_, also, least, most, help_)                       \
    {.name = #id,                                                                                  \
     .metavar = KIND_##kind_ == CLI_SWITCH ? NULL : (metavar_),                                    \
     .kind = KIND_##kind_,                                                                         \
     .offset = offsetof(struct settings, flags[WEIR_SETTING_NUMBER_##id]),                         \
     .help = (help_)},
#include "serve/config.def"
#undef WEIR_SETTING
#undef WEIR_SETTING_GROUP
    CLI_OPTION(CLI_FLAG, print_config, NULL,
               "print the settings that hold, and who said so, as a weir.yaml; then exit"),
};

static const char *group_at(size_t index)
{
    return index < WEIR_SETTINGS_COUNT ? weir_setting_group(index) : NULL;
}

static const char *const common[] = {
    "rules",    "table",   "table_size", "store",  "consistency", "on_store_error",
    "grpc",     "http",    "resp",       "admin",  "compat",      "trusted_proxies",
    "tls_cert", "tls_key", "threads",    "config", "log_level",   "print_config",
    NULL,
};

const struct cli_command cli_command_serve = {
    .name = "serve",
    .operands = "",
    .summary = "the service: gRPC, HTTP, RESP, and an admin listener",
    .about = "Answers rate limit requests over the network.  Settings come from options, else\n"
             "weir.yaml (--config), else the environment (WEIR_GRPC for --grpc, and the\n"
             "variables of envoyproxy/ratelimit), else the defaults.  SIGHUP reads rules,\n"
             "certificates and log settings again; SIGTERM finishes what is open and exits;\n"
             "counts stay in the table.  Switches are turned off by --name=off.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .common = common,
    .group_at = group_at,
    .operands_min = 0,
    .operands_max = 0,
    .defaults = &(const struct settings){.print_config = false},
    .settings_len = sizeof(struct settings),
    .run = run,
};
