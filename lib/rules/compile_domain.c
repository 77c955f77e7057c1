/* Files to domains: grouped, merged, each with its tree.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/compile.h"
#include "rules/lint.h"

static void add_attribute(struct weir_compiler *c, const struct weir_draft_attribute *draft)
{
    struct weir_arena *arena = &c->rules->arena;
    struct weir_domain *domain = c->domain;
    for (uint32_t i = 0; i < domain->attribute_count; i++)
        if (weir_str_eq(domain->attributes[i].name, draft->name))
            weir_report_error(c->report, draft->at, "attribute '%.*s' is there twice",
                              WEIR_STR_ARG(draft->name));
    struct weir_attribute *attribute = &domain->attributes[domain->attribute_count++];
    attribute->number = c->rules->attribute_count++;
    attribute->name = weir_arena_str(arena, draft->name);
    attribute->from = weir_arena_str(arena, draft->from);
    attribute->otherwise = weir_arena_str(arena, draft->otherwise);
    attribute->has_otherwise = draft->has_otherwise;
    for (const struct weir_draft_pair *pair = draft->map; pair; pair = pair->next) {
        uint32_t index = c->rules->map_row_count;
        struct weir_map_row *row = &c->rules->map_rows[index];
        row->key = weir_arena_str(arena, pair->key);
        row->value = weir_arena_str(arena, pair->text);
        row->attribute = attribute->number;
        uint32_t other = weir_dict_add(c->rules, WEIR_DICT_MAP, index, row->attribute);
        if (other == WEIR_NONE) {
            c->rules->map_row_count++;
            continue;
        }
        c->rules->map_rows[other].value = row->value;
        weir_report_warning(c->report, pair->at, "'%.*s' is mapped twice; the last one counts",
                            WEIR_STR_ARG(pair->key));
    }
}

static void compile_attributes(struct weir_compiler *c, const struct weir_draft_root *root)
{
    uint32_t count = 0;
    for (const struct weir_draft_root *r = root; r; r = r->next_same)
        for (const struct weir_draft_attribute *a = r->attributes; a; a = a->next)
            count++;
    if (count == 0)
        return;
    c->domain->attributes = WEIR_ARENA_ARRAY(&c->rules->arena, count, struct weir_attribute);
    if (!c->domain->attributes)
        return;
    for (const struct weir_draft_root *r = root; r; r = r->next_same)
        for (const struct weir_draft_attribute *a = r->attributes; a; a = a->next)
            add_attribute(c, a);
}

/* Settings that several files of one domain may give: the defaults once, atomic by any of them. */
static void gather(struct weir_compiler *c, const struct weir_draft_root *root)
{
    c->defaults = NULL;
    for (const struct weir_draft_root *r = root; r; r = r->next_same) {
        c->domain->is_atomic = c->domain->is_atomic || r->is_atomic;
        c->domain->is_together = c->domain->is_atomic;
        if (!r->defaults)
            continue;
        if (c->defaults)
            weir_report_error(c->report, r->defaults_at,
                              "'defaults' of domain '%.*s' are given in %s already",
                              WEIR_STR_ARG(root->domain), c->report->files[c->defaults->at.file]);
        c->defaults = r->defaults;
    }
}

static void compile_domain(struct weir_compiler *c, const struct weir_draft_root *root,
                           uint32_t index, uint32_t node)
{
    c->domain = &c->rules->domains[index];
    gather(c, root);
    compile_attributes(c, root);
    weir_buf_cut(&c->path, 0);
    weir_buf_add(&c->path, c->domain->name);
    struct weir_compile_place place = {node, 0, weir_node_hash(c->rules, node, 0)};
    weir_compile_level(c, place, root->descriptors, NULL);
    if (c->rules->arena.has_failed || c->draft->arena.has_failed)
        return;
    weir_compile_shapes(c, root);
    weir_lint(c, root);
}

/* Puts a root behind those of its domain, or starts one.  Returns the first of them. */
static void place_root(struct weir_compiler *c, struct weir_draft_root *root, bool merge_domains,
                       struct weir_draft_root **firsts)
{
    struct weir_rules *rules = c->rules;
    uint32_t index = rules->node_count;
    struct weir_node *node = &rules->nodes[index];
    struct weir_str name = weir_arena_str(&rules->arena, root->domain);
    *node = (struct weir_node){.text = name.ptr,
                               .text_len = (uint16_t)name.len,
                               .key_len = (uint16_t)name.len,
                               .parent = WEIR_NONE,
                               .rule = rules->domain_count};
    uint32_t other = weir_dict_add(rules, WEIR_DICT_DOMAIN, index, 0);
    if (other == WEIR_NONE) {
        c->marks[index] = root->domain_at;
        firsts[rules->domain_count] = root;
        rules->domains[rules->domain_count++] = (struct weir_domain){
            .rules = rules, .name = name, .tag = weir_tag_domain(name), .node = index};
        rules->node_count++;
        return;
    }
    struct weir_draft_root *first = firsts[rules->nodes[other].rule];
    if (!merge_domains) {
        weir_report_error(c->report, root->domain_at,
                          "duplicate domain '%.*s' in config file; the first is %s",
                          WEIR_STR_ARG(root->domain), c->report->files[first->at.file]);
        return;
    }
    if (first->last_descriptor)
        first->last_descriptor->next = root->descriptors;
    else
        first->descriptors = root->descriptors;
    if (root->last_descriptor)
        first->last_descriptor = root->last_descriptor;
    struct weir_draft_root *last = first;
    while (last->next_same)
        last = last->next_same;
    last->next_same = root;
}

void weir_compile_domains(struct weir_compiler *c, bool merge_domains)
{
    uint32_t count = 0;
    for (struct weir_draft_root *root = c->draft->roots; root; root = root->next)
        count++;
    struct weir_draft_root **firsts =
        WEIR_ARENA_ARRAY(&c->draft->arena, count, struct weir_draft_root *);
    if (!firsts)
        return;
    for (struct weir_draft_root *root = c->draft->roots; root; root = root->next)
        if (root->domain.len)
            place_root(c, root, merge_domains, firsts);
    for (uint32_t i = 0; i < c->rules->domain_count; i++)
        compile_domain(c, firsts[i], i, c->rules->domains[i].node);
}
