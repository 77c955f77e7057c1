/* SPDX-License-Identifier: Apache-2.0 */
#include "table/huge.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; the C library of Debian 12 does not name it */
#endif

void *weir_huge_map(uint64_t bytes, int flags, int fd)
{
    /* A page too much, so that an aligned range lies in it; what is around it is given back. */
    char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    size_t before = (0 - (uintptr_t)room) & (HUGE_PAGE - 1);
    void *base = mmap(room + before, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        (void)munmap(room, bytes + HUGE_PAGE);
        return MAP_FAILED;
    }
    if (before > 0)
        (void)munmap(room, before);
    (void)munmap(room + before + bytes, HUGE_PAGE - before);
    (void)madvise(base, bytes, MADV_HUGEPAGE); /* where an administrator allows it */
    return base;
}

void weir_huge_lay(int fd, uint64_t bytes)
{
    if (ftruncate(fd, (off_t)bytes) != 0)
        return;
    /* A huge page is only made of one that has something in it.  Not by way of the mapping: where
     * there is no room left, that would be a SIGBUS. */
    for (uint64_t at = 0; at < bytes; at += HUGE_PAGE)
        if (pwrite(fd, "", 1, (off_t)at) != 1)
            return;
    void *base = weir_huge_map(bytes, MAP_SHARED, fd);
    if (base == MAP_FAILED)
        return;
    (void)madvise(base, bytes, MADV_COLLAPSE);
    (void)munmap(base, bytes);
}
