/* SPDX-License-Identifier: Apache-2.0 */
#include "table/key_overrides.h"

#define PLACES (2 * WEIR_LINE_KEYS)
#define NOWHERE UINT32_MAX
#define TRIES_MAX 64 /* swaps lost to others before we give up */
#define TAG_SHIFT 35
#define UNLIMITED_BIT (UINT64_C(1) << 34)
#define GENERATION_SHIFT 32
/* The low bits of the header's word count its changes, so that who lowers it notices who raised
 * it meanwhile; the high ones are a time, rounded up to 16 ms. */
#define UNTIL_SHIFT 24
#define UNTIL_COUNT ((UINT64_C(1) << UNTIL_SHIFT) - 1)

/* ---- places and values ---- */

static uint64_t key_of(uint64_t key)
{
    return key != 0 ? key : 1; /* 0: nobody's place */
}

/* The places of a key: two different lines. */
struct places {
    uint32_t line[2];
};

static struct places places_of(const struct weir_table *table, uint64_t key)
{
    uint32_t lines = table->controls.override_count / WEIR_LINE_KEYS;
    uint32_t first = (uint32_t)(key % lines);
    return (struct places){{first, (first + 1 + (uint32_t)(key >> 32) % (lines - 1)) % lines}};
}

static uint32_t place_at(const struct places *places, uint32_t i)
{
    return places->line[i / WEIR_LINE_KEYS] * WEIR_LINE_KEYS + i % WEIR_LINE_KEYS;
}

static uint64_t load_key(const struct weir_table *table, uint32_t place)
{
    return __atomic_load_n(&table->controls.override_keys[place], __ATOMIC_ACQUIRE);
}

static uint64_t tag_of(uint64_t key)
{
    return weir_mix64(key) >> TAG_SHIFT;
}

static bool is_meant_for(union weir_u16b value, uint64_t key)
{
    return value.hi >> TAG_SHIFT == tag_of(key);
}

/* Both halves of one value; without taking the line from those who read, as weir_load16() does. */
static union weir_u16b read_value(const struct weir_key_override_row *row)
{
    union weir_u16b value;
    do {
        value.hi = __atomic_load_n(&row->value.hi, __ATOMIC_ACQUIRE);
        value.lo = __atomic_load_n(&row->value.lo, __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&row->value.hi, __ATOMIC_RELAXED) != value.hi);
    return value;
}

static uint32_t generation_of(union weir_u16b value)
{
    return (uint32_t)(value.hi >> GENERATION_SHIFT) & (WEIR_GENERATIONS - 1);
}

/* The key's row after place number `from` in its order; NOWHERE: it has none. */
static uint32_t find_row(const struct weir_table *table, uint64_t key, uint32_t *from)
{
    struct places places = places_of(table, key);
    for (; *from < PLACES; ++*from) {
        uint32_t place = place_at(&places, *from);
        if (load_key(table, place) == key)
            return place;
    }
    return NOWHERE;
}

/* ---- reading ---- */

static void unpack(union weir_u16b value, struct weir_key_override *out)
{
    out->until_ns = value.lo;
    out->requests = (uint32_t)value.hi;
    out->generation = weir_generation(generation_of(value), WEIR_PLACE_KEY);
    out->is_unlimited = (value.hi & UNLIMITED_BIT) != 0;
}

bool weir_key_override_find(const struct weir_table *table, uint64_t key, uint64_t now_ns,
                            struct weir_key_override *out)
{
    if (table->controls.overrides == NULL)
        return false;
    key = key_of(key);
    for (uint32_t i = 0; i < PLACES; i++) {
        uint32_t place = find_row(table, key, &i);
        if (place == NOWHERE)
            return false;
        union weir_u16b value = read_value(&table->controls.overrides[place]);
        if (value.lo > now_ns && is_meant_for(value, key)) {
            unpack(value, out);
            return true;
        }
    }
    return false;
}

uint32_t weir_key_override_rate(const struct weir_table *table, uint64_t key, uint32_t generation)
{
    if (table->controls.overrides == NULL)
        return 0;
    uint32_t i = 0, wanted = weir_generation_number(generation);
    key = key_of(key);
    uint32_t place = find_row(table, key, &i);
    if (place == NOWHERE)
        return 0;
    const struct weir_key_override_row *row = &table->controls.overrides[place];
    union weir_u16b value = read_value(row);
    if (!is_meant_for(value, key))
        return 0;
    return generation_of(value) == wanted ? (uint32_t)value.hi
                                          : __atomic_load_n(&row->rate[wanted], __ATOMIC_RELAXED);
}

bool weir_key_override_at(const struct weir_table *table, uint32_t number, uint64_t now_ns,
                          struct weir_key_override *out, struct weir_caption_text *text)
{
    if (number >= table->controls.override_count || table->controls.overrides == NULL)
        return false;
    const struct weir_key_override_row *row = &table->controls.overrides[number];
    uint64_t key = load_key(table, number);
    union weir_u16b value = read_value(row);
    if (key == 0 || value.lo <= now_ns || !is_meant_for(value, key))
        return false;
    unpack(value, out);
    out->key = key;
    out->name = __atomic_load_n(&row->name, __ATOMIC_RELAXED);
    out->since_ns = __atomic_load_n(&row->since_ns, __ATOMIC_RELAXED);
    out->stat = __atomic_load_n(&row->stat, __ATOMIC_RELAXED);
    out->ordinal = __atomic_load_n(&row->ordinal, __ATOMIC_RELAXED);
    if (!weir_caption_read(&row->caption, key, text))
        text->words = (struct weir_key_words){.is_cut = true};
    return true;
}

/* ---- the header's word ---- */

static void raise_until(struct weir_table *table, uint64_t until_ns)
{
    uint64_t *word = &table->header->key_overrides_until, new;
    uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED), wanted = (until_ns >> UNTIL_SHIFT) + 1;
    do {
        uint64_t had = old >> UNTIL_SHIFT;
        new = (had > wanted ? had : wanted) << UNTIL_SHIFT | ((old + 1) & UNTIL_COUNT);
    } while (
        !__atomic_compare_exchange_n(word, &old, new, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

/* To the last of those that there are; not if one was given meanwhile. */
static void lower_until(struct weir_table *table, uint64_t now_ns)
{
    uint64_t *word = &table->header->key_overrides_until, last = 0;
    uint64_t old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < table->controls.override_count; i++) {
        uint64_t until = read_value(&table->controls.overrides[i]).lo;
        if (until > now_ns && until > last)
            last = until;
    }
    uint64_t time = last > 0 ? (last >> UNTIL_SHIFT) + 1 : 0;
    if (time < old >> UNTIL_SHIFT)
        (void)__atomic_compare_exchange_n(word, &old,
                                          time << UNTIL_SHIFT | ((old + 1) & UNTIL_COUNT), false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* ---- writing ---- */

/* Ends the value that the row has; the number stays, for states that were made with it. */
static bool end_row(struct weir_key_override_row *row, union weir_u16b value, uint64_t now_ns)
{
    return weir_cas16(&row->value, value, (union weir_u16b){.lo = now_ns, .hi = value.hi});
}

/* What a line of keys has to offer: nobody's place, or the one whose override ended first. */
struct offer {
    uint32_t place; /* NOWHERE: it is full */
    uint32_t free;  /* places of which this is the best */
    uint64_t owner;
};

static struct offer offer_of(const struct weir_table *table, uint32_t line, uint64_t now_ns)
{
    struct offer offer = {.place = NOWHERE};
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 0; i < WEIR_LINE_KEYS; i++) {
        uint32_t place = line * WEIR_LINE_KEYS + i;
        uint64_t owner = load_key(table, place);
        uint64_t until = owner == 0 ? 0 : read_value(&table->controls.overrides[place]).lo;
        if (until > now_ns)
            continue;
        offer.free++;
        if (until < earliest) {
            offer.place = place;
            offer.owner = owner;
            earliest = until;
        }
    }
    return offer;
}

/* A place for a key that has none, in the line that has more of them. */
static uint32_t claim_row(struct weir_table *table, uint64_t key, uint64_t now_ns)
{
    struct places places = places_of(table, key);
    struct offer best = offer_of(table, places.line[0], now_ns);
    struct offer other = offer_of(table, places.line[1], now_ns);
    if (other.free > best.free)
        best = other;
    if (best.place == NOWHERE ||
        !__atomic_compare_exchange_n(&table->controls.override_keys[best.place], &best.owner, key,
                                     false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return NOWHERE;
    return best.place;
}

/* The row's next value, and what must be remembered of the one before.  Who does the same at the
 * same time writes the same rates. */
static union weir_u16b next_value(struct weir_key_override_row *row, union weir_u16b before,
                                  const struct weir_key_override *override, uint64_t key)
{
    uint32_t generation = generation_of(before);
    if (is_meant_for(before, key)) {
        __atomic_store_n(&row->rate[generation], (uint32_t)before.hi, __ATOMIC_RELAXED);
    } else {
        for (uint32_t g = 0; g < WEIR_GENERATIONS; g++)
            __atomic_store_n(&row->rate[g], 0, __ATOMIC_RELAXED);
    }
    generation = (generation + 1) % WEIR_GENERATIONS;
    return (union weir_u16b){.lo = override->until_ns,
                             .hi = tag_of(key) << TAG_SHIFT |
                                   (override->is_unlimited ? UNLIMITED_BIT : 0) |
                                   (uint64_t)generation << GENERATION_SHIFT | override->requests};
}

static void describe(struct weir_key_override_row *row, const struct weir_key_override *override)
{
    __atomic_store_n(&row->name, override->name, __ATOMIC_RELAXED);
    __atomic_store_n(&row->since_ns, override->since_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&row->stat, override->stat, __ATOMIC_RELAXED);
    __atomic_store_n(&row->ordinal, override->ordinal, __ATOMIC_RELAXED);
}

/* Two who gave one key its first override at once may have taken two places.  The lower one stays:
 * each looks after its own value is there, so at least one of them sees both. */
static void settle(struct weir_table *table, uint64_t key, uint32_t mine, uint64_t now_ns)
{
    bool is_before = true;
    for (uint32_t i = 0; i < PLACES; i++) {
        uint32_t place = find_row(table, key, &i);
        if (place == NOWHERE)
            return;
        struct weir_key_override_row *row = &table->controls.overrides[place];
        union weir_u16b value = read_value(row);
        if (place == mine) {
            is_before = false;
        } else if (is_before && value.lo > now_ns && is_meant_for(value, key)) {
            row = &table->controls.overrides[mine];
            (void)end_row(row, read_value(row), now_ns);
            return;
        } else if (!is_before && value.lo > now_ns) {
            (void)end_row(row, value, now_ns);
        }
    }
}

/* The place that the key has, or gets; NOWHERE: none, or somebody else was faster. */
static uint32_t row_for(struct weir_table *table, uint64_t key, uint64_t now_ns)
{
    uint32_t i = 0;
    uint32_t place = find_row(table, key, &i);
    return place != NOWHERE ? place : claim_row(table, key, now_ns);
}

int weir_key_override_put(struct weir_table *table, const struct weir_key_override *override,
                          const struct weir_key_words *words, uint64_t now_ns)
{
    uint64_t key = key_of(override->key);
    if (table->controls.overrides == NULL)
        return WEIR_ERR_UNSUPPORTED;
    raise_until(table, override->until_ns); /* first: who dies now leaves nothing half in force */
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        uint32_t place = row_for(table, key, now_ns);
        if (place == NOWHERE)
            continue;
        struct weir_key_override_row *row = &table->controls.overrides[place];
        union weir_u16b before = weir_load16(&row->value);
        describe(row, override);
        weir_caption_write(&row->caption, key, words);
        if (!weir_cas16(&row->value, before, next_value(row, before, override, key)) ||
            load_key(table, place) != key)
            continue;
        raise_until(table, override->until_ns); /* again: it may have been lowered meanwhile */
        settle(table, key, place, now_ns);
        return 0;
    }
    return WEIR_ERR_FULL;
}

uint32_t weir_key_override_drop(struct weir_table *table, uint64_t name, uint64_t since_ns,
                                uint64_t now_ns)
{
    uint32_t dropped = 0;
    if (table->controls.overrides == NULL)
        return 0;
    for (uint32_t i = 0; i < table->controls.override_count; i++) {
        struct weir_key_override_row *row = &table->controls.overrides[i];
        union weir_u16b value = read_value(row);
        if (value.lo > now_ns && __atomic_load_n(&row->name, __ATOMIC_RELAXED) == name &&
            (since_ns == 0 || __atomic_load_n(&row->since_ns, __ATOMIC_RELAXED) != since_ns))
            dropped += end_row(row, value, now_ns);
    }
    lower_until(table, now_ns);
    return dropped;
}
