/* clock.c - one clock for all processes on a table.
 *
 * It runs on CLOCK_BOOTTIME, which never steps and is the same for every process of a boot, from
 * a common origin in the file: so all of them see a window end at one instant, whatever is done
 * to the wall clock.  From time to time somebody compares with the wall clock: behind it by more
 * than a second, the clock steps forward; ahead of it, it runs at 90% until it is not.  It never
 * goes back.
 *
 * The origin is {boot time, slow?, time then}, changed by one 16-byte swap at the instant that it
 * names, so that no reader sees a jump back.
 *
 * After a reboot the clock goes on from the later of the wall clock and the last time seen.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/hot.h"
#include "table/internal.h"
#include "table/processes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK_EVERY_NS (WEIR_NS_PER_S / 10)
#define STEP_NS ((int64_t)WEIR_NS_PER_S)
#define AHEAD_NS ((int64_t)1000000) /* a millisecond ahead is not worth slowing down for */

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts = {0};
    (void)clock_gettime(id, &ts); /* cannot fail for these two */
    return (uint64_t)ts.tv_sec * WEIR_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* The kernel's name for this boot, as 16 bytes; zero where /proc does not say. */
static void read_boot_id(uint8_t out[16])
{
    memset(out, 0, 16);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f == NULL)
        return;
    char text[64] = {0};
    if (fgets(text, sizeof text, f) != NULL) {
        uint32_t digits = 0;
        for (const char *c = text; *c != '\0' && digits < 32; c++) {
            int value = *c >= '0' && *c <= '9'   ? *c - '0'
                        : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10
                                                 : -1;
            if (value < 0)
                continue;
            out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | value);
            digits++;
        }
    }
    (void)fclose(f);
}

/* A time namespace shifts CLOCK_BOOTTIME for its processes; this says by how much. */
static int64_t read_boottime_offset(void)
{
    FILE *f = fopen("/proc/self/timens_offsets", "re");
    if (f == NULL)
        return 0;
    char name[32];
    int64_t s, ns, offset = 0;
    while (fscanf(f, "%31s %" SCNd64 " %" SCNd64, name, &s, &ns) == 3)
        if (strcmp(name, "boottime") == 0)
            offset = s * (int64_t)WEIR_NS_PER_S + ns;
    (void)fclose(f);
    return offset;
}

static union weir_u16b origin_at(uint64_t boot, uint64_t now, bool is_slow)
{
    return (union weir_u16b){.lo = boot << 1 | is_slow, .hi = now};
}

static uint64_t time_at(union weir_u16b origin, uint64_t boot)
{
    uint64_t since = origin.lo >> 1;
    uint64_t passed = boot > since ? boot - since : 0;
    return origin.hi + (origin.lo & 1 ? passed - passed / 10 : passed);
}

/* Both halves of one origin: boot times differ between any two, so an unchanged lo is proof. */
static union weir_u16b read_origin(const struct weir_table_header *h)
{
    union weir_u16b origin;
    do {
        origin.lo = __atomic_load_n(&h->clock.lo, __ATOMIC_ACQUIRE);
        origin.hi = __atomic_load_n(&h->clock.hi, __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&h->clock.lo, __ATOMIC_RELAXED) != origin.lo);
    return origin;
}

int weir_clock_create(struct weir_table_header *header, char *why, size_t why_len)
{
    (void)why;
    (void)why_len;
    uint64_t wall = read_clock(CLOCK_REALTIME), boot = read_clock(CLOCK_BOOTTIME);
    read_boot_id(header->boot_id);
    memcpy(header->clock_boot_id, header->boot_id, sizeof header->clock_boot_id);
    header->boottime_offset_ns = read_boottime_offset();
    header->created_ns = wall;
    header->clock = origin_at(boot, wall, false);
    header->clock_last = wall;
    return 0;
}

int weir_clock_attach(struct weir_table *table, char *why, size_t why_len)
{
    struct weir_table_header *h = table->header;
    int64_t offset_ns = read_boottime_offset();
    if (offset_ns != h->boottime_offset_ns) {
        snprintf(why, why_len,
                 "this process lives in another time namespace than the table's maker (boot time "
                 "differs by %" PRId64 " s), so they would not agree when a window ends",
                 (offset_ns - h->boottime_offset_ns) / (int64_t)WEIR_NS_PER_S);
        return WEIR_ERR_TABLE;
    }
    uint8_t boot_id[16];
    read_boot_id(boot_id);
    if (memcmp(boot_id, h->clock_boot_id, sizeof boot_id) == 0)
        return 0;
    /* Another boot: CLOCK_BOOTTIME began anew.  Two processes that do this at once write the same
     * within a few microseconds of each other; either will do. */
    uint64_t wall = read_clock(CLOCK_REALTIME), boot = read_clock(CLOCK_BOOTTIME);
    uint64_t last = __atomic_load_n(&h->clock_last, __ATOMIC_RELAXED);
    uint64_t from = wall > last ? wall : last;
    union weir_u16b old = weir_load16(&h->clock);
    (void)weir_cas16(&h->clock, old, origin_at(boot, from, false));
    memcpy(h->clock_boot_id, boot_id, sizeof boot_id);
    return 0;
}

/* Compares with the wall clock.  Every process does so now and then; one swap wins. */
static __attribute__((noinline)) void correct(struct weir_table_header *h, union weir_u16b origin,
                                              uint64_t boot)
{
    uint64_t now = time_at(origin, boot);
    uint64_t last = __atomic_load_n(&h->clock_last, __ATOMIC_RELAXED);
    while (last < now && !__atomic_compare_exchange_n(&h->clock_last, &last, now, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    int64_t behind = (int64_t)(read_clock(CLOCK_REALTIME) - now);
    bool is_slow = origin.lo & 1;
    if (behind > STEP_NS)
        (void)weir_cas16(&h->clock, origin, origin_at(boot, now + (uint64_t)behind, false));
    else if (is_slow != (behind < -AHEAD_NS))
        (void)weir_cas16(&h->clock, origin, origin_at(boot, now, !is_slow));
}

uint64_t weir_clock_at_boot(const struct weir_table *table, uint64_t boot_ns)
{
    return time_at(read_origin(table->header), boot_ns);
}

uint64_t weir_table_boot_ns(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

WEIR_HOT uint64_t weir_table_now(struct weir_table *table)
{
    uint64_t boot = read_clock(CLOCK_BOOTTIME);
    union weir_u16b origin = read_origin(table->header);
    if ((int64_t)boot >= __atomic_load_n(&table->wall_check_boot_ns, __ATOMIC_RELAXED)) {
        __atomic_store_n(&table->wall_check_boot_ns, (int64_t)(boot + CHECK_EVERY_NS),
                         __ATOMIC_RELAXED);
        correct(table->header, origin, boot);
        origin = read_origin(table->header);
        weir_process_beat(table, time_at(origin, boot));
    }
    return time_at(origin, boot);
}
