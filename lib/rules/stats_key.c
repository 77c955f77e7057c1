/* The name under which envoyproxy/ratelimit counts a descriptor: the rule's path, with the
 * request's own values where the rule asks for them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules/tree.h"

#include <string.h>

struct writer {
    char *out;
    size_t len, len_max;
};

static void add(struct writer *w, struct weir_str text)
{
    size_t room = w->len < w->len_max ? w->len_max - w->len : 0;
    size_t fits = text.len < room ? text.len : room;
    if (fits)
        memcpy(w->out + w->len, text.ptr, fits);
    w->len += text.len;
}

static void add_pair(struct writer *w, struct weir_str key, struct weir_str value)
{
    add(w, key);
    if (value.len == 0)
        return;
    add(w, (struct weir_str){"_", 1});
    add(w, value);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes of the IPv4 address that text begins with; 0: it does not. */
static size_t ipv4_len(const char *text, size_t len)
{
    size_t at = 0;
    for (int group = 0; group < 4; group++) {
        size_t digits = 0;
        if (group > 0 && (at == len || text[at++] != '.'))
            return 0;
        while (at < len && is_digit(text[at]) && digits < 4)
            at++, digits++;
        if (digits == 0 || digits > 3)
            return 0;
    }
    return at;
}

void weir_rules_stats_clean(char *name, size_t len)
{
    for (size_t at = 0, dots_until = 0; at < len; at++) {
        if (is_digit(name[at]) && (at == 0 || !is_digit(name[at - 1])) && at >= dots_until)
            dots_until = at + ipv4_len(name + at, len - at);
        if (name[at] == ':' || name[at] == '|' || (unsigned char)name[at] < ' ' ||
            (name[at] == '.' && at < dots_until))
            name[at] = '_';
    }
}

size_t weir_rules_stats_key(const struct weir_domain *domain, const struct weir_entry *entries,
                            uint32_t entry_count, char *out, size_t out_len)
{
    const struct weir_rules *rules = domain->rules;
    const struct weir_node *path[WEIR_ENTRIES_MAX];
    struct weir_dict_slot at = domain->root;
    struct writer w = {out, 0, out_len};
    if (entry_count == 0 || entry_count > WEIR_ENTRIES_MAX)
        return 0;
    for (uint32_t i = 0; i < entry_count; i++) {
        at = weir_match_child(rules, at, &entries[i]);
        if (at.hash == 0)
            return 0;
        path[i] = &rules->nodes[weir_slot_node(rules, &at)];
    }
    if (!at.has_rule)
        return 0;
    bool is_detailed = rules->rules[at.index].has_detailed_metric;
    add(&w, domain->name);
    for (uint32_t i = 0; i < entry_count; i++) {
        bool is_own = (is_detailed || path[i]->has_value_to_metric) && !path[i]->is_shared;
        add(&w, (struct weir_str){".", 1});
        if (is_own)
            add_pair(&w, entries[i].key, entries[i].value);
        else
            add(&w, weir_node_text(path[i]));
    }
    weir_rules_stats_clean(out, w.len < out_len ? w.len : out_len);
    return w.len;
}
