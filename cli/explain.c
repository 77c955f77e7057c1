/* explain.c - `weir explain`: which rule does this descriptor meet, and why?
 *
 * Walks the tree of rules as matching does, one entry after the other, and says at each level what
 * was chosen; then asks the engine, without taking anything, what the limit holds now.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"

#include "cli.h"

#include "base/str.h"

#include <stdlib.h>
#include <unistd.h>

struct settings {
    const char *rules;
    const char *table;
    bool merge_domains;
    bool json;
};

/* ---- the walk ---- */

static const char *how_of(const struct weir_node *node)
{
    if (node->text_len == node->key_len)
        return "bare key";
    switch ((enum weir_match_kind)node->kind) {
    case WEIR_MATCH_WILDCARD:
        return "wildcard";
    case WEIR_MATCH_REGEX:
        return "regex";
    case WEIR_MATCH_PATH:
        return "path pattern";
    case WEIR_MATCH_CIDR:
        return "cidr";
    case WEIR_MATCH_EXACT:
    case WEIR_MATCH_UNSAID:
        break;
    }
    return "exact value";
}

/* "knows" of the keys below a node, for who asked for another: "user, path, tier". */
static void list_keys(const struct weir_rules *rules, const struct weir_node *parent, char *out,
                      size_t out_len)
{
    struct weir_str seen[8];
    size_t seen_count = 0, used = 0;
    uint32_t parent_index = (uint32_t)(parent - rules->nodes);
    out[0] = '\0';
    for (uint32_t i = 0; i < rules->node_count && used < out_len; i++) {
        const struct weir_node *node = &rules->nodes[i];
        size_t known = 0;
        if (node->parent != parent_index || node == parent)
            continue;
        while (known < seen_count && !weir_str_eq(seen[known], weir_node_key(node)))
            known++;
        if (known < seen_count)
            continue;
        if (seen_count == CLI_COUNT_OF(seen)) {
            snprintf(out + used, out_len - used, ", ...");
            return;
        }
        seen[seen_count++] = weir_node_key(node);
        int len = snprintf(out + used, out_len - used, "%s%.*s", used > 0 ? ", " : "",
                           WEIR_STR_ARG(weir_node_key(node)));
        used += len > 0 ? (size_t)len : 0;
    }
}

/* Why there is no limit, where the walk ends at `node` before or behind the last entry. */
static void say_why(const struct weir_rules *rules, const struct weir_node *node, bool is_stuck,
                    struct cli_explained *out)
{
    char keys[160];
    if (node->level == NULL) {
        snprintf(out->why, sizeof(out->why), "the rules do not go on below this level");
        return;
    }
    list_keys(rules, node, keys, sizeof(keys));
    if (is_stuck)
        snprintf(out->why, sizeof(out->why),
                 "no rule for this entry; at this level the rules know %s", keys);
    else
        snprintf(out->why, sizeof(out->why), "not at this level; the rules go on with %s", keys);
}

static const char *counted_of(const struct weir_match *match, uint32_t entry)
{
    switch ((enum weir_part)match->part[entry]) {
    case WEIR_PART_SHARED:
        return "shared";
    case WEIR_PART_PREFIX:
        return "prefix";
    case WEIR_PART_VALUE:
        break;
    }
    return "value";
}

void cli_explain_walk(const struct weir_domain *domain, struct cli_explained *out)
{
    const struct weir_rules *rules = domain->rules;
    struct weir_dict_slot at = domain->root;
    weir_rules_match(domain, out->entries, out->entry_count, &out->match);
    out->why[0] = '\0';
    out->step_count = 0;
    for (uint32_t i = 0; i < out->entry_count; i++) {
        struct weir_dict_slot next = weir_match_child(rules, at, &out->entries[i]);
        if (next.hash == 0) {
            say_why(rules, &rules->nodes[weir_slot_node(rules, &at)], true, out);
            return;
        }
        const struct weir_node *child = &rules->nodes[weir_slot_node(rules, &next)];
        struct weir_str value = weir_node_value(child);
        out->steps[out->step_count++] = (struct cli_step){
            .how = how_of(child),
            .pattern = value.len > 0 ? value : weir_node_key(child),
            .counted = counted_of(&out->match, i),
        };
        at = next;
    }
    if (out->match.rule == NULL)
        say_why(rules, &rules->nodes[weir_slot_node(rules, &at)], false, out);
}

/* ---- arguments ---- */

/* Cuts "key=value,key=value" into entries, in place.  "\," is a comma in a value. */
static bool parse_descriptor(char *text, struct cli_explained *out)
{
    char *from = text;
    out->entry_count = 0;
    for (;;) {
        char *equals = strchr(from, '=');
        if (equals == NULL || equals == from || out->entry_count == WEIR_ENTRIES_MAX ||
            memchr(from, ',', (size_t)(equals - from)) != NULL)
            return false;
        char *to = equals + 1, *at = to;
        for (; *at != '\0' && *at != ','; at++) {
            if (at[0] == '\\' && at[1] == ',')
                at++;
            *to++ = *at;
        }
        out->entries[out->entry_count++] = (struct weir_entry){
            .key = {from, (size_t)(equals - from)},
            .value = {equals + 1, (size_t)(to - equals - 1)},
        };
        if (*at == '\0')
            return true;
        from = at + 1;
    }
}

static enum cli_exit read_descriptor(char *text, struct cli_explained *out)
{
    if (!parse_descriptor(text, out)) {
        cli_complain("explain: '%s' is not key=value[,key=value...] with at most %d entries", text,
                     WEIR_ENTRIES_MAX);
        return CLI_USAGE;
    }
    for (uint32_t i = 0; i < out->entry_count; i++) {
        if (out->entries[i].key.len > WEIR_KEY_LEN_MAX ||
            out->entries[i].value.len > WEIR_VALUE_LEN_MAX) {
            cli_complain("explain: a key has at most %d bytes, a value at most %d",
                         WEIR_KEY_LEN_MAX, WEIR_VALUE_LEN_MAX);
            return CLI_USAGE;
        }
    }
    return CLI_DONE;
}

/* ---- the command ---- */

struct explanation {
    const struct settings *settings;
    struct weir_rules *rules;
    struct weir *engine;
    struct weir_session *session;
    const struct weir_domain *domain;
};

static enum cli_exit open_all(struct explanation *e)
{
    const struct settings *set = e->settings;
    if (set->table != NULL && access(set->table, R_OK | W_OK) != 0) {
        cli_complain("%s: no table that can be read and written; without --table, limits are shown "
                     "unused",
                     set->table);
        return CLI_WORLD;
    }
    struct weir_options options = {
        .rules_path = set->rules,
        .table_path = set->table,
        .table_bytes = 8u << 20,
        .merge_domains = set->merge_domains,
        .log = cli_log,
    };
    struct weir_rules_options rules_options = {
        .path = set->rules,
        .merge_domains = set->merge_domains, /* no log: weir_open() has said it all */
    };
    int err = weir_open(&e->engine, &options);
    if (err == 0)
        err = weir_session_open(&e->session, e->engine);
    if (err == 0)
        err = weir_rules_load(&e->rules, &rules_options);
    return err == 0 ? CLI_DONE : cli_cannot_open(set->rules, err);
}

static enum cli_exit find_domain(struct explanation *e, const char *name)
{
    e->domain = weir_rules_domain(e->rules, weir_str_of(name));
    if (e->domain != NULL)
        return CLI_DONE;
    cli_complain("the rules have no domain '%s'; they have:", name);
    for (uint32_t i = 0; i < e->rules->domain_count; i++)
        fprintf(stderr, "  %.*s\n", WEIR_STR_ARG(e->rules->domains[i].name));
    return CLI_NO;
}

/* What the limit holds now: a request of no hits looks and takes nothing. */
static int look(struct explanation *e, struct cli_explained *one)
{
    const struct weir_descriptor descriptor = {
        .entries = one->entries,
        .entry_count = one->entry_count,
        .has_hits = true,
        .hits = 0,
    };
    const struct weir_request request = {
        .domain = e->domain->name,
        .descriptors = &descriptor,
        .descriptor_count = 1,
    };
    struct weir_decision decision = {.statuses = &one->status};
    return weir_check(e->session, &request, weir_now(e->engine), &decision);
}

static enum cli_exit explain_all(struct explanation *e, const struct cli_operands *operands)
{
    struct cli_explained *one = calloc(1, sizeof(*one));
    if (one == NULL) {
        cli_complain("out of memory");
        return CLI_WORLD;
    }
    enum cli_exit status = CLI_DONE;
    cli_explain_begin(e->domain, e->settings->json);
    for (size_t i = 1; i < operands->count && status == CLI_DONE; i++) {
        status = read_descriptor(operands->at[i], one);
        if (status != CLI_DONE)
            break;
        cli_explain_walk(e->domain, one);
        int err = look(e, one);
        if (err != 0) {
            cli_complain("%s: %s", operands->at[i], weir_strerror(err));
            status = CLI_WORLD;
            break;
        }
        cli_explain_print(one, i == 1, e->settings->json);
    }
    cli_explain_end(e->settings->json);
    free(one);
    return status;
}

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    struct explanation e = {.settings = settings};
    if (e.settings->rules == NULL) {
        cli_complain("explain: --rules PATH is missing");
        return CLI_USAGE;
    }
    enum cli_exit status = open_all(&e);
    if (status == CLI_DONE)
        status = find_domain(&e, operands->at[0]);
    if (status == CLI_DONE)
        status = explain_all(&e, operands);
    weir_rules_free(e.rules);
    weir_session_close(e.session);
    weir_close(e.engine);
    return status;
}

static const struct cli_option options[] = {
    CLI_OPTION(CLI_TEXT, rules, "PATH", "the rules: a file or a directory (required)"),
    CLI_OPTION(CLI_TEXT, table, "PATH", "show what this table counts now; nothing is taken"),
    CLI_OPTION(CLI_FLAG, merge_domains, NULL, "several rules files may speak of one domain"),
    CLI_OPTION(CLI_FLAG, json, NULL, "one object instead of text"),
};

const struct cli_command cli_command_explain = {
    .name = "explain",
    .operands = "--rules PATH DOMAIN [KEY=VALUE,...]...",
    .summary = "which rule a descriptor meets, why, and what is left",
    .about = "For each descriptor: what was chosen at each level of the rules, which limits\n"
             "that makes, and how much is left of them.  Without any, the shapes of the\n"
             "domain: which keys its rules look at.  A comma in a value is written \\, .\n\n"
             "  weir explain --rules rules.yaml api path=/v1/pay,user=alice user=bob\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .operands_min = 1,
    .operands_max = SIZE_MAX,
    .defaults = &(const struct settings){.json = false},
    .settings_len = sizeof(struct settings),
    .run = run,
};
