/* fuzz_rls_json.c - any bytes as the body of /json: a request or a clear refusal, never a crash.
 *
 * What is read as a request is JSON to libjansson, too, and says the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "proto/rls_json.h"
#include "proto/utf8.h"

#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* What parse() promises of a request that it accepts. */
static void check_request(const struct weir_request *request)
{
    WEIR_ASSERT(request->domain.len <= WEIR_DOMAIN_LEN_MAX);
    WEIR_ASSERT(weir_utf8_is_valid(request->domain));
    WEIR_ASSERT(request->descriptor_count <= WEIR_DESCRIPTORS_MAX);
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        const struct weir_descriptor *d = &request->descriptors[i];
        WEIR_ASSERT(d->entry_count <= WEIR_ENTRIES_MAX);
        WEIR_ASSERT(!d->override || d->override->unit <= WEIR_UNIT_WEEK);
        for (uint32_t j = 0; j < d->entry_count; j++) {
            WEIR_ASSERT(d->entries[j].key.len <= WEIR_KEY_LEN_MAX);
            WEIR_ASSERT(d->entries[j].value.len <= WEIR_VALUE_LEN_MAX);
            WEIR_ASSERT(weir_utf8_is_valid(d->entries[j].key));
            WEIR_ASSERT(weir_utf8_is_valid(d->entries[j].value));
        }
    }
}

static void check_same(struct weir_str ours, const json_t *theirs)
{
    const char *text = json_is_string(theirs) ? json_string_value(theirs) : "";
    WEIR_ASSERT(ours.len == (json_is_string(theirs) ? json_string_length(theirs) : 0));
    WEIR_ASSERT(ours.len == 0 || memcmp(ours.ptr, text, ours.len) == 0);
}

static void compare(const struct weir_request *request, struct weir_str body)
{
    json_error_t error;
    json_t *root =
        json_loadb(body.ptr, body.len,
                   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    WEIR_ASSERT(root != NULL);
    check_same(request->domain, json_object_get(root, "domain"));
    const json_t *descriptors = json_object_get(root, "descriptors");
    WEIR_ASSERT(json_array_size(descriptors) == request->descriptor_count);
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        const struct weir_descriptor *d = &request->descriptors[i];
        const json_t *entries = json_object_get(json_array_get(descriptors, i), "entries");
        WEIR_ASSERT(json_array_size(entries) == d->entry_count);
        for (uint32_t j = 0; j < d->entry_count; j++) {
            check_same(d->entries[j].key, json_object_get(json_array_get(entries, j), "key"));
            check_same(d->entries[j].value, json_object_get(json_array_get(entries, j), "value"));
        }
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct weir_rls_json json; /* large */
    struct weir_str body = {.ptr = (const char *)bytes, .len = len};
    char why[200] = "";
    if (weir_rls_json_parse(&json, body, why, sizeof(why)) == 0) {
        check_request(&json.request);
        compare(&json.request, body);
    } else {
        WEIR_ASSERT(why[0] != '\0');
    }
    weir_rls_json_fini(&json);
    return 0;
}
