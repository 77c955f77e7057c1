/* open.c - makes table files, and attaches to them with suspicion.
 *
 * A new file is made under another name, allocated to its last byte (a /dev/shm that is too small
 * must be an error now, not a SIGBUS in the middle of a decision), filled in, and only then
 * linked to its name: nobody ever sees half a table.  An existing file is believed only after
 * every number in it has been recomputed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/hot.h"
#include "table/controls.h"
#include "table/extent.h"
#include "table/huge.h"
#include "table/internal.h"
#include "table/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* In a message: what would be right, too. */
__attribute__((format(printf, 4, 5))) static int refuse(int err, char *why, size_t why_len,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, why_len, format, args);
    va_end(args);
    return err;
}

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static uint64_t stats_bytes(uint64_t rules)
{
    return round_up(rules * 8, 64) + rules * sizeof(struct weir_stats_line) * WEIR_STATS_SHARDS;
}

static uint64_t extents_bytes(uint64_t chunks)
{
    return round_up(chunks * 4, WEIR_PAGE) + chunks * WEIR_CHUNK_BYTES;
}

/* The parts of the controls, from the start of them.  In a file of version 1: nothing. */
static uint64_t controls_bytes(const struct weir_table_header *h)
{
    struct weir_controls unused;
    return h->version < 2 ? 0 : weir_controls_point(&unused, NULL, h->stats_rules);
}

static struct weir_table_map map_of(const struct weir_table_header *h)
{
    struct weir_table_map m;
    m.slots_at = WEIR_PAGE;
    m.sketch_at = m.slots_at + round_up(h->buckets * sizeof(struct weir_bucket), WEIR_PAGE);
    m.records_at = m.sketch_at + round_up(h->sketch_cells * 8, WEIR_PAGE);
    m.stats_at = m.records_at + round_up(h->records * sizeof(struct weir_record), WEIR_PAGE);
    m.extents_at = m.stats_at + round_up(stats_bytes(h->stats_rules), WEIR_PAGE);
    m.controls_at = m.extents_at + extents_bytes(h->extent_chunks);
    m.file_bytes = m.controls_at + round_up(controls_bytes(h), WEIR_PAGE);
    return m;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Divides a file.  By default: a third for slots and nine sixteenths for the sketch that stands
 * behind them; the rest for wide states, rates and statistics.  After a flood of ten times the
 * slots the sketch holds 6.5 keys for each cell of a row where all of it is of one sort, and 10.7
 * where windows and buckets share it.  Up to 11.8 fewer than one fresh key in a thousand reads 10
 * (tests/stress/false_refusals.c has the formula); above, it soon is all of them. */
static void plan(struct weir_table_header *h, const struct weir_table_geometry *g)
{
    uint64_t slots_bytes = round_up(g->slots * 16, sizeof(struct weir_bucket));
    uint64_t file = g->file_bytes;
    if (file == 0)
        file = g->slots != 0 ? slots_bytes : WEIR_TABLE_BYTES_DEFAULT;
    h->stats_rules = most(16, least(WEIR_STATS_RULES_MAX + 1, file / 20000));
    h->records = g->records != 0 ? g->records : most(64, file / 64 / sizeof(struct weir_record));
    uint64_t extent_bytes = (g->extent_bytes != 0 ? g->extent_bytes : file / 16) + g->approx_bytes;
    h->extent_chunks = least(most(1, extent_bytes / WEIR_CHUNK_BYTES),
                             WEIR_EXTENT_UNITS_MAX * WEIR_UNIT_BYTES / WEIR_CHUNK_BYTES);
    uint64_t for_keys = file > g->approx_bytes ? file - g->approx_bytes : 0;
    h->sketch_cells = g->sketch_cells != 0 ? g->sketch_cells : for_keys * 36 / 64 / 8;
    h->sketch_cells = round_up(most(h->sketch_cells, 1024), 64);
    h->window_regions = (uint32_t)most(1, least(g->window_regions, WEIR_SKETCH_REGIONS_MAX));
    bool only_windows = g->window_regions != 0 && g->bucket_regions == 0;
    bool only_buckets = g->window_regions == 0 && g->bucket_regions != 0;
    h->bucket_share = only_windows ? 1 : only_buckets ? 7 : 4;
    if (g->bucket_share != 0)
        h->bucket_share = g->bucket_share;
    h->buckets = slots_bytes / sizeof(struct weir_bucket);
    if (g->slots == 0) {
        h->buckets = 0;
        uint64_t rest = map_of(h).file_bytes + WEIR_PAGE;
        h->buckets = file > rest ? (file - rest) / sizeof(struct weir_bucket) : 0;
    }
    h->buckets = most(h->buckets, 2);
    h->file_bytes = map_of(h).file_bytes;
}

static uint64_t checksum_of(const struct weir_table_header *h)
{
    static const struct weir_hash_key key = {UINT64_C(0x7765697220746162), UINT64_C(0x6c65)};
    return weir_siphash13(&key, h, offsetof(struct weir_table_header, checksum));
}

static int random_bytes(void *out, size_t len)
{
    return getrandom(out, len, 0) == (ssize_t)len ? 0 : WEIR_ERR_IO;
}

static int fill_header(struct weir_table_header *h, const struct weir_table_geometry *geometry,
                       char *why, size_t why_len)
{
    static const struct weir_table_geometry any = {0};
    if (geometry == NULL)
        geometry = &any;
    h->version = WEIR_TABLE_VERSION; /* which parts there are */
    plan(h, geometry);
    if (geometry->file_bytes != 0 && h->file_bytes > geometry->file_bytes)
        return refuse(WEIR_ERR_INVALID, why, why_len,
                      "a table of %" PRIu64 " MiB is too small for these rules; choose at least "
                      "%" PRIu64 " MiB",
                      geometry->file_bytes >> 20, (2 * h->file_bytes >> 20) + 1);
    h->magic = WEIR_TABLE_MAGIC;
    h->header_bytes = sizeof *h;
    if (random_bytes(&h->hash_key, sizeof h->hash_key) != 0)
        return refuse(WEIR_ERR_IO, why, why_len, "cannot read random bytes for the table's key");
    int err = weir_clock_create(h, why, why_len);
    if (err != 0)
        return err;
    h->checksum = checksum_of(h);
    return 0;
}

static void point_into(struct weir_table *t, void *base)
{
    unsigned char *at = base;
    t->header = base;
    t->map = map_of(t->header);
    t->bucket_count = t->header->buckets;
    t->buckets = (void *)(at + t->map.slots_at);
    t->sketch = (void *)(at + t->map.sketch_at);
    t->records = (void *)(at + t->map.records_at);
    t->stats_ids = (void *)(at + t->map.stats_at);
    t->stats_rules = t->header->stats_rules;
    t->stats_lines = (void *)(at + t->map.stats_at + round_up(t->stats_rules * 8, 64));
    t->chunk_class = (void *)(at + t->map.extents_at);
    t->extent_chunks = t->header->extent_chunks;
    t->extents = at + t->map.extents_at + round_up(t->extent_chunks * 4, WEIR_PAGE);
    if (t->header->version >= 2)
        (void)weir_controls_point(&t->controls, at + t->map.controls_at, t->header->stats_rules);
}

/* alloc: a handle on a mapping, the only memory that a process keeps beside the file. */
static int new_handle(struct weir_table **out, void *base, const char *path)
{
    struct weir_table *t = weir_line_alloc(sizeof *t); /* alloc: once for each open */
    if (t == NULL || random_bytes(&t->nonce, sizeof t->nonce) != 0) {
        free(t);
        return WEIR_ERR_NOMEM;
    }
    if (path != NULL && (t->path = strdup(path)) == NULL) {
        free(t);
        return WEIR_ERR_NOMEM;
    }
    WEIR_ASSERT(base != NULL);
    point_into(t, base);
    t->lag_ms = WEIR_CLOCK_LAG_S * 1000;
    *out = t;
    return 0;
}

/* alloc: what new_handle() made goes. */
void weir_table_close(struct weir_table *table)
{
    if (table == NULL)
        return;
    weir_process_leave(table);
    (void)munmap(table->header, table->map.file_bytes);
    free(table->path);
    free(table);
}

/* Every count small enough that their sum cannot overflow, and none of them nothing. */
static bool counts_are_sane(const struct weir_table_header *h)
{
    const uint64_t counts[] = {h->buckets, h->sketch_cells, h->records, h->stats_rules,
                               h->extent_chunks};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] == 0 || counts[i] > UINT64_C(1) << 50)
            return false;
    return h->buckets >= 2 && h->sketch_cells >= 64 && h->window_regions >= 1 &&
           h->window_regions <= WEIR_SKETCH_REGIONS_MAX && h->bucket_share >= 1 &&
           h->bucket_share <= 7;
}

static bool sizes_agree(const struct weir_table_header *h, uint64_t file_bytes)
{
    return counts_are_sane(h) && h->file_bytes == file_bytes && map_of(h).file_bytes == file_bytes;
}

static int believe(const struct weir_table_header *h, uint64_t file_bytes, const char *path,
                   char *why, size_t why_len)
{
    if (h->magic != WEIR_TABLE_MAGIC)
        return refuse(WEIR_ERR_TABLE, why, why_len,
                      "%s: not a weir table; name another path, or remove the file", path);
    if (h->version < WEIR_TABLE_VERSION_OLDEST || h->version > WEIR_TABLE_VERSION)
        return refuse(
            WEIR_ERR_TABLE, why, why_len,
            "%s: table version %u, this weir reads versions %u to %u; use the weir that made it, "
            "or remove the file",
            path, h->version, WEIR_TABLE_VERSION_OLDEST, WEIR_TABLE_VERSION);
    if (h->header_bytes != sizeof *h || h->checksum != checksum_of(h))
        return refuse(WEIR_ERR_TABLE, why, why_len,
                      "%s: the table's header is damaged; remove the file to start afresh", path);
    if (!sizes_agree(h, file_bytes))
        return refuse(WEIR_ERR_TABLE, why, why_len,
                      "%s: the file has %" PRIu64 " bytes where its header says %" PRIu64
                      "; it was cut short or overwritten: remove it to start afresh",
                      path, file_bytes, h->file_bytes);
    return 0;
}

static int map_file(int fd, uint64_t bytes, const char *path, void **out, char *why, size_t why_len)
{
    void *base = weir_huge_map(bytes, MAP_SHARED, fd);
    if (base == MAP_FAILED)
        return refuse(WEIR_ERR_IO, why, why_len, "%s: cannot map %" PRIu64 " bytes: %s", path,
                      bytes, strerror(errno));
    *out = base;
    return 0;
}

static int attach_fd(struct weir_table **out, int fd, const char *path, char *why, size_t why_len)
{
    struct stat st;
    struct weir_table_header header;
    if (fstat(fd, &st) != 0)
        return refuse(WEIR_ERR_IO, why, why_len, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse(WEIR_ERR_TABLE, why, why_len, "%s: not a regular file", path);
    uint64_t file_bytes = (uint64_t)st.st_size;
    if (file_bytes < WEIR_PAGE || pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        return refuse(WEIR_ERR_TABLE, why, why_len,
                      "%s: too short for a weir table (%" PRIu64
                      " bytes); name another path, or remove the file",
                      path, file_bytes);
    int err = believe(&header, file_bytes, path, why, why_len);
    void *base = NULL;
    if (err == 0)
        err = map_file(fd, file_bytes, path, &base, why, why_len);
    if (err != 0)
        return err;
    struct weir_table *t = NULL;
    err = new_handle(&t, base, path);
    if (err != 0) {
        (void)munmap(base, file_bytes);
        return refuse(err, why, why_len, "%s: %s", path, weir_strerror(err));
    }
    t->device = st.st_dev;
    t->inode = st.st_ino;
    err = weir_clock_attach(t, why, why_len);
    if (err != 0) {
        weir_table_close(t);
        return err;
    }
    *out = t;
    return 0;
}

int weir_table_attach(struct weir_table **out, const char *path, char *why, size_t why_len)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return refuse(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_IO, why, why_len, "%s: %s",
                      path, strerror(errno));
    int err = attach_fd(out, fd, path, why, why_len);
    (void)close(fd);
    return err;
}

/* Allocates and fills the file behind fd. */
static int fill_file(int fd, const char *path, const struct weir_table_geometry *geometry,
                     char *why, size_t why_len)
{
    struct weir_table_header header = {0};
    int err = fill_header(&header, geometry, why, why_len);
    if (err != 0)
        return err;
    weir_huge_lay(fd, header.file_bytes);
    int no = posix_fallocate(fd, 0, (off_t)header.file_bytes);
    if (no != 0)
        return refuse(WEIR_ERR_IO, why, why_len,
                      "%s: cannot allocate %" PRIu64 " MiB: %s; choose a smaller table size or "
                      "another path",
                      path, header.file_bytes >> 20, strerror(no));
    if (pwrite(fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        return refuse(WEIR_ERR_IO, why, why_len, "%s: %s", path, strerror(errno));
    return 0;
}

/* Makes the file beside its name, then links it: whole, or not at all.  0 also where another
 * process was faster: its file is as good. */
static int create_file(const char *path, const struct weir_table_geometry *geometry, char *why,
                       size_t why_len)
{
    char temporary[4096];
    uint64_t unique = 0;
    if (random_bytes(&unique, sizeof unique) != 0 ||
        (size_t)snprintf(temporary, sizeof temporary, "%s.%016" PRIx64, path, unique) >=
            sizeof temporary)
        return refuse(WEIR_ERR_INVALID, why, why_len, "%s: the path is too long", path);
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660);
    if (fd < 0)
        return refuse(WEIR_ERR_IO, why, why_len, "%s: cannot create the table: %s", path,
                      strerror(errno));
    (void)fchmod(fd, 0660); /* whatever the umask: a group may share the table */
    int err = fill_file(fd, path, geometry, why, why_len);
    if (err == 0 && link(temporary, path) != 0 && errno != EEXIST)
        err = refuse(WEIR_ERR_IO, why, why_len, "%s: %s", path, strerror(errno));
    (void)unlink(temporary);
    (void)close(fd);
    return err;
}

static int open_private(struct weir_table **out, const struct weir_table_geometry *geometry,
                        char *why, size_t why_len)
{
    struct weir_table_header header = {0};
    int err = fill_header(&header, geometry, why, why_len);
    if (err != 0)
        return err;
    int sharing = geometry != NULL && geometry->is_unshared ? MAP_PRIVATE : MAP_SHARED;
    void *base = weir_huge_map(header.file_bytes, sharing | MAP_ANONYMOUS, -1);
    if (base == MAP_FAILED)
        return refuse(WEIR_ERR_NOMEM, why, why_len, "cannot map %" PRIu64 " MiB of memory: %s",
                      header.file_bytes >> 20, strerror(errno));
    memcpy(base, &header, sizeof header);
    err = new_handle(out, base, NULL);
    if (err != 0)
        (void)munmap(base, header.file_bytes);
    return err;
}

int weir_table_open(struct weir_table **out, const char *path,
                    const struct weir_table_geometry *geometry, char *why, size_t why_len)
{
    if (geometry != NULL && geometry->file_bytes != 0 &&
        geometry->file_bytes < WEIR_TABLE_BYTES_MIN)
        return refuse(WEIR_ERR_INVALID, why, why_len,
                      "a table of %" PRIu64 " bytes is too small; the least is 1 MiB",
                      geometry->file_bytes);
    if (path == NULL)
        return open_private(out, geometry, why, why_len);
    int err = weir_table_attach(out, path, why, why_len);
    if (err != WEIR_ERR_NOT_FOUND)
        return err;
    err = create_file(path, geometry, why, why_len);
    return err != 0 ? err : weir_table_attach(out, path, why, why_len);
}

bool weir_table_is_linked(const struct weir_table *table)
{
    struct stat st;
    if (table->path == NULL)
        return true;
    return stat(table->path, &st) == 0 && st.st_dev == table->device && st.st_ino == table->inode;
}

uint64_t weir_table_seed(const struct weir_table *table)
{
    return table->nonce;
}

const struct weir_hash_key *weir_table_hash_key(const struct weir_table *table)
{
    return &table->header->hash_key;
}

void weir_table_take_identity(struct weir_table *to, const struct weir_table *from)
{
    to->header->hash_key = from->header->hash_key;
    memcpy(to->header->window_s, from->header->window_s, sizeof to->header->window_s);
    to->header->clock = weir_load16(&from->header->clock);
    to->header->clock_last = from->header->clock_last;
    to->header->checksum = checksum_of(to->header);
}

void weir_table_trust_callers(struct weir_table *table)
{
    table->lag_ms = 0;
}

void weir_table_remember_all(struct weir_table *table)
{
    table->remembers_all = true;
}
