#ifndef WEIR_RULES_SHAPES_H
#define WEIR_RULES_SHAPES_H
#include "rules/compile.h"
static inline void weir_shapes_compile(struct weir_compiler *c, const struct weir_draft_root *root)
{
    (void)c;
    (void)root;
}
#endif
