/* fuzz_redis_rules.c - any reply as one of the rules database: read, or refused, and nothing is
 * looked at that is not there.
 *
 * The first byte says how many domains a change was about.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "serve/rules_set.h"
#include "store/redis/rules.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static uint64_t sum; /* so that every byte that is said to be there is read */

static void touch(struct weir_str text)
{
    for (size_t i = 0; i < text.len; i++)
        sum += (unsigned char)text.ptr[i];
}

static void touch_entry(const struct weir_redis_rules_entry *entry)
{
    char file[WEIR_RULES_FILE_NAME_LEN];
    touch(entry->who);
    touch(entry->why);
    touch(entry->sha256);
    touch(entry->text);
    sum += weir_redis_rules_is_intact(entry);
    weir_rules_set_file_name(entry->who, file);
    WEIR_ASSERT(strlen(file) < sizeof(file) && file[0] != '.' && strchr(file, '/') == NULL);
}

static void read_all(const struct weir_redis_reader *reader, const struct weir_redis_node *nodes,
                     uint32_t count, uint32_t domains)
{
    struct weir_redis_rules_head head;
    struct weir_redis_rules_entry entry;
    struct weir_redis_rules_result result;
    struct weir_redis_rules_step steps[256];
    uint32_t at = 1;
    if (weir_redis_rules_read_head(reader, nodes, count, &head) == 0)
        touch((struct weir_str){.ptr = head.id, .len = strlen(head.id)});
    if (weir_redis_rules_read_entry(reader, nodes, count, &entry) == 1)
        touch_entry(&entry);
    while (weir_redis_rules_next_entry(reader, nodes, count, &at, &entry) == 1)
        touch_entry(&entry);
    if (weir_redis_rules_read_result(reader, nodes, count, &result, steps, domains) == 0) {
        touch(result.domain);
        if (result.outcome == WEIR_REDIS_RULES_CONFLICT)
            touch_entry(&result.current);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct weir_redis_node *nodes;
    struct weir_redis_reader *reader;
    uint32_t count;
    if (len < 2)
        return 0;
    WEIR_ASSERT(weir_redis_reader_new(&reader) == 0);
    if (weir_redis_reader_feed(reader, bytes + 1, len - 1) == 0)
        while (weir_redis_reader_next(reader, &nodes, &count) == 1)
            read_all(reader, nodes, count, bytes[0]);
    weir_redis_reader_free(reader);
    return 0;
}
