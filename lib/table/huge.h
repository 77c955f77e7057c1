/* huge.h - a table's file in pages of 2 MiB.
 *
 * A counter among a million lies in a page that the processor has forgotten; to find a small one
 * takes longer than the decision.  The pages of a file in memory are small unless an administrator
 * says otherwise (shmem_enabled), but since Linux 6.1 whoever fills a file may ask for large ones.
 * Advice only: where it is not taken, nothing is lost but time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_HUGE_H
#define WEIR_TABLE_HUGE_H

#include <stdint.h>

/* Maps `bytes` of a file (or of no file: fd -1, and these flags of mmap()) at a multiple of a huge
 * page, without which none is used.  MAP_FAILED, with errno; munmap() ends it. */
void *weir_huge_map(uint64_t bytes, int flags, int fd);

/* Lays an empty file of `bytes` out in huge pages.  Some of it may have none afterwards. */
void weir_huge_lay(int fd, uint64_t bytes);

#endif
