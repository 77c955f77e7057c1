/* SPDX-License-Identifier: Apache-2.0 */
#include "table/caption.h"

#include <string.h>

#define CAPTION_WORDS (sizeof(struct weir_caption) / 8)
#define HEAD_CUT (UINT64_C(1) << 16)

static_assert(WEIR_KEY_WORDS_MAX == WEIR_ENTRIES_MAX, "room for every entry of a request");

/* Against words of two writers, not against people: the key may be public. */
static uint64_t sum_of(const struct weir_caption *caption, uint64_t owner)
{
    const struct weir_hash_key key = {UINT64_C(0x7765697263617074), owner};
    return weir_siphash13(&key, &caption->head, sizeof *caption - sizeof caption->sum) | 1;
}

/* A cut in the middle of a character of UTF-8 goes back to its beginning. */
static size_t cut_to(struct weir_str text, size_t len)
{
    size_t at = len;
    while (at > 0 && len - at < 3 && ((unsigned char)text.ptr[at] & 0xc0) == 0x80)
        at--;
    return ((unsigned char)text.ptr[at] & 0xc0) == 0x80 ? len : at;
}

/* False where not all of it had room. */
static bool put_string(char *bytes, size_t *len, struct weir_str text)
{
    uint16_t head;
    if (*len + sizeof head > WEIR_CAPTION_BYTES)
        return false;
    size_t room = WEIR_CAPTION_BYTES - *len - sizeof head;
    bool fits = text.len <= room;
    size_t count = fits ? text.len : cut_to(text, room);
    head = (uint16_t)count;
    memcpy(bytes + *len, &head, sizeof head);
    if (count > 0)
        memcpy(bytes + *len + sizeof head, text.ptr, count);
    *len += sizeof head + count;
    return fits;
}

static void store_words(struct weir_caption *to, const struct weir_caption *from)
{
    const uint64_t *words = (const uint64_t *)(const void *)from;
    uint64_t *place = (uint64_t *)(void *)to;
    __atomic_store_n(&place[0], 0, __ATOMIC_RELAXED);
    for (size_t i = 1; i < CAPTION_WORDS; i++)
        __atomic_store_n(&place[i], words[i], __ATOMIC_RELAXED); /* the sum tells */
    __atomic_store_n(&place[0], words[0], __ATOMIC_RELEASE);
}

static void load_words(struct weir_caption *to, const struct weir_caption *from)
{
    uint64_t *words = (uint64_t *)(void *)to;
    const uint64_t *place = (const uint64_t *)(const void *)from;
    for (size_t i = 0; i < CAPTION_WORDS; i++)
        words[i] = __atomic_load_n(&place[i], __ATOMIC_ACQUIRE);
}

void weir_caption_write(struct weir_caption *to, uint64_t owner, const struct weir_key_words *words)
{
    struct weir_caption caption = {0};
    char *bytes = (char *)caption.words;
    size_t len = 0;
    bool fits = put_string(bytes, &len, words->domain);
    for (uint32_t i = 0; i < words->entry_count && fits; i++)
        fits = put_string(bytes, &len, words->entries[i].key) &&
               put_string(bytes, &len, words->entries[i].value);
    caption.head = len | (fits && !words->is_cut ? 0 : HEAD_CUT);
    caption.sum = sum_of(&caption, owner);
    store_words(to, &caption);
}

/* False at the end.  The file is not believed: nothing is read beyond len. */
static bool next_string(const char **at, const char *end, struct weir_str *out)
{
    uint16_t head;
    if ((size_t)(end - *at) < sizeof head)
        return false;
    memcpy(&head, *at, sizeof head);
    *at += sizeof head;
    out->ptr = *at;
    out->len = head;
    if (out->len > (size_t)(end - *at))
        return false;
    *at += out->len;
    return true;
}

bool weir_caption_read(const struct weir_caption *from, uint64_t owner,
                       struct weir_caption_text *out)
{
    struct weir_caption caption;
    load_words(&caption, from);
    size_t len = caption.head & 0xffff;
    if (caption.sum != sum_of(&caption, owner) || len > WEIR_CAPTION_BYTES)
        return false;
    memcpy(out->bytes, caption.words, sizeof out->bytes);
    out->words = (struct weir_key_words){.is_cut = (caption.head & HEAD_CUT) != 0};
    const char *at = out->bytes, *end = out->bytes + len;
    if (!next_string(&at, end, &out->words.domain))
        return false;
    while (out->words.entry_count < WEIR_KEY_WORDS_MAX) {
        struct weir_entry entry = {.value = {.ptr = end, .len = 0}};
        if (!next_string(&at, end, &entry.key))
            break;
        bool has_value = next_string(&at, end, &entry.value);
        if (!has_value)
            entry.value = (struct weir_str){.ptr = end, .len = 0};
        out->words.entries[out->words.entry_count++] = entry;
    }
    return true;
}
