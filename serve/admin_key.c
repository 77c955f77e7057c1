/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/admin_key.h"

#include "base/str.h"
#include "proto/uri.h"
#include "serve/audit.h"

/* Takes the next NAME=VALUE off the query, decoded into *scratch, which moves on. */
static bool next_pair(struct weir_str *query, char **scratch, struct weir_entry *out)
{
    if (query->len == 0)
        return false;
    const char *end = memchr(query->ptr, '&', query->len);
    size_t item = end ? (size_t)(end - query->ptr) : query->len;
    const char *equals = memchr(query->ptr, '=', item);
    size_t name = equals ? (size_t)(equals - query->ptr) : item;
    struct weir_str value = {.ptr = query->ptr + name, .len = 0};
    if (equals)
        value = (struct weir_str){.ptr = equals + 1, .len = item - name - 1};
    out->key.ptr = *scratch;
    out->key.len = weir_uri_decode((struct weir_str){.ptr = query->ptr, .len = name}, *scratch);
    *scratch += out->key.len;
    out->value.ptr = *scratch;
    out->value.len = weir_uri_decode(value, *scratch);
    *scratch += out->value.len;
    item += item < query->len;
    *query = (struct weir_str){.ptr = query->ptr + item, .len = query->len - item};
    return true;
}

static bool is_too_long(const struct weir_admin_key *key)
{
    bool is_any = key->request.domain.len > WEIR_DOMAIN_LEN_MAX;
    for (uint32_t i = 0; i < key->descriptor.entry_count; i++)
        is_any |= key->entries[i].key.len > WEIR_KEY_LEN_MAX ||
                  key->entries[i].value.len > WEIR_VALUE_LEN_MAX;
    return is_any;
}

bool weir_admin_key_read(struct weir_admin_call *call, struct weir_admin_key *key)
{
    struct weir_entry one;
    struct weir_str query = call->query;
    char *scratch = key->decoded;
    key->descriptor = (struct weir_descriptor){.entries = key->entries};
    key->request = (struct weir_request){.descriptors = &key->descriptor, .descriptor_count = 1};
    while (next_pair(&query, &scratch, &one)) {
        if (key->request.domain.ptr == NULL && weir_str_eq(one.key, WEIR_STR("domain"))) {
            key->request.domain = one.value;
        } else if (key->descriptor.entry_count < WEIR_ENTRIES_MAX) {
            key->entries[key->descriptor.entry_count++] = one;
        } else {
            weir_admin_say(call, 400, "400 too many entries\n");
            return false;
        }
    }
    if (is_too_long(key)) {
        weir_admin_say(call, 400, "400 a name or value is longer than any that can be counted\n");
        return false;
    }
    bool is_named = key->request.domain.len > 0 && key->descriptor.entry_count > 0;
    if (!is_named)
        weir_admin_say(call, 400, "400 say which: ?domain=D&KEY=VALUE...\n");
    return is_named;
}

void weir_admin_no_hits(const struct weir_request *request, struct weir_descriptor *descriptors)
{
    for (uint32_t i = 0; i < request->descriptor_count && i < WEIR_DESCRIPTORS_MAX; i++) {
        descriptors[i].has_hits = true;
        descriptors[i].is_negative_hits = false;
        descriptors[i].hits = 0;
    }
}

/* "key=value key=value" */
static void add_words(const struct weir_admin_key *key, struct weir_buf *to)
{
    for (uint32_t i = 0; i < key->descriptor.entry_count; i++) {
        if (i > 0)
            weir_buf_add_char(to, ' ');
        weir_buf_add(to, key->entries[i].key);
        weir_buf_add_char(to, '=');
        weir_buf_add(to, key->entries[i].value);
    }
}

void weir_admin_note(const struct weir_admin_call *call, const char *what,
                     const struct weir_admin_key *key, const char *before, const char *after)
{
    struct weir_buf words;
    weir_buf_init(&words, WEIR_HTTP1_TARGET_MAX);
    add_words(key, &words);
    weir_audit_add(weir_service_audit(call->worker->service),
                   &(struct weir_audit_change){.time_ns = weir_loop_now(call->worker->loop),
                                               .what = what,
                                               .peer = call->peer,
                                               .domain = key->request.domain,
                                               .target = weir_buf_str(&words),
                                               .before = before,
                                               .after = after});
    weir_buf_fini(&words);
}

void weir_admin_put_words(struct weir_buf *to, const struct weir_key_words *words)
{
    weir_admin_add(to, ",\"domain\":");
    weir_admin_add_json(to, words->domain);
    weir_admin_add(to, ",\"entries\":[");
    for (uint32_t i = 0; i < words->entry_count; i++) {
        weir_admin_add(to, "%s{\"key\":", i > 0 ? "," : "");
        weir_admin_add_json(to, words->entries[i].key);
        weir_admin_add(to, ",\"value\":");
        weir_admin_add_json(to, words->entries[i].value);
        weir_buf_add_char(to, '}');
    }
    weir_admin_add(to, "]%s", words->is_cut ? ",\"cut\":true" : "");
}
