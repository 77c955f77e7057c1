/* count_allocations.c - loaded before libc (LD_PRELOAD), counts how often memory is asked for.
 *
 * The count is the first eight bytes of the file that WEIR_ALLOCATIONS names, for another process
 * to read at any time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *at, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Atomic uint64_t nowhere;
static _Atomic uint64_t *allocations = &nowhere;

__attribute__((constructor)) static void open_count(void)
{
    const char *path = getenv("WEIR_ALLOCATIONS");
    int fd = path != NULL ? open(path, O_RDWR) : -1;
    void *at = fd >= 0 ? mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    if (at == MAP_FAILED)
        abort();
    close(fd);
    allocations = at;
}

static void count(void)
{
    atomic_fetch_add_explicit(allocations, 1, memory_order_relaxed);
}

SEEN void *malloc(size_t size)
{
    count();
    return __libc_malloc(size);
}

SEEN void *calloc(size_t number, size_t size)
{
    count();
    return __libc_calloc(number, size);
}

SEEN void *realloc(void *at, size_t size)
{
    count();
    return __libc_realloc(at, size);
}

SEEN void *aligned_alloc(size_t alignment, size_t size)
{
    count();
    return __libc_memalign(alignment, size);
}
