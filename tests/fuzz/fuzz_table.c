/* fuzz_table.c - attaching to a damaged table, and working on it.
 *
 * The input is a list of patches to a small valid table: 4 bytes of offset, 1 byte of length
 * (modulo 32), and the bytes.  The top two bits of an offset choose the header, the slots, what
 * lies between them and the extents' first chunk, or the extents and the controls, and the rest is
 * modulo that part; all three top bits: the controls alone.  Offsets within the header are patched
 * before its checksum is made anew if the first byte of the input is odd, so that what the checksum
 * would have caught is tried as well.
 *
 * Whatever is in the file: attach refuses it, or everything that follows stays within it, and
 * ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "base/hash.h"
#include "store/local.h"
#include "table/controls.h"
#include "table/key_overrides.h"
#include "table/processes.h"
#include "table/top.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOW_NS (UINT64_C(1700006400) * 1000000000)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static const struct weir_limit_spec specs[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .window_s = 60, .requests_per_unit = 5, .buckets = 1},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
     .window_s = 60,
     .requests_per_unit = 5,
     .buckets = 1},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
     .window_s = 60,
     .requests_per_unit = 5,
     .buckets = 6},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
     .window_s = 60,
     .requests_per_unit = 3000000,
     .buckets = 1},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 60, .requests_per_unit = 5, .buckets = 1},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 60, .requests_per_unit = 9000, .buckets = 1},
    {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 60, .requests_per_unit = 5, .burst = 5},
    {.algorithm = WEIR_TOKEN_BUCKET,
     .window_s = 60,
     .requests_per_unit = 5,
     .burst = 20,
     .refill_interval = true},
    {.algorithm = WEIR_LEAKY_BUCKET, .window_s = 60, .requests_per_unit = 5, .burst = 5},
    {.algorithm = WEIR_CONCURRENCY, .window_s = 60, .requests_per_unit = 5},
};
#define SPECS (sizeof specs / sizeof *specs)

/* The folder's name is of this process: many fuzz at once. */
static const char *path_of(const char *what)
{
    static char path[2][96];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "/dev/shm/weir-fuzz-%d-%s", (int)getpid(), what);
    return path[turn];
}

/* What was written is read back, whatever it is now. */
static void use_controls(struct weir_table *table, uint64_t now_ns)
{
    static const struct weir_key_words words = {
        .domain = {"d", 1}, .entries = {{{"key", 3}, {"value", 5}}}, .entry_count = 1};
    struct weir_caption_text text;
    struct weir_key_override override;
    struct weir_top_view view;
    struct weir_process process = {.generation = 1};
    for (uint64_t key = 1; key < 5; key++) {
        const struct weir_top_hit hit = {.key = key, .weight = key, .random = key << 60};
        override = (struct weir_key_override){
            .key = key, .name = key, .until_ns = now_ns + 1000, .requests = 7};
        if (weir_key_override_put(table, &override, &words, now_ns) == 0)
            (void)weir_key_override_find(table, key, now_ns, &override);
        (void)weir_key_override_rate(table, key, (uint32_t)key);
        uint32_t row = weir_top_add(table, &hit, now_ns);
        if (row != WEIR_TOP_NOWHERE)
            weir_top_describe(table, row, key, &words);
    }
    for (uint32_t i = 0; i < WEIR_KEY_OVERRIDES_MAX; i++) {
        (void)weir_key_override_at(table, i, now_ns, &override, &text);
        (void)weir_top_at(table, i, now_ns, &view, &text);
        (void)weir_process_at(table, i, now_ns, &process);
    }
    (void)weir_key_override_drop(table, 2, 0, now_ns);
    (void)weir_enforced_percent(table, 1);
    weir_process_tell(table, &process, now_ns);
    weir_process_beat(table, now_ns);
}

static void use(struct weir_table *table, uint64_t now_ns)
{
    for (uint64_t key = 0; key < 2 * SPECS; key++) {
        struct weir_limit limit;
        struct weir_verdict verdict;
        char why[256];
        uint64_t mark;
        if (weir_limit_init(&limit, &specs[key % SPECS], why, sizeof why) != 0)
            abort();
        limit.tag = key % SPECS + 1;
        struct weir_approx approx = {.width = 64, .depth = 2, .bloom_words = 8};
        if (key >= SPECS && limit.algorithm != WEIR_CONCURRENCY)
            limit.approx = &approx;
        if (weir_local_bind(table, &limit) != 0)
            continue;
        uint64_t hash = (key + 1) * UINT64_C(0x9e3779b97f4a7c15);
        weir_local_take(table, &limit, hash, now_ns, 1, &verdict, &mark);
        weir_local_look(table, &limit, hash, now_ns, 2, &verdict);
        weir_local_give(table, &limit, hash, now_ns, 1, &verdict);
        weir_local_take(table, &limit, hash, now_ns + UINT64_C(61000000000), 2, &verdict, &mark);
        weir_local_release(table, &limit, hash, now_ns, 1, mark);
        if (weir_local_renew(table, &limit, hash, now_ns, 1, &mark) != 0)
            mark = 0;
    }
    use_controls(table, now_ns);
    uint32_t stat = weir_stats_claim(table, 99);
    weir_stats_add(table, stat, 3, WEIR_COUNTER_OVER_LIMIT, 1);
    (void)weir_stats_read(table, stat, WEIR_COUNTER_OVER_LIMIT);
}

static struct weir_table_map map_of_image;

/* A small table with something of everything in it, made once. */
static uint8_t *pristine(size_t *bytes)
{
    static uint8_t *image;
    static size_t image_bytes;
    if (image == NULL) {
        static const struct weir_table_geometry geometry = {
            .slots = 16, .sketch_cells = 1024, .extent_bytes = 20 * 65536, .records = 64};
        struct weir_table *table = NULL;
        char why[256];
        if (weir_table_open(&table, NULL, &geometry, why, sizeof why) != 0)
            abort();
        table->header->hash_key = (struct weir_hash_key){1, 2}; /* the same in every run */
        use(table, NOW_NS);
        image_bytes = table->map.file_bytes;
        map_of_image = table->map;
        image = malloc(image_bytes);
        if (image == NULL)
            abort();
        memcpy(image, table->header, image_bytes);
        weir_table_close(table);
    }
    *bytes = image_bytes;
    return image;
}

/* As open.c makes it. */
static void seal(struct weir_table_header *header)
{
    static const struct weir_hash_key key = {UINT64_C(0x7765697220746162), UINT64_C(0x6c65)};
    header->checksum = weir_siphash13(&key, header, offsetof(struct weir_table_header, checksum));
}

/* Where a patch goes. */
static size_t place_of(uint32_t offset, const struct weir_table_map *map)
{
    const size_t from[] = {0, map->slots_at, map->records_at, map->extents_at};
    const size_t to[] = {WEIR_PAGE, map->sketch_at, map->extents_at + 4096, map->file_bytes};
    uint32_t part = offset >> 30;
    if (part == 3 && offset & 0x20000000)
        return map->controls_at + (offset & 0x1fffffff) % (map->file_bytes - map->controls_at);
    return from[part] + (offset & 0x3fffffff) % (to[part] - from[part]);
}

static void patch(uint8_t *file, size_t file_bytes, const uint8_t *bytes, size_t len)
{
    while (len >= 5) {
        uint32_t offset;
        memcpy(&offset, bytes, sizeof offset);
        size_t count = bytes[4] % 32, at = place_of(offset, &map_of_image);
        bytes += 5;
        len -= 5;
        count = count < len ? count : len;
        count = count < file_bytes - at ? count : file_bytes - at;
        memcpy(file + at, bytes, count);
        bytes += count;
        len -= count;
    }
}

static void each_slot(void *ctx, const struct weir_slot_view *slot)
{
    *(uint64_t *)ctx += strlen(slot->kind);
}

static void attach_and_use(void)
{
    struct weir_table *table = NULL;
    char why[256];
    if (weir_table_attach(&table, path_of("table"), why, sizeof why) != 0)
        return;
    struct weir_table_stats stats;
    uint64_t letters = 0;
    (void)weir_table_now(table);
    use(table, NOW_NS);
    use(table, NOW_NS + UINT64_C(40000000000));
    weir_table_dump(table, NOW_NS, each_slot, &letters);
    weir_table_stats(table, NOW_NS, &stats);
    weir_table_close(table);
    struct weir_table_geometry geometry = {.slots = 64, .extent_bytes = 30 * 65536};
    if (weir_table_resize(path_of("table"), path_of("larger"), &geometry, why, sizeof why) == 0)
        (void)unlink(path_of("larger"));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len == 0 || len > 4096)
        return 0;
    size_t file_bytes;
    const uint8_t *image = pristine(&file_bytes);
    int fd = open(path_of("table"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)file_bytes) != 0)
        abort();
    uint8_t *file = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        abort();
    memcpy(file, image, file_bytes);
    patch(file, file_bytes, bytes + 1, len - 1);
    if (bytes[0] & 1)
        seal((struct weir_table_header *)(void *)file);
    munmap(file, file_bytes);
    close(fd);
    attach_and_use();
    (void)unlink(path_of("table"));
    return 0;
}
