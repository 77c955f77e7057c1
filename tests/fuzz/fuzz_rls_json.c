/* fuzz_rls_json.c - any bytes as the body of /json: a request or a clear refusal, never a crash.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "proto/rls_json.h"
#include "proto/utf8.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct weir_rls_json json; /* large */
    struct weir_str body = {.ptr = (const char *)bytes, .len = len};
    char why[200] = "";
    if (weir_rls_json_parse(&json, body, why, sizeof(why)) == 0)
        check_request(&json.request);
    else
        WEIR_ASSERT(why[0] != '\0');
    weir_rls_json_fini(&json);
    return 0;
}
