/* rules.c - `weir rules`: the rules database.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules.h"

#include "cli.h"

#include "base/str.h"
#include "rules/files.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT_MS 10000
#define STDIN_FIRST 65536
#define NOT_GIVEN UINT64_MAX

struct settings {
    const char *store, *store_prefix;
    const char *store_tls_ca, *store_tls_cert, *store_tls_key;
    uint64_t if_version, version;
    const char *message, *who, *output;
    bool json;
};

/* What an action works with. */
struct job {
    const struct settings *set;
    struct weir_rules_db *db;
    char **args; /* behind the action */
    size_t arg_count;
};

static enum cli_exit complain_db(const struct job *job, int err)
{
    cli_complain("--store: %s", weir_rules_db_why(job->db));
    return err == WEIR_ERR_RULES ? CLI_NO : CLI_WORLD;
}

static enum cli_exit say_absent(const char *domain)
{
    cli_complain("there is no domain '%s' in the database; 'weir rules list' shows them", domain);
    return CLI_NO;
}

/* ---- looking ---- */

static enum cli_exit list(struct job *job)
{
    struct weir_rules_set set;
    int err = weir_rules_db_fetch(job->db, &set, 0);
    if (err == 0)
        cli_rules_print_set(&set, job->set->json);
    weir_rules_set_fini(&set);
    return err == 0 ? CLI_DONE : complain_db(job, err);
}

static bool write_file(const char *folder, const struct weir_rules_set_domain *domain)
{
    char path[4096];
    int len = snprintf(path, sizeof(path), "%s/%s", folder, domain->label);
    FILE *file = len > 0 && (size_t)len < sizeof(path) ? fopen(path, "w") : NULL;
    const struct weir_str text = domain->entry.text;
    bool is_good = file != NULL && fwrite(text.ptr, 1, text.len, file) == text.len;
    if (file != NULL && fclose(file) != 0)
        is_good = false;
    if (!is_good)
        cli_complain("%s: %s", path, strerror(errno));
    return is_good;
}

/* All domains, each into a file of its own. */
static enum cli_exit get_all(struct job *job)
{
    struct weir_rules_set set;
    const char *folder = job->set->output;
    if (folder == NULL) {
        cli_complain("rules get: name a domain, or with --output a directory for all of them");
        return CLI_USAGE;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        cli_complain("%s: %s", folder, strerror(errno));
        return CLI_WORLD;
    }
    int err = weir_rules_db_fetch(job->db, &set, 0);
    enum cli_exit status = err == 0 ? CLI_DONE : complain_db(job, err);
    for (uint32_t i = 0; i < set.count && err == 0; i++) {
        if (set.domains[i].wrong != NULL)
            cli_complain("%s: %s", set.domains[i].label, set.domains[i].wrong);
        if (set.domains[i].wrong != NULL || !write_file(folder, &set.domains[i]))
            status = CLI_WORLD;
    }
    weir_rules_set_fini(&set);
    return status;
}

static enum cli_exit get(struct job *job)
{
    struct weir_redis_rules_entry entry = {0};
    if (job->arg_count == 0)
        return get_all(job);
    struct weir_str domain = weir_str_of(job->args[0]);
    int found = weir_rules_db_get(job->db, domain, job->set->version, &entry);
    if (found < 0)
        return complain_db(job, found);
    if (found == 0 && job->set->version == 0)
        return say_absent(job->args[0]);
    if (found == 0 || entry.is_deleted) {
        cli_complain(found == 0 ? "version %llu of '%s' is not kept; 'weir rules history' shows "
                                  "which are"
                                : "version %llu deleted '%s'",
                     (unsigned long long)job->set->version, job->args[0]);
        return CLI_NO;
    }
    cli_rules_print_entry(domain, &entry, job->set->json);
    return CLI_DONE;
}

static enum cli_exit history(struct job *job)
{
    struct cli_rules_history told = {.domain = weir_str_of(job->args[0]),
                                     .is_json = job->set->json};
    int count = weir_rules_db_history(job->db, told.domain, cli_rules_history_add, &told);
    if (count < 0)
        return complain_db(job, count);
    if (count == 0 && !told.is_json)
        return say_absent(job->args[0]);
    cli_rules_history_end(&told);
    return count == 0 ? CLI_NO : CLI_DONE;
}

/* ---- changing ---- */

/* Who we are, where --who does not say. */
static const char *own_name(char *buf, size_t len)
{
    char host[128] = "";
    const struct passwd *user = getpwuid(geteuid());
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    if (user != NULL)
        snprintf(buf, len, "%s@%s", user->pw_name, host);
    else
        snprintf(buf, len, "%lu@%s", (unsigned long)geteuid(), host);
    return buf;
}

static struct weir_redis_rules_change change_of(const struct settings *set, const char *domain)
{
    return (struct weir_redis_rules_change){
        .domain = weir_str_of(domain),
        .has_replaces = set->if_version != NOT_GIVEN,
        .replaces = set->if_version,
    };
}

/* Prints errors alone: warnings about these files were printed when they were read. */
static void log_errors(void *ctx, enum weir_level level, const char *line)
{
    if (level == WEIR_LEVEL_ERROR)
        cli_log(ctx, level, line);
}

/* Carries it out; back_to: 0, or the version to go back to. */
static enum cli_exit carry_out(struct job *job, struct weir_rules_db_order *order, uint64_t back_to)
{
    char name[256];
    struct weir_redis_rules_result result;
    const struct settings *set = job->set;
    struct weir_redis_rules_step *steps = calloc(order->count, sizeof(*steps));
    if (steps == NULL)
        return CLI_WORLD;
    order->who = weir_str_of(set->who != NULL ? set->who : own_name(name, sizeof(name)));
    order->why = weir_str_of(set->message != NULL ? set->message : "");
    order->log = log_errors;
    int err = back_to > 0 ? weir_rules_db_rollback(job->db, order, back_to, &result, steps)
                          : weir_rules_db_change(job->db, order, &result, steps);
    enum cli_exit status = CLI_NO;
    if (err == WEIR_ERR_RULES)
        cli_complain("the rules are not valid; nothing was changed");
    else if (err == WEIR_ERR_NOT_FOUND)
        cli_complain("%s: %s; 'weir rules history' shows what is kept", job->args[0],
                     weir_rules_db_why(job->db));
    else if (err != 0)
        status = complain_db(job, err);
    else if (result.outcome == WEIR_REDIS_RULES_CONFLICT)
        cli_rules_print_conflict(order, &result, set->json);
    else if (result.outcome == WEIR_REDIS_RULES_ABSENT)
        status = say_absent(job->args[0]);
    else {
        cli_rules_print_steps(order, result.version, steps, set->json);
        status = CLI_DONE;
    }
    free(steps);
    return status;
}

static enum cli_exit change_one(struct job *job, struct weir_redis_rules_change *change,
                                uint64_t back_to)
{
    const char *label = job->args[0];
    struct weir_rules_db_order order = {.changes = change, .labels = &label, .count = 1};
    return carry_out(job, &order, back_to);
}

static enum cli_exit delete_domain(struct job *job)
{
    struct weir_redis_rules_change change = change_of(job->set, job->args[0]);
    change.is_delete = true;
    return change_one(job, &change, 0);
}

static enum cli_exit rollback(struct job *job)
{
    struct settings set = *job->set;
    char *end, message[512];
    errno = 0;
    unsigned long long version = strtoull(job->args[1], &end, 10);
    if (job->args[1][0] < '1' || job->args[1][0] > '9' || *end != '\0' || errno != 0) {
        cli_complain("rules rollback: '%s' is not a version", job->args[1]);
        return CLI_USAGE;
    }
    if (set.message == NULL) {
        snprintf(message, sizeof(message), "rollback to version %llu", version);
        set.message = message;
    }
    job->set = &set;
    struct weir_redis_rules_change change = change_of(&set, job->args[0]);
    return change_one(job, &change, version);
}

/* ---- put: files to changes ---- */

struct files {
    struct weir_rules_set set; /* whose arena holds the texts */
    struct weir_report report;
    const struct settings *settings;
    struct weir_redis_rules_change *changes;
    const char **labels;
    uint32_t count;
    bool has_errors;
};

static void note(void *ctx, enum weir_level level, const char *line)
{
    struct files *files = ctx;
    files->has_errors |= level == WEIR_LEVEL_ERROR;
    cli_log(NULL, level, line);
}

/* False only when there is no more room. */
static bool add_text(struct files *files, const char *label, struct weir_str text)
{
    if (files->count == WEIR_RULES_FILES_MAX) {
        note(files, WEIR_LEVEL_ERROR, "these are more files than a database takes");
        return false;
    }
    struct weir_arena *arena = &files->set.arena;
    const char *name = weir_arena_str(arena, (struct weir_str){label, strlen(label) + 1}).ptr;
    struct weir_redis_rules_change change = change_of(files->settings, "");
    change.text = weir_arena_str(arena, text);
    change.domain = weir_rules_set_domain_of(
        &files->set, &(const struct weir_rules_text){label, change.text}, note, files);
    for (uint32_t i = 0; i < files->count && change.domain.len > 0; i++) {
        if (!weir_str_eq(files->changes[i].domain, change.domain))
            continue;
        cli_complain("%s and %s have rules of one domain, '%.*s'", files->labels[i], label,
                     WEIR_STR_ARG(change.domain));
        files->has_errors = true;
    }
    files->labels[files->count] = name;
    files->changes[files->count++] = change;
    return !arena->has_failed;
}

static bool add_file(void *ctx, const char *path)
{
    struct files *files = ctx;
    struct weir_file file;
    if (!weir_file_read(&file, &files->report, (struct weir_mark){0}, path))
        return true;
    bool is_good = add_text(files, path, (struct weir_str){.ptr = file.ptr, .len = file.len});
    weir_file_free(&file);
    return is_good;
}

static void add_stdin(struct files *files)
{
    struct weir_buf text;
    size_t room, got;
    char *at;
    weir_buf_init(&text, WEIR_RULES_DB_TEXT_MAX + 1);
    while ((at = weir_buf_room(&text, STDIN_FIRST, &room)) != NULL &&
           (got = fread(at, 1, room, stdin)) > 0)
        text.len += got;
    (void)add_text(files, "(standard input)", weir_buf_str(&text));
    weir_buf_fini(&text);
}

static enum cli_exit put_files(struct job *job, struct files *files)
{
    for (size_t i = 0; i < job->arg_count; i++) {
        if (strcmp(job->args[i], "-") == 0)
            add_stdin(files);
        else if (weir_files_each(&files->report, job->args[i], add_file, files) != 0)
            files->has_errors = true;
    }
    bool is_unread = files->report.error_count > 0;
    weir_report_flush(&files->report, note, files);
    if (files->has_errors || files->count == 0) {
        cli_complain("nothing was changed");
        return is_unread ? CLI_WORLD : CLI_NO;
    }
    if (files->count > 1 && job->set->if_version != NOT_GIVEN) {
        cli_complain("rules put: --if-version is for one file alone");
        return CLI_USAGE;
    }
    struct weir_rules_db_order order = {
        .changes = files->changes, .labels = files->labels, .count = files->count};
    return carry_out(job, &order, 0);
}

static enum cli_exit put(struct job *job)
{
    enum cli_exit status = CLI_WORLD;
    struct files *files = calloc(1, sizeof(*files));
    if (files == NULL)
        return status;
    weir_rules_set_init(&files->set);
    weir_report_init(&files->report);
    files->settings = job->set;
    files->changes = calloc(WEIR_RULES_FILES_MAX, sizeof(*files->changes));
    files->labels = calloc(WEIR_RULES_FILES_MAX, sizeof(*files->labels));
    if (files->changes != NULL && files->labels != NULL)
        status = put_files(job, files);
    free(files->changes);
    free(files->labels);
    weir_report_fini(&files->report);
    weir_rules_set_fini(&files->set);
    free(files);
    return status;
}

/* ---- the command ---- */

static const struct {
    const char *name, *usage;
    size_t least, most;
    enum cli_exit (*run)(struct job *job);
} actions[] = {
    {"list", "", 0, 0, list},
    {"get", "[DOMAIN]", 0, 1, get},
    {"put", "PATH...", 1, SIZE_MAX, put},
    {"history", "DOMAIN", 1, 1, history},
    {"rollback", "DOMAIN VERSION", 2, 2, rollback},
    {"delete", "DOMAIN", 1, 1, delete_domain},
};

/* The number of an action; said where there is none, or its arguments are not right. */
static bool find_action(const struct cli_operands *operands, size_t *out)
{
    const char *names[CLI_COUNT_OF(actions) + 1] = {NULL};
    size_t count = operands->count - 1, i = 0;
    while (i < CLI_COUNT_OF(actions) && strcmp(actions[i].name, operands->at[0]) != 0)
        i++;
    if (i < CLI_COUNT_OF(actions) && count >= actions[i].least && count <= actions[i].most) {
        *out = i;
        return true;
    }
    if (i < CLI_COUNT_OF(actions)) {
        cli_complain("rules %s: too %s arguments; usage: weir rules %s %s", actions[i].name,
                     count < actions[i].least ? "few" : "many", actions[i].name, actions[i].usage);
        return false;
    }
    for (i = 0; i < CLI_COUNT_OF(actions); i++)
        names[i] = actions[i].name;
    const char *nearest = cli_nearest(operands->at[0], names);
    cli_complain("rules: '%s' is none of list, get, put, history, rollback, delete%s%s%s",
                 operands->at[0], nearest != NULL ? "; did you mean '" : "",
                 nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
    return false;
}

static enum cli_exit run(const void *given, const struct cli_operands *operands)
{
    const struct settings *set = given;
    size_t action;
    char why[256];
    if (!find_action(operands, &action))
        return CLI_USAGE;
    const struct weir_redis_wire_options options = {
        .url = set->store != NULL ? set->store : getenv("WEIR_RULES_STORE"),
        .tls = {.ca_path = set->store_tls_ca,
                .cert_path = set->store_tls_cert,
                .key_path = set->store_tls_key},
        .timeout_ms = TIMEOUT_MS,
    };
    struct job job = {.set = set, .args = operands->at + 1, .arg_count = operands->count - 1};
    if (options.url == NULL) {
        cli_complain("rules: --store (or WEIR_RULES_STORE in the environment) must say where the "
                     "database is: redis://HOST");
        return CLI_USAGE;
    }
    int err = weir_rules_db_new(&job.db, &options, set->store_prefix, why, sizeof(why));
    if (err != 0) {
        cli_complain("--store: %s", why);
        return err == WEIR_ERR_INVALID ? CLI_USAGE : CLI_WORLD;
    }
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL); /* net/wire.h says why */
    enum cli_exit status = actions[action].run(&job);
    weir_rules_db_free(job.db);
    return status;
}

static const struct cli_option options[] = {
    CLI_OPTION(
        CLI_TEXT, store, "URL",
        "where the database is: redis://HOST:PORT and the like; else WEIR_RULES_STORE in the "
        "environment says it"),
    CLI_OPTION(CLI_TEXT, store_prefix, "WORDS", "of all its keys (weir:)"),
    CLI_OPTION(CLI_COUNT, if_version, "N",
               "change it only if it is at this version; 0: if it is not there", .most = INT64_MAX),
    CLI_OPTION(CLI_COUNT, version, "N", "get: as it was then", .least = 1, .most = INT64_MAX),
    CLI_OPTION(CLI_TEXT, message, "WORDS", "why this change is made; history shows it"),
    CLI_OPTION(CLI_TEXT, who, "NAME", "who makes it; default: user@host"),
    CLI_OPTION(CLI_TEXT, output, "DIR", "get without DOMAIN: where to write a file for each"),
    CLI_OPTION(CLI_TEXT, store_tls_ca, "PATH", "rediss://: authorities, PEM"),
    CLI_OPTION(CLI_TEXT, store_tls_cert, "PATH", "rediss://: our certificate, PEM"),
    CLI_OPTION(CLI_TEXT, store_tls_key, "PATH", "rediss://: its private key, PEM"),
    CLI_OPTION(CLI_FLAG, json, NULL, "print one object instead of text"),
};

const struct cli_command cli_command_rules = {
    .name = "rules",
    .operands = "ACTION ...",
    .summary = "the rules database, in Redis",
    .about = "  list                       all domains, their versions, and who stored them\n"
             "  get [DOMAIN]               a domain's rules; without one, all, into --output\n"
             "  put PATH...                checks and stores files, all or none; - is stdin\n"
             "  history DOMAIN             its last 50 versions: who, when, why\n"
             "  rollback DOMAIN VERSION    stores again what was stored then\n"
             "  delete DOMAIN              its history stays for 90 days\n\n"
             "Every 'weir serve --rules-store URL' has the change within a second.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .operands_min = 1,
    .operands_max = SIZE_MAX,
    .defaults =
        &(const struct settings){.store_prefix = WEIR_RULES_DB_PREFIX, .if_version = NOT_GIVEN},
    .settings_len = sizeof(struct settings),
    .run = run,
};
