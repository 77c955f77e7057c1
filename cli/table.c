/* table.c - `weir table`: look into a shared-memory file, or give it another size.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include "algo/limit.h"
#include "base/str.h"
#include "table/internal.h"
#include "table/table.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct settings {
    bool json;
    uint64_t limit;
    uint64_t size;
    const char *output;
};

#define WHY_LEN 256

/* Everything that stat shows, read once. */
struct view {
    const char *path;
    struct weir_table_stats stats;
    struct weir_table_geometry layout;
    uint32_t version;
    uint64_t created_ns, now_ns, wall_ns;
    uint64_t windows_s[WEIR_WINDOWS_MAX];
    size_t window_count;
};

static uint64_t wall_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * WEIR_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void take_view(struct view *view, struct weir_table *table, const char *path)
{
    *view = (struct view){.path = path, .wall_ns = wall_now()};
    view->now_ns = weir_table_now(table);
    view->version = table->header->version;
    view->created_ns = table->header->created_ns;
    weir_table_stats(table, view->now_ns, &view->stats);
    weir_table_layout(table, &view->layout);
    for (uint32_t class = 0; class < WEIR_WINDOWS_MAX; class ++) {
        uint64_t window_s = weir_class_window_s(table, class);
        if (window_s != 0)
            view->windows_s[view->window_count++] = window_s;
    }
}

static const char *date_of(struct cli_words *buf, uint64_t ns)
{
    struct tm parts;
    time_t seconds = (time_t)(ns / WEIR_NS_PER_S);
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(buf->text, sizeof(buf->text), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(buf->text, sizeof(buf->text), "%" PRIu64 " ns", ns);
    return buf->text;
}

static void print_windows(const struct view *view)
{
    struct cli_words words;
    printf("windows     %s", view->window_count == 0 ? "none yet" : "");
    for (size_t i = 0; i < view->window_count; i++)
        printf("%s%s", i > 0 ? ", " : "",
               cli_words_duration(&words, view->windows_s[i] * WEIR_NS_PER_S));
    printf("\n");
}

static void print_stat(const struct view *view)
{
    struct cli_words a, b, c;
    const struct weir_table_stats *stats = &view->stats;
    uint64_t ahead_ns = view->now_ns > view->wall_ns ? view->now_ns - view->wall_ns : 0;
    uint64_t behind_ns = view->wall_ns > view->now_ns ? view->wall_ns - view->now_ns : 0;
    printf("table       %s\n", view->path);
    printf("size        %s\n", cli_words_bytes(&a, stats->file_bytes));
    printf("version     %" PRIu32 ", made %s\n", view->version, date_of(&a, view->created_ns));
    printf("slots       %s of 16 bytes\n", cli_words_count(&a, stats->slots));
    printf("  used      %s (%s), of which %s live\n", cli_words_count(&a, stats->slots_used),
           cli_words_share(&b, stats->slots_used, stats->slots),
           cli_words_count(&c, stats->slots_live));
    printf("  inserted  %s keys; %s had to leave early\n", cli_words_count(&a, stats->insertions),
           cli_words_count(&b, stats->evictions));
    printf("sketch      %s in %s cells; asked for %s keys\n",
           cli_words_bytes(&a, view->layout.sketch_cells * 8),
           cli_words_count(&b, view->layout.sketch_cells),
           cli_words_count(&c, stats->sketch_answers));
    printf("extents     %s", cli_words_bytes(&a, stats->extent_bytes));
    printf(", %s used\n", cli_words_bytes(&a, stats->extent_bytes_used));
    printf("records     %s limits\n", cli_words_count(&a, view->layout.records));
    print_windows(view);
    printf("clock       %s, %s %s the wall clock\n", date_of(&a, view->now_ns),
           cli_words_duration(&b, ahead_ns + behind_ns), ahead_ns > 0 ? "ahead of" : "behind");
}

static void print_stat_json(const struct view *view)
{
    const struct weir_table_stats *stats = &view->stats;
    json_t *windows = json_array();
    for (size_t i = 0; i < view->window_count; i++)
        json_array_append_new(windows, json_integer((json_int_t)view->windows_s[i]));
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I}",
        "path", view->path, "version", (json_int_t)view->version, "file_bytes",
        (json_int_t)stats->file_bytes, "created_ns", (json_int_t)view->created_ns, "slots",
        (json_int_t)stats->slots, "slots_used", (json_int_t)stats->slots_used, "slots_live",
        (json_int_t)stats->slots_live, "insertions", (json_int_t)stats->insertions, "evictions",
        (json_int_t)stats->evictions, "sketch_cells", (json_int_t)view->layout.sketch_cells,
        "sketch_answers", (json_int_t)stats->sketch_answers, "extent_bytes",
        (json_int_t)stats->extent_bytes, "extent_bytes_used", (json_int_t)stats->extent_bytes_used,
        "records", (json_int_t)view->layout.records, "windows_s", windows, "now_ns",
        (json_int_t)view->now_ns, "wall_ns", (json_int_t)view->wall_ns);
    json_dumpf(root, stdout, 0);
    printf("\n");
    json_decref(root);
}

/* ---- dump ---- */

struct dump {
    const struct settings *settings;
    uint64_t now_ns;
    uint64_t seen;
};

static void dump_slot(void *ctx, const struct weir_slot_view *slot)
{
    struct dump *dump = ctx;
    struct cli_words left;
    if (dump->seen++ >= dump->settings->limit)
        return;
    if (dump->settings->json) {
        printf("{\"index\": %" PRIu64 ", \"fingerprint\": \"%011" PRIx64 "\", \"kind\": \"%s\", "
               "\"expires_ns\": %" PRIu64 ", \"window_s\": %" PRIu64 ", \"values\": [%" PRIu64
               ", %" PRIu64 ", %" PRIu64 "]}\n",
               slot->index, slot->fingerprint, slot->kind, slot->expires_ns, slot->window_s,
               slot->a, slot->b, slot->c);
        return;
    }
    cli_words_duration(&left,
                       slot->expires_ns > dump->now_ns ? slot->expires_ns - dump->now_ns : 0);
    printf("%10" PRIu64 "  %011" PRIx64 "  %-7s  %12s  %10" PRIu64 "  %" PRIu64 " %" PRIu64
           " %" PRIu64 "\n",
           slot->index, slot->fingerprint, slot->kind, left.text, slot->window_s, slot->a, slot->b,
           slot->c);
}

static enum cli_exit dump_table(const struct settings *set, struct weir_table *table)
{
    struct dump dump = {.settings = set, .now_ns = weir_table_now(table)};
    struct cli_words left, all;
    if (!set->json)
        printf("%10s  %-11s  %-7s  %12s  %10s  %s\n", "slot", "fingerprint", "kind", "expires in",
               "window s", "values");
    weir_table_dump(table, dump.now_ns, dump_slot, &dump);
    if (dump.seen > set->limit && !set->json)
        printf("... and %s more of %s live slots\n", cli_words_count(&left, dump.seen - set->limit),
               cli_words_count(&all, dump.seen));
    return CLI_DONE;
}

/* ---- resize ---- */

/* Without --output the new file takes the name of the old one, which lives on, nameless, for those
 * who have it open. */
static enum cli_exit replace_table(const char *path, const struct weir_table_geometry *geometry)
{
    char why[WHY_LEN];
    char *beside;
    if (asprintf(&beside, "%s.resize.%ld", path, (long)getpid()) < 0) {
        cli_complain("out of memory");
        return CLI_WORLD;
    }
    enum cli_exit status = CLI_WORLD;
    if (weir_table_resize(path, beside, geometry, why, sizeof(why)) != 0) {
        cli_complain("%s", why);
    } else if (rename(beside, path) != 0) {
        cli_complain("%s: %s", path, strerror(errno));
        unlink(beside);
    } else {
        cli_complain("processes that have the old table open keep it until they reopen %s", path);
        status = CLI_DONE;
    }
    free(beside);
    return status;
}

static enum cli_exit resize_table(const struct settings *set, const char *path)
{
    struct weir_table_geometry geometry = {.file_bytes = set->size};
    char why[WHY_LEN];
    if (set->size < WEIR_TABLE_BYTES_MIN) {
        cli_complain(set->size == 0 ? "table resize: --size SIZE is missing"
                                    : "table resize: --size must be at least 1m");
        return CLI_USAGE;
    }
    if (set->output == NULL)
        return replace_table(path, &geometry);
    if (weir_table_resize(path, set->output, &geometry, why, sizeof(why)) != 0) {
        cli_complain("%s", why);
        return CLI_WORLD;
    }
    return CLI_DONE;
}

static enum cli_exit stat_table(const struct settings *set, struct weir_table *table,
                                const char *path)
{
    struct view view;
    take_view(&view, table, path);
    if (set->json)
        print_stat_json(&view);
    else
        print_stat(&view);
    return CLI_DONE;
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    static const char *const verbs[] = {"stat", "dump", "resize", NULL};
    const char *verb = operands->at[0], *path = operands->at[1];
    struct weir_table *table;
    char why[WHY_LEN];
    if (strcmp(verb, "resize") == 0)
        return resize_table(settings, path);
    if (strcmp(verb, "stat") != 0 && strcmp(verb, "dump") != 0) {
        const char *nearest = cli_nearest(verb, verbs);
        cli_complain("table: '%s' is not one of stat, dump, resize%s%s%s", verb,
                     nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "'?" : "");
        return CLI_USAGE;
    }
    if (weir_table_attach(&table, path, why, sizeof(why)) != 0) {
        cli_complain("%s", why);
        return CLI_WORLD;
    }
    enum cli_exit status =
        strcmp(verb, "stat") == 0 ? stat_table(settings, table, path) : dump_table(settings, table);
    weir_table_close(table);
    return status;
}

static const struct cli_option options[] = {
    CLI_OPTION(CLI_FLAG, json, NULL, "stat: one object; dump: one object a line"),
    CLI_OPTION(CLI_COUNT, limit, "N", "dump: at most this many slots", .most = UINT64_MAX),
    CLI_OPTION(CLI_SIZE, size, "SIZE", "resize: of the whole new file, such as 128m"),
    CLI_OPTION(CLI_TEXT, output, "PATH",
               "resize: write the new file here and leave the old one alone"),
};

const struct cli_command cli_command_table = {
    .name = "table",
    .operands = "stat|dump|resize PATH",
    .summary = "look into a shared-memory table, or resize it",
    .about = "stat    says how large the table at PATH is, how full, and what its clock reads\n"
             "dump    shows every live slot: keys are hashed, so a slot names no one\n"
             "resize  makes a table of another size with all that is counted.  Without\n"
             "        --output it takes the place of the old one; processes that have the\n"
             "        old one open keep counting there until they reopen it\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .operands_min = 2,
    .operands_max = 2,
    .defaults = &(const struct settings){.limit = UINT64_MAX},
    .settings_len = sizeof(struct settings),
    .run = run,
};
