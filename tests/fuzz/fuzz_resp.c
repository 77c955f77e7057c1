/* fuzz_resp.c - any bytes as a Redis client's: the same commands however they are cut.
 *
 * The first byte says into how many pieces the rest is cut.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/hash.h"
#include "proto/resp.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* What was heard, as one number: two ways of cutting must hear the same. */
struct heard {
    uint64_t digest;
    uint64_t commands;
    const char *fault;
};

static void hear(struct heard *heard, const struct weir_resp_command *command)
{
    static const struct weir_hash_key key = {1, 2};
    size_t sum = 0;
    WEIR_ASSERT(command->count >= 1 && command->count <= WEIR_RESP_ARGS_MAX);
    for (uint32_t i = 0; i < command->count; i++) {
        WEIR_ASSERT(command->args[i].len <= WEIR_RESP_BULK_MAX);
        sum += command->args[i].len;
        heard->digest = weir_mix64(
            heard->digest ^ weir_siphash13(&key, command->args[i].ptr, command->args[i].len));
    }
    WEIR_ASSERT(sum <= WEIR_RESP_COMMAND_MAX);
    heard->digest = weir_mix64(heard->digest ^ command->count);
    heard->commands++;
}

static struct heard hear_all(const uint8_t *bytes, size_t len, size_t piece)
{
    struct heard heard = {0};
    struct weir_resp resp;
    enum weir_resp_next next = WEIR_RESP_MORE;
    weir_resp_init(&resp);
    for (size_t at = 0; at < len && next == WEIR_RESP_MORE; at += piece) {
        size_t step = len - at < piece ? len - at : piece;
        uint8_t *copy = malloc(step); /* of its own, so that a slice used too late is seen */
        WEIR_ASSERT(copy != NULL);
        memcpy(copy, bytes + at, step);
        struct weir_resp_command command;
        weir_resp_feed(&resp, copy, step);
        while ((next = weir_resp_next(&resp, &command)) == WEIR_RESP_COMMAND)
            hear(&heard, &command);
        weir_resp_end(&resp);
        free(copy);
    }
    heard.fault = resp.fault;
    weir_resp_fini(&resp);
    return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 2)
        return 0;
    struct heard whole = hear_all(bytes + 1, len - 1, len - 1);
    struct heard cut = hear_all(bytes + 1, len - 1, (size_t)bytes[0] + 1);
    WEIR_ASSERT(whole.digest == cut.digest && whole.commands == cut.commands);
    WEIR_ASSERT((whole.fault == NULL) == (cut.fault == NULL));
    return 0;
}
