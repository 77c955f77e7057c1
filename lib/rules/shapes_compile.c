/* Finds the shapes of a domain in its draft.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/compile.h"
#include "rules/shapes.h"

/* The chain of descriptors that leads to where we are. */
struct chain {
    struct weir_compiler *c;
    const struct weir_draft_descriptor *link[WEIR_ENTRIES_MAX];
    uint32_t len;
};

static bool is_generic(const struct weir_draft_descriptor *draft)
{
    return weir_str_eq(draft->key, WEIR_STR("generic_key"));
}

static bool is_same(const struct weir_shape *shape, const struct chain *chain)
{
    if (shape->part_count != chain->len)
        return false;
    for (uint32_t i = 0; i < chain->len; i++) {
        const struct weir_shape_part *part = &shape->parts[i];
        if (!weir_str_eq(part->key, chain->link[i]->key) ||
            (part->is_fixed && !weir_str_eq(part->fixed, chain->link[i]->value)))
            return false;
    }
    return true;
}

/* The first rule of a shape that says what an absent attribute means speaks for all of them. */
static void set_absent(struct weir_compiler *c, struct weir_shape_part *part,
                       const struct weir_draft_descriptor *draft)
{
    const struct weir_draft_extra *extra = draft->extra;
    if (!extra || extra->if_absent == WEIR_ABSENT_DROP)
        return;
    bool is_other = part->if_absent != extra->if_absent ||
                    !weir_str_eq(part->if_absent_value, extra->if_absent_value);
    if (part->if_absent == WEIR_ABSENT_DROP) {
        part->if_absent = extra->if_absent;
        part->if_absent_value = weir_arena_str(&c->rules->arena, extra->if_absent_value);
    } else if (is_other) {
        weir_report_error(c->report, extra->if_absent_at,
                          "'if_absent' of '%.*s' says something else in another rule with the "
                          "same keys",
                          WEIR_STR_ARG(draft->key));
    }
}

static void add_shape(const struct chain *chain)
{
    struct weir_compiler *c = chain->c;
    struct weir_arena *arena = &c->rules->arena;
    struct weir_shape *shape = &c->domain->shapes[c->domain->shape_count];
    struct weir_shape_part *parts = WEIR_ARENA_ARRAY(arena, chain->len, struct weir_shape_part);
    if (!parts)
        return;
    for (uint32_t i = 0; i < chain->len; i++) {
        const struct weir_draft_descriptor *draft = chain->link[i];
        parts[i].key = weir_arena_str(arena, draft->key);
        parts[i].is_fixed = is_generic(draft);
        if (parts[i].is_fixed)
            parts[i].fixed = weir_arena_str(arena, draft->value);
        set_absent(c, &parts[i], draft);
    }
    shape->parts = parts;
    shape->part_count = chain->len;
    c->domain->shape_count++;
}

static void note_chain(const struct chain *chain)
{
    struct weir_domain *domain = chain->c->domain;
    for (uint32_t i = 0; i < domain->shape_count; i++) {
        if (!is_same(&domain->shapes[i], chain))
            continue;
        for (uint32_t j = 0; j < chain->len; j++)
            set_absent(chain->c, &domain->shapes[i].parts[j], chain->link[j]);
        return;
    }
    if (domain->shape_count == WEIR_SHAPES_MAX)
        domain->has_too_many_shapes = true;
    else
        add_shape(chain);
}

/* Recursion is as deep as descriptors are, WEIR_ENTRIES_MAX. */
static void walk(struct chain *chain, const struct weir_draft_descriptor *first)
{
    for (const struct weir_draft_descriptor *d = first; d; d = d->next) {
        if (chain->c->domain->has_too_many_shapes)
            return;
        chain->link[chain->len++] = d;
        if (d->limits)
            note_chain(chain);
        walk(chain, d->children);
        chain->len--;
    }
}

void weir_compile_shapes(struct weir_compiler *c, const struct weir_draft_root *root)
{
    struct chain chain = {.c = c};
    c->domain->shapes = WEIR_ARENA_ARRAY(&c->rules->arena, WEIR_SHAPES_MAX, struct weir_shape);
    if (!c->domain->shapes)
        return;
    walk(&chain, root->descriptors);
    if (c->domain->has_too_many_shapes)
        weir_report_warning(c->report, root->domain_at,
                            "domain '%.*s' has more than %d shapes, so it cannot be used for HTTP "
                            "requests, only for descriptors",
                            WEIR_STR_ARG(root->domain), WEIR_SHAPES_MAX);
}
