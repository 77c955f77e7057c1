/* caption.h - a key in words, in shared memory: domain and entries, as far as there is room.
 *
 * The table knows keys by hash; people want to read them.  A caption is a list of strings, domain,
 * key, value, key, value ..., each behind 2 bytes, its length.  What does not fit is left out, and
 * a flag says so.
 *
 * Writers do not wait for each other and may die half-way; so a caption ends in a sum over its
 * words and over whom it speaks of, and who reads it believes it only if the sum is right.
 *
 * Threads: any number, in any number of processes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_CAPTION_H
#define WEIR_TABLE_CAPTION_H

#include "table/internal.h"

/* owner: any number that tells captions in one place apart. */
void weir_caption_write(struct weir_caption *to, uint64_t owner,
                        const struct weir_key_words *words);

/* A copy in the reader's memory. */
struct weir_caption_text {
    char bytes[WEIR_CAPTION_BYTES];
    struct weir_key_words words; /* pointing into bytes */
};

/* False where it is not (or not yet, or no longer) a caption of this owner. */
bool weir_caption_read(const struct weir_caption *from, uint64_t owner,
                       struct weir_caption_text *out);

#endif
