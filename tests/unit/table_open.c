/* table_open.c - making table files, and refusing what is none: clearly, and never with a crash.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"
#include "table/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const struct weir_table_geometry small = {.file_bytes = 1 << 20};

/* Attach must fail, with these words among its reasons. */
static void refuses(const char *path, int err, const char *words)
{
    struct weir_table *table = NULL;
    char why[512] = "";
    assert_int_equal(weir_table_attach(&table, path, why, sizeof why), err);
    assert_null(table);
    if (strstr(why, words) == NULL)
        print_message("# %s\n", why);
    assert_non_null(strstr(why, words));
    assert_non_null(strstr(why, path));
}

/* Makes a table file, and overwrites some of it. */
static void make_patched(char *path, size_t path_len, off_t at, const void *bytes, size_t len)
{
    rig_path(path, path_len);
    weir_table_close(rig_open(path, &small));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
    close(fd);
}

static void reseal(const char *path)
{
    static const struct weir_hash_key key = {UINT64_C(0x7765697220746162), UINT64_C(0x6c65)};
    struct weir_table_header header;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &header, sizeof header, 0), sizeof header);
    header.checksum = weir_siphash13(&key, &header, offsetof(struct weir_table_header, checksum));
    assert_int_equal(pwrite(fd, &header, sizeof header, 0), sizeof header);
    close(fd);
}

static void a_file_that_is_no_table_is_refused(void **state)
{
    (void)state;
    char path[128];
    make_patched(path, sizeof path, 0, "notatabl", 8);
    refuses(path, WEIR_ERR_TABLE, "not a weir table");
    /* Nor is it overwritten by one who would create it. */
    struct weir_table *table = NULL;
    char why[256];
    assert_int_equal(weir_table_open(&table, path, &small, why, sizeof why), WEIR_ERR_TABLE);
    unlink(path);
}

static void another_version_is_refused_by_its_number(void **state)
{
    (void)state;
    char path[128];
    uint32_t version = 7;
    make_patched(path, sizeof path, offsetof(struct weir_table_header, version), &version, 4);
    refuses(path, WEIR_ERR_TABLE, "version 7");
    unlink(path);
}

static void a_damaged_header_is_refused(void **state)
{
    (void)state;
    for (size_t at = 16; at < offsetof(struct weir_table_header, checksum) + 8; at += 4) {
        char path[128];
        uint32_t junk = 0xdeadbeef;
        make_patched(path, sizeof path, (off_t)at, &junk, sizeof junk);
        refuses(path, WEIR_ERR_TABLE, "damaged");
        unlink(path);
    }
}

static void sizes_that_disagree_with_the_file_are_refused(void **state)
{
    (void)state;
    static const size_t fields[] = {offsetof(struct weir_table_header, file_bytes),
                                    offsetof(struct weir_table_header, buckets),
                                    offsetof(struct weir_table_header, sketch_cells),
                                    offsetof(struct weir_table_header, records),
                                    offsetof(struct weir_table_header, stats_rules),
                                    offsetof(struct weir_table_header, extent_chunks)};
    static const uint64_t values[] = {0, 9, UINT64_C(1) << 40, UINT64_MAX, UINT64_MAX / 16 + 1};
    for (size_t i = 0; i < 30; i++) {
        char path[128];
        make_patched(path, sizeof path, (off_t)fields[i / 5], &values[i % 5], 8);
        reseal(path);
        refuses(path, WEIR_ERR_TABLE, "");
        unlink(path);
    }
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    static const off_t lengths[] = {0, 1, 4095, 4096, 8192, 1 << 19};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char path[128];
        make_patched(path, sizeof path, 0, "", 0);
        assert_int_equal(truncate(path, lengths[i]), 0);
        refuses(path, WEIR_ERR_TABLE, lengths[i] < 4096 ? "too short" : "bytes");
        unlink(path);
    }
}

static void what_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    char path[128];
    rig_path(path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    refuses(path, WEIR_ERR_IO, "directory");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(path, WEIR_ERR_TABLE, "not a regular file"); /* and does not wait for a writer */
    unlink(path);
    refuses("/dev/null", WEIR_ERR_TABLE, "not a regular file");
    refuses(path, WEIR_ERR_NOT_FOUND, "No such file");
}

/* Runs in a child, as nobody if we are root: root may open everything. */
static int in_child(void (*run)(const char *), const char *path)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(77);
        run(path);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_denied(const char *path)
{
    struct weir_table *table = NULL;
    char why[512] = "";
    int err = weir_table_open(&table, path, &small, why, sizeof why);
    _exit(err == WEIR_ERR_IO && strstr(why, "Permission denied") != NULL ? 0 : 1);
}

static void a_file_without_permission_is_refused(void **state)
{
    (void)state;
    char path[128];
    make_patched(path, sizeof path, 0, "", 0);
    assert_int_equal(chmod(path, 0), 0);
    int status = in_child(expect_denied, path);
    unlink(path);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}

/* As a full /dev/shm would: no file may grow beyond half of what is asked for. */
static void expect_no_room(const char *path)
{
    struct weir_table *table = NULL;
    char why[512] = "";
    struct rlimit most = {.rlim_cur = 512 << 10, .rlim_max = 512 << 10};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &most);
    int err = weir_table_open(&table, path, &small, why, sizeof why);
    bool is_clear = strstr(why, "cannot allocate") != NULL && strstr(why, "smaller") != NULL;
    _exit(err == WEIR_ERR_IO && is_clear && access(path, F_OK) != 0 ? 0 : 1);
}

static void a_file_system_without_room_is_told_at_once(void **state)
{
    (void)state;
    char path[128];
    rig_path(path, sizeof path);
    int status = in_child(expect_no_room, path);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    /* Nothing is left of the attempt. */
    DIR *folder = opendir("/dev/shm");
    const char *name = strrchr(path, '/') + 1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        assert_int_not_equal(strncmp(entry->d_name, name, strlen(name)), 0);
    closedir(folder);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    (void)state;
    static char path[8192];
    struct weir_table *table = NULL;
    char why[512] = "";
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    assert_true(weir_table_open(&table, path, &small, why, sizeof why) < 0);
    assert_true(strlen(why) > 0);
    path[4090] = '\0';
    assert_true(weir_table_open(&table, path, &small, why, sizeof why) < 0);
}

static void a_size_below_the_least_is_refused(void **state)
{
    (void)state;
    struct weir_table *table = NULL;
    char why[512] = "";
    struct weir_table_geometry geometry = {.file_bytes = WEIR_TABLE_BYTES_MIN - 1};
    assert_int_equal(weir_table_open(&table, NULL, &geometry, why, sizeof why), WEIR_ERR_INVALID);
    geometry.file_bytes++;
    assert_int_equal(weir_table_open(&table, NULL, &geometry, why, sizeof why), 0);
    struct weir_table_geometry layout;
    weir_table_layout(table, &layout);
    assert_true(layout.file_bytes <= WEIR_TABLE_BYTES_MIN);
    weir_table_close(table);
}

static void note_key(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    uint64_t *keys = crew->shared;
    keys[worker] = weir_table_hash_key(table)->k0;
}

static void many_who_create_it_at_once_get_one_table(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        char path[128];
        uint64_t *keys = rig_shared(RIG_CREW * sizeof *keys);
        struct rig_crew crew = {.path = path, .geometry = &small, .work = note_key, .shared = keys};
        rig_path(path, sizeof path);
        rig_run_processes(&crew);
        for (uint32_t i = 1; i < RIG_CREW; i++)
            assert_int_equal(keys[i], keys[0]);
        assert_true(keys[0] != 0);
        unlink(path);
        munmap(keys, RIG_CREW * sizeof *keys);
    }
}

static void an_unlinked_or_replaced_file_is_noticed(void **state)
{
    (void)state;
    char path[128];
    rig_path(path, sizeof path);
    struct weir_table *table = rig_open(path, &small);
    assert_true(weir_table_is_linked(table));
    unlink(path);
    assert_false(weir_table_is_linked(table));
    struct weir_table *other = rig_open(path, &small);
    assert_false(weir_table_is_linked(table));
    assert_true(weir_table_is_linked(other));
    weir_table_close(other);
    weir_table_close(table);
    unlink(path);
}

/* Of all that this process has mapped, as Linux tells. */
static uint64_t huge_kib(void)
{
    uint64_t sum = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/smaps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        if (strncmp(line, "ShmemPmdMapped:", 15) == 0)
            sum += strtoull(line + 15, NULL, 10);
    (void)fclose(maps);
    return sum;
}

/* Whether this system makes huge pages of a file's, if asked: Linux 6.1 and later, with room. */
static bool makes_huge_pages(void)
{
    enum { HUGE = 2 << 20 };
    int fd = memfd_create("probe", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 2 * HUGE) == 0);
    char *base = mmap(NULL, (size_t)2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    char *page = base + (-(uintptr_t)base & (HUGE - 1));
    void *aligned = mmap(page, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    assert_true(aligned == page);
    *page = 1;
    bool is_made = madvise(page, HUGE, 25 /* MADV_COLLAPSE */) == 0;
    munmap(base, (size_t)2 * HUGE);
    close(fd);
    return is_made;
}

static void a_new_table_lies_in_huge_pages_where_there_are_some(void **state)
{
    (void)state;
    static const struct weir_table_geometry large = {.file_bytes = 16 << 20};
    char path[128];
    rig_path(path, sizeof path);
    bool is_offered = makes_huge_pages();
    assert_int_equal(huge_kib(), 0);
    for (int i = 0; i < 2; i++) { /* for its maker, and for who comes later */
        struct weir_table *table = rig_open(path, &large);
        const volatile char *bytes = (const char *)table->header;
        for (uint32_t at = 0; at < large.file_bytes; at += 1 << 20)
            (void)bytes[at];
        assert_true(huge_kib() >= (is_offered ? 2048 : 0));
        weir_table_close(table);
    }
    unlink(path);
}

static void two_who_are_attached_agree_on_the_time(void **state)
{
    (void)state;
    char path[128];
    rig_path(path, sizeof path);
    struct weir_table *a = rig_open(path, &small), *b = rig_open(path, &small);
    uint64_t last = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t now = weir_table_now(i % 2 == 0 ? a : b);
        assert_true(now >= last);
        last = now;
    }
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    int64_t off_ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - (int64_t)last;
    assert_true(off_ns > -1000000000 && off_ns < 1000000000);
    weir_table_close(a);
    weir_table_close(b);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_no_table_is_refused),
        cmocka_unit_test(another_version_is_refused_by_its_number),
        cmocka_unit_test(a_damaged_header_is_refused),
        cmocka_unit_test(sizes_that_disagree_with_the_file_are_refused),
        cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(what_is_no_regular_file_is_refused),
        cmocka_unit_test(a_file_without_permission_is_refused),
        cmocka_unit_test(a_file_system_without_room_is_told_at_once),
        cmocka_unit_test(a_path_that_is_too_long_is_refused),
        cmocka_unit_test(a_size_below_the_least_is_refused),
        cmocka_unit_test(many_who_create_it_at_once_get_one_table),
        cmocka_unit_test(an_unlinked_or_replaced_file_is_noticed),
        cmocka_unit_test(a_new_table_lies_in_huge_pages_where_there_are_some),
        cmocka_unit_test(two_who_are_attached_agree_on_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
