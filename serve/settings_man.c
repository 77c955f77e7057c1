/* settings_man.c - prints weir-serve(1), from the same table as the settings themselves.
 *
 * Runs while weir is built, and knows nothing but the table.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* roff takes a hyphen for a sign of its own, and a dot that begins a line. */
static void put(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text != '\0'; text++) {
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

static void put_setting(const char *id, const char *initial, const char *metavar, const char *also,
                        const char *help)
{
    char name[64];
    fputs(".TP\n\\fB\\-\\-", stdout);
    for (size_t i = 0; i < strlen(id); i++)
        fputs(id[i] == '_' ? "\\-" : (char[]){id[i], '\0'}, stdout);
    fputs("\\fR", stdout);
    if (metavar[0] != '\0') {
        fputs(" \\fI", stdout);
        put(metavar);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    put(help);
    fputs(".\n", stdout);
    if (initial[0] != '\0') {
        fputs("Default: ", stdout);
        put(initial);
        fputs(".\n", stdout);
    }
    snprintf(name, sizeof(name), "WEIR_%s", id);
    for (char *c = name; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    fputs("Environment: ", stdout);
    put(name);
    if (also[0] != '\0') {
        fputs(", ", stdout);
        put(also);
    }
    fputs(".\n", stdout);
}

static void put_group(const char *title)
{
    fputs(".SS ", stdout);
    put(title);
    putchar('\n');
}

static const char head[] =
    ".TH WEIR\\-SERVE 1 \"\" \"weir\" \"User Commands\"\n"
    ".SH NAME\nweir\\-serve \\- answer rate limit requests over the network\n"
    ".SH SYNOPSIS\n.B weir serve\n[\\fIOPTIONS\\fR]\n"
    ".SH DESCRIPTION\n"
    "Serves Envoy's rate limit service over gRPC, checks for gateways over HTTP, and CL.THROTTLE "
    "for\n"
    "clients of Redis, on counts in a shared\\-memory table.\n"
    ".PP\n"
    "A setting is looked for among the options, then in weir.yaml (\\fB\\-\\-config\\fR; the name "
    "with\n"
    "underscores, then its value), then in the environment, and else has its default.\n"
    "Times are written as 10s, 500ms or 1m30s, sizes as 64m or 2g.\n"
    "Switches stand alone or as \\fB\\-\\-name=off\\fR.\n"
    "\\fB\\-\\-print\\-config\\fR prints all of them, with where each came from, as a weir.yaml.\n"
    ".SH OPTIONS\n";

static const char tail[] =
    ".SH ENVIRONMENT\n"
    "The variables of envoyproxy/ratelimit mean here what they mean there: those named above, and\n"
    "HOST, PORT, GRPC_HOST, GRPC_PORT, GRPC_UDS, DEBUG_HOST, DEBUG_PORT (addresses),\n"
    "RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY (the path of the rules),\n"
    "GRPC_SERVER_USE_TLS; REDIS_URL, REDIS_TYPE, REDIS_SOCKET_TYPE, REDIS_AUTH, "
    "REDIS_SENTINEL_AUTH\n"
    "and REDIS_TLS (the store); USE_STATSD with STATSD_HOST and STATSD_PORT, and DISABLE_STATS.\n"
    ".PP\n"
    "NOTIFY_SOCKET and WATCHDOG_USEC are systemd's (Type=notify, WatchdogSec=).\n"
    ".SH SIGNALS\n"
    ".TP\n.B SIGHUP\n"
    "reads rules, certificates and log settings again. What is wrong changes nothing.\n"
    "Rules and certificates are also read when their files change.\n"
    ".TP\n.BR SIGTERM \", \" SIGINT\n"
    "turn health to not serving, wait for drain_delay, close the listeners, let connections "
    "finish\n"
    "for at most grace, and exit. A second one exits at once. Counts stay in the table.\n"
    ".SH EXIT STATUS\n"
    "0 after a signal, 1 for rules that are not valid, 2 for wrong settings, 3 if the world "
    "failed:\n"
    "an address in use, a table that cannot be opened; or after a second signal.\n"
    ".SH SEE ALSO\n.BR weir (1)\n";

int main(void)
{
    fputs(head, stdout);
#define WEIR_SETTING_GROUP(id, title) put_group(title);
#define WEIR_SETTING(id, kind, initial, metavar, also, least, most, help)                          \
    put_setting(#id, initial, metavar, also, help);
#include "config.def"
#undef WEIR_SETTING
#undef WEIR_SETTING_GROUP
    fputs(tail, stdout);
    return ferror(stdout) || fflush(stdout) != 0;
}
