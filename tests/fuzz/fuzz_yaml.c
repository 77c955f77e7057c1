/* fuzz_yaml.c - any bytes as a rules file: loaded or refused, and what is loaded can be matched.
 *
 * The values asked for are those that the seeds speak of, and the end of the input itself, so that
 * what libFuzzer learns about patterns it can learn about their matches too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "rules/rules.h"
#include "rules/shapes.h"

#define TAIL_LEN 24u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count_line(void *ctx, enum weir_level level, const char *line)
{
    uint32_t *errors = ctx;
    WEIR_ASSERT(line[0] != '\0' && !strchr(line, '\n'));
    *errors += level == WEIR_LEVEL_ERROR;
}

static int attribute(void *ctx, struct weir_str name, struct weir_str *value)
{
    struct weir_str *tail = ctx;
    *value = weir_str_eq(name, WEIR_STR("remote_address")) ? WEIR_STR("2001:db8::1") : *tail;
    return name.len % 5 != 0;
}

static void describe(const struct weir_domain *domain, struct weir_str tail)
{
    static struct weir_descriptor descriptors[WEIR_SHAPES_MAX];
    static struct weir_entry entries[WEIR_SHAPES_MAX * WEIR_ENTRIES_MAX];
    static char addresses[WEIR_SHAPES_MAX][WEIR_ADDRESS_TEXT_MAX];
    struct weir_shape_room room = {
        descriptors,    entries, addresses, WEIR_SHAPES_MAX, WEIR_SHAPES_MAX * WEIR_ENTRIES_MAX,
        WEIR_SHAPES_MAX};
    uint32_t count = 0;
    bool is_denied;
    struct weir_match match;
    struct weir_http http = {.attribute = attribute, .ctx = &tail};
    if (weir_shapes_describe(domain, &http, &room, &count, &is_denied))
        return;
    for (uint32_t i = 0; i < count; i++)
        weir_rules_match(domain, descriptors[i].entries, descriptors[i].entry_count, &match);
}

static void match_some(const struct weir_rules *rules, struct weir_str tail)
{
    static const char *const keys[] = {"k",           "k1",  "path", "remote_address", "user",
                                       "generic_key", "sub", "ua",   "wild",           "header.X"};
    const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
    if (!domain)
        return;
    struct weir_str values[] = {tail,          WEIR_STR(""),         WEIR_STR("/v1/orders/7/pay"),
                                WEIR_STR("a"), WEIR_STR("10.1.2.3"), WEIR_STR("2001:db8::1")};
    char name[256];
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            struct weir_entry entries[] = {{weir_str_of(keys[k]), values[v]},
                                           {WEIR_STR("sub"), tail}};
            struct weir_match match;
            weir_rules_match(domain, entries, 1, &match);
            WEIR_ASSERT(!match.rule ||
                        match.rule < weir_rules_at(rules, 0) + weir_rules_count(rules));
            weir_rules_match(domain, entries, 2, &match);
            (void)weir_rules_stats_key(domain, entries, 2, name, sizeof(name));
        }
    }
    describe(domain, tail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t errors = 0;
    struct weir_rules_options options = {.log = count_line, .log_ctx = &errors};
    struct weir_str text = {.ptr = (const char *)data, .len = size};
    struct weir_rules *rules = NULL;
    int err = weir_rules_load_text(&rules, text, "fuzz.yaml", &options);
    WEIR_ASSERT((err != 0) == (errors != 0)); /* a refusal is explained, and only a refusal */
    if (err)
        return 0;
    size_t tail = size < TAIL_LEN ? size : TAIL_LEN;
    match_some(rules, (struct weir_str){.ptr = text.ptr + size - tail, .len = tail});
    weir_rules_free(rules);
    return 0;
}
