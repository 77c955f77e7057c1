/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/prom.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>

static void add_text(struct weir_buf *to, const char *text)
{
    weir_buf_add(to, weir_str_of(text));
}

void weir_prom_head(struct weir_buf *to, const char *name, const char *type, const char *help)
{
    const char *const words[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        add_text(to, words[i]);
}

static void add_escaped(struct weir_buf *to, struct weir_str value)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (c == '\n') {
            add_text(to, "\\n");
            continue;
        }
        if (c == '"' || c == '\\')
            weir_buf_add_char(to, '\\');
        weir_buf_add_char(to, c);
    }
}

void weir_prom_sample(struct weir_buf *to, const char *name, const struct weir_prom_label *labels,
                      size_t label_count, uint64_t value)
{
    char number[32];
    add_text(to, name);
    for (size_t i = 0; i < label_count; i++) {
        weir_buf_add_char(to, i == 0 ? '{' : ',');
        add_text(to, labels[i].name);
        add_text(to, "=\"");
        add_escaped(to, labels[i].value);
        weir_buf_add_char(to, '"');
    }
    snprintf(number, sizeof(number), "%s %" PRIu64 "\n", label_count > 0 ? "}" : "", value);
    add_text(to, number);
}

void weir_prom_sample_real(struct weir_buf *to, const char *name, double value)
{
    char number[32];
    add_text(to, name);
    snprintf(number, sizeof(number), " %.9g\n", value);
    add_text(to, number);
}
