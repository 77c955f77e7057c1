/* gateway.c - `weir gateway`: one command that puts weir in front of an API.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include <string.h>

struct settings {
    struct gateway_texts texts;
    const char *config;
    bool print;
};

static bool load_again(void *ctx, struct gateway *gateway)
{
    const struct settings *set = ctx;
    struct gateway fresh;
    if (gateway_load(&fresh, &set->texts, set->config) != CLI_DONE) {
        gateway_fini(&fresh);
        return false;
    }
    gateway_fini(gateway);
    *gateway = fresh;
    return true;
}

static void say_ready(void *ctx, const struct gateway *gateway)
{
    (void)ctx;
    fprintf(stderr, "weir: gateway on %s", gateway->set.listen);
    if (strcmp(gateway->set.admin, "off") != 0)
        fprintf(stderr, ", admin on %s", gateway->set.admin);
    fprintf(stderr, ", rules from %s\n", gateway->set.rules);
}

static enum cli_exit print_config(const struct gateway *gateway)
{
    struct weir_buf text;
    const char *why;
    weir_buf_init(&text, SIZE_MAX);
    bool is_written = gateway_write_nginx(&text, gateway, &why);
    if (is_written)
        fwrite(text.ptr, 1, text.len, stdout);
    else
        cli_complain("gateway: %s", why);
    weir_buf_fini(&text);
    return is_written ? CLI_DONE : CLI_USAGE;
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    struct settings set = *(const struct settings *)settings;
    struct gateway gateway;
    (void)operands;
    enum cli_exit status = gateway_load(&gateway, &set.texts, set.config);
    if (status == CLI_DONE && !gateway_find_module(&gateway))
        status = CLI_WORLD;
    if (status == CLI_DONE && set.print)
        status = print_config(&gateway);
    else if (status == CLI_DONE)
        status =
            gateway_run(&gateway, &(struct gateway_life){load_again, say_ready, NULL, .ctx = &set});
    gateway_fini(&gateway);
    return status;
}

static const struct cli_option options[] = {
#define GATEWAY_SETTING(id, kind_, initial, metavar_, help_)                                       \
    {.name = #id,                                                                                  \
     .kind = CLI_TEXT,                                                                             \
     .metavar = (metavar_),                                                                        \
     .offset = offsetof(struct settings, texts.id),                                                \
     .help = (help_)},
#include "gateway.def"
#undef GATEWAY_SETTING
    CLI_OPTION(CLI_TEXT, config, "PATH",
               "all of these in a YAML file, with upstreams and routes: see weir-gateway(1)"),
    CLI_OPTION(CLI_FLAG, print, NULL, "print the nginx configuration that would be run; then exit"),
};

static const char *const common[] = {
    "rules",    "upstream", "listen", "admin",  "headers", "trusted_proxies",
    "tls_cert", "tls_key",  "store",  "config", "print",   NULL,
};

const struct cli_command cli_command_gateway = {
    .name = "gateway",
    .operands = "--rules PATH --upstream URL",
    .summary = "an nginx in front of your API, limited by weir",
    .about = "Writes an nginx configuration, and runs nginx with weir's module in the\n"
             "foreground: requests within the limits go to the upstream, others get 429.\n"
             "New rules take effect by themselves; SIGHUP reads the --config again.\n\n"
             "  weir gateway --rules rules.yaml --upstream http://127.0.0.1:3000\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .common = common,
    .defaults = &(const struct settings){.print = false},
    .settings_len = sizeof(struct settings),
    .run = run,
};
