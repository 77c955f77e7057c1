/* fuzz_jsonl.c - any bytes as a line of a trace: a request or a clear refusal, never a crash.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/maxima.h"
#include "proto/request_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Reads every byte: a sanitizer sees one that cannot be read. */
static void touch(struct weir_str text)
{
    volatile char sink;
    for (size_t i = 0; i < text.len; i++)
        sink = text.ptr[i];
    (void)sink;
}

/* What parse() promises of a request that it accepts. */
static void check_request(const struct weir_request *request)
{
    WEIR_ASSERT(request->domain.len <= WEIR_DOMAIN_LEN_MAX);
    WEIR_ASSERT(request->descriptor_count <= WEIR_DESCRIPTORS_MAX);
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        const struct weir_descriptor *descriptor = &request->descriptors[i];
        WEIR_ASSERT(descriptor->entry_count >= 1 && descriptor->entry_count <= WEIR_ENTRIES_MAX);
        for (uint32_t j = 0; j < descriptor->entry_count; j++) {
            const struct weir_entry *entry = &descriptor->entries[j];
            WEIR_ASSERT(entry->key.len >= 1 && entry->key.len <= WEIR_KEY_LEN_MAX);
            WEIR_ASSERT(entry->value.len <= WEIR_VALUE_LEN_MAX);
            touch(entry->key);
            touch(entry->value);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct weir_request_json json; /* large, and made to be used again */
    struct weir_str line = {.ptr = (const char *)bytes, .len = len};
    char why[256] = "";
    weir_request_json_init(&json);
    if (weir_request_json_parse(&json, line, why, sizeof(why)) == 0)
        check_request(&json.request);
    else
        WEIR_ASSERT(why[0] != '\0');
    weir_request_json_fini(&json);
    return 0;
}
