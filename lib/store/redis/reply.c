/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/reply.h"

#include "base/err.h"
#include "base/str.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#define NODES_FIRST 64u
#define TIME_LEN 9u /* of the time before the bytes of a call's counters */

struct weir_redis_reader {
    redisReader *parser;
    struct weir_redis_node *nodes;
    uint32_t count, capacity;
    struct weir_buf bytes; /* of all strings of the reply */
    bool is_too_large;
};

/* ---- hiredis's callbacks: what it makes of each is a node ---- */

/* alloc: the list grows to what replies need, and stays so. */
static void *add_node(const redisReadTask *task, enum weir_redis_type type, int64_t number)
{
    struct weir_redis_reader *reader = task->privdata;
    if (reader->count == reader->capacity) {
        uint32_t capacity = reader->capacity > 0 ? 2 * reader->capacity : NODES_FIRST;
        struct weir_redis_node *nodes = NULL;
        if (capacity <= WEIR_REDIS_NODES_MAX)
            nodes = realloc(reader->nodes, capacity * sizeof(*nodes));
        if (nodes == NULL) {
            reader->is_too_large = true;
            return NULL;
        }
        reader->nodes = nodes;
        reader->capacity = capacity;
    }
    reader->nodes[reader->count++] =
        (struct weir_redis_node){.type = type, .at = reader->bytes.len, .number = number};
    return reader; /* all that hiredis asks is that it is not NULL */
}

static void *add_string(const redisReadTask *task, char *bytes, size_t len)
{
    struct weir_redis_reader *reader = task->privdata;
    bool is_error = task->type == REDIS_REPLY_ERROR;
    void *made = add_node(task, is_error ? WEIR_REDIS_ERROR : WEIR_REDIS_STRING, (int64_t)len);
    weir_buf_add(&reader->bytes, (struct weir_str){.ptr = bytes, .len = len});
    reader->is_too_large |= reader->bytes.has_failed;
    return reader->bytes.has_failed ? NULL : made;
}

#if HIREDIS_MAJOR >= 1
typedef size_t array_size;
#else
typedef int array_size;
#endif

static void *add_array(const redisReadTask *task, array_size size)
{
    return add_node(task, WEIR_REDIS_ARRAY, (int64_t)size);
}

static void *add_integer(const redisReadTask *task, long long number)
{
    return add_node(task, WEIR_REDIS_INTEGER, number);
}

static void *add_nil(const redisReadTask *task)
{
    return add_node(task, WEIR_REDIS_NIL, 0);
}

static void forget(void *made)
{
    (void)made;
}

static redisReplyObjectFunctions makers = {
    .createString = add_string,
    .createArray = add_array,
    .createInteger = add_integer,
    .createNil = add_nil,
    .freeObject = forget,
};

/* ---- the reader ---- */

int weir_redis_reader_new(struct weir_redis_reader **out)
{
    struct weir_redis_reader *reader = calloc(1, sizeof(*reader));
    redisReader *parser = redisReaderCreateWithFunctions(&makers);
    if (reader == NULL || parser == NULL) {
        free(reader);
        if (parser != NULL)
            redisReaderFree(parser);
        return WEIR_ERR_NOMEM;
    }
    weir_buf_init(&reader->bytes, WEIR_REDIS_UNREAD_MAX);
    parser->privdata = reader;
    reader->parser = parser;
    *out = reader;
    return 0;
}

void weir_redis_reader_free(struct weir_redis_reader *reader)
{
    if (reader == NULL)
        return;
    redisReaderFree(reader->parser);
    weir_buf_fini(&reader->bytes);
    free(reader->nodes);
    free(reader);
}

int weir_redis_reader_feed(struct weir_redis_reader *reader, const void *bytes, size_t len)
{
    size_t unread = reader->parser->len - reader->parser->pos;
    if (len > WEIR_REDIS_UNREAD_MAX - unread)
        return WEIR_ERR_TOO_LARGE;
    return redisReaderFeed(reader->parser, bytes, len) == REDIS_OK ? 0 : WEIR_ERR_NOMEM;
}

int weir_redis_reader_next(struct weir_redis_reader *reader, const struct weir_redis_node **nodes,
                           uint32_t *count)
{
    void *reply = NULL;
    if (reader->parser->ridx == -1) { /* the last one was whole: a new one begins */
        reader->count = 0;
        weir_buf_cut(&reader->bytes, 0);
    }
    if (redisReaderGetReply(reader->parser, &reply) != REDIS_OK)
        return reader->is_too_large ? WEIR_ERR_TOO_LARGE : WEIR_ERR_STORE;
    if (reply == NULL)
        return 0;
    *nodes = reader->nodes;
    *count = reader->count;
    return 1;
}

struct weir_str weir_redis_node_str(const struct weir_redis_reader *reader,
                                    const struct weir_redis_node *node)
{
    if (node->type != WEIR_REDIS_STRING && node->type != WEIR_REDIS_ERROR)
        return (struct weir_str){0};
    return (struct weir_str){.ptr = weir_buf_str(&reader->bytes).ptr + node->at,
                             .len = (size_t)node->number};
}

/* ---- errors ---- */

static const struct {
    struct weir_str words;
    enum weir_redis_cure cure;
} errors[] = {
#define X(name, text, does) {{.ptr = (text), .len = sizeof(text) - 1}, WEIR_REDIS_CURE_##does},
#include "store/redis/errors.def"
#undef X
};

enum weir_redis_error weir_redis_error_of(struct weir_str words)
{
    unsigned error = 0;
    while (!weir_str_starts(words, errors[error].words)) /* the last one's are none */
        error++;
    return (enum weir_redis_error)error;
}

enum weir_redis_cure weir_redis_cure_of(enum weir_redis_error error)
{
    return errors[error].cure;
}

int weir_redis_redirect_read(struct weir_str words, struct weir_redis_redirect *out)
{
    enum weir_redis_error error = weir_redis_error_of(words);
    if (error != WEIR_REDIS_ERROR_MOVED && error != WEIR_REDIS_ERROR_ASK)
        return WEIR_ERR_INVALID;
    size_t at = errors[error].words.len;
    uint32_t slot = 0;
    size_t first = at;
    for (; at < words.len && words.ptr[at] >= '0' && words.ptr[at] <= '9' && slot < 16384; at++)
        slot = slot * 10 + (uint32_t)(words.ptr[at] - '0');
    if (at == first || slot >= 16384 || at + 1 >= words.len || words.ptr[at] != ' ')
        return WEIR_ERR_INVALID;
    *out = (struct weir_redis_redirect){
        .slot = (uint16_t)slot,
        .is_ask = error == WEIR_REDIS_ERROR_ASK,
        .address = {.ptr = words.ptr + at + 1, .len = words.len - at - 1},
    };
    return 0;
}

/* ---- the answer to a call ---- */

#define GRANT_LEN 4u

/* The time, a byte for each counter, and what was leased. */
static size_t head_len(const struct weir_redis_counter *counters, uint32_t count)
{
    size_t len = TIME_LEN + count;
    for (uint32_t i = 0; i < count; i++)
        len += counters[i].op == WEIR_OP_LEASE ? GRANT_LEN : 0;
    return len;
}

int weir_redis_answer_read(const struct weir_redis_reader *reader,
                           const struct weir_redis_node *nodes, uint32_t node_count,
                           struct weir_redis_counter *counters, uint32_t count, uint64_t *now_ns)
{
    if (node_count != count + 2 || nodes[0].type != WEIR_REDIS_ARRAY ||
        nodes[1].type != WEIR_REDIS_STRING || nodes[1].number != (int64_t)head_len(counters, count))
        return WEIR_ERR_STORE;
    struct weir_str head = weir_redis_node_str(reader, &nodes[1]);
    uint64_t s = weir_redis_get(head.ptr, 5), ns = weir_redis_get(head.ptr + 5, 4);
    if (s > UINT64_MAX / WEIR_NS_PER_S - 1 || ns >= WEIR_NS_PER_S)
        return WEIR_ERR_STORE;
    *now_ns = s * WEIR_NS_PER_S + ns;
    const char *grant = head.ptr + TIME_LEN + count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t granted = 0;
        if (counters[i].op == WEIR_OP_LEASE) {
            granted = (uint32_t)weir_redis_get(grant, GRANT_LEN);
            grant += GRANT_LEN;
        }
        const struct weir_redis_node *stored = &nodes[2 + i];
        if (stored->type != WEIR_REDIS_STRING && stored->type != WEIR_REDIS_NIL)
            return WEIR_ERR_STORE;
        int err =
            weir_redis_counter_answer(&counters[i], *now_ns, weir_redis_node_str(reader, stored),
                                      (uint8_t)head.ptr[TIME_LEN + i], granted);
        if (err != 0)
            return err;
    }
    return 0;
}
