/* insert.pml - the slots of one key: find, claim, look, settle, promote, evict (lib/table/slots.h).
 *
 * A key may live in three places.  Three processes each take one hit, one of them only by help of the others'
 * claims; a fourth, on behalf of other keys, evicts whatever lives in a place, after charging it to the sketch, and frees places again.
 * Every read and every swap of a place is a step of its own.  A process that dies at some step is one that
 * takes no further step, and every such run is among those that are searched.
 *
 * Holds: never two live slots; never more admitted than the limit, so nothing is forgiven.
 * Planted: BUG_NO_LOOK     promotes its own claim without looking again
 *          BUG_NO_NONCE    takes a claim to be settled that it has only just seen
 *          BUG_CHARGE_LATE evicts first and charges then
 *          BUG_SEED_EARLY  asks the sketch before it claims, not after
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define PLACES 3
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef EVICTIONS
#define EVICTIONS 1
#endif
#ifndef NONCES
#define NONCES 3 /* claims in one run; who would make more stops */
#endif

#define EMPTY 0
#define CLAIM 1
#define LIVE 2
#define OTHER 3 /* another key's */

#define NONE 255

byte kind[PLACES];
byte value[PLACES]; /* a claim's nonce, a live slot's count */
byte sketch;        /* what was charged */
byte admitted;
byte nonces;

/* A 16-byte swap.  Whoever makes a slot live checks that it is the only one. */
inline swap(at, old_kind, old_value, new_kind, new_value, did)
{
    d_step {
        if
        :: kind[at] == old_kind && value[at] == old_value ->
            kind[at] = new_kind;
            value[at] = new_value;
            did = true;
            assert((kind[0] == LIVE) + (kind[1] == LIVE) + (kind[2] == LIVE) <= 1)
        :: else -> did = false
        fi
    }
}

inline admit()
{
    d_step {
        admitted++;
        assert(admitted <= LIMIT)
    }
}

/* One place of a look: remembers the claim there, and where the key lives. */
inline look_at(n)
{
    d_step {
        claims[n] = (kind[n] == CLAIM -> value[n] : 0);
        if
        :: kind[n] == LIVE -> at = n
        :: kind[n] == CLAIM && lowest == NONE -> lowest = n; lowest_nonce = value[n]
        :: else
        fi
    }
}

/* Swaps out the claim that was seen at a place; remembers if it had gone. */
inline drop(n)
{
    if
    :: claims[n] != 0 && n != kept -> swap(n, CLAIM, claims[n], EMPTY, 0, did); all = all && did
    :: else
    fi
}

/* What a step left behind and the next does not read is only more states to search. */
inline forget()
{
    d_step {
        k = 0; v = 0; at = NONE; lowest = NONE; lowest_nonce = 0; kept = NONE; did = false; all = true;
        claims[0] = 0; claims[1] = 0; claims[2] = 0
    }
}

proctype hitter(bool claims_too)
{
    byte k, v, seed, seen_nonce, lowest_nonce;
    byte at = NONE, seen_at = NONE, lowest = NONE, kept = NONE;
    byte claims[PLACES]; /* nonce of the claim at each place, 0: none */
    bool did, all = true;

find:
    at = 0;
    do
    :: at < PLACES ->
        d_step { k = kind[at]; v = value[at] }
        if
        :: k == LIVE && v >= LIMIT -> goto done
        :: k == LIVE && v < LIMIT ->
            swap(at, LIVE, v, LIVE, v + 1, did);
            if
            :: did -> admit(); goto done
            :: else -> goto find
            fi
        :: else -> at++
        fi
    :: else -> break
    od;
    at = NONE; /* a d_step is no place to jump to */
    forget();
#ifdef BUG_SEED_EARLY
    seed = sketch;
#endif

look:
    at = NONE;
    look_at(0);
    look_at(1);
    look_at(2);
    if
    :: at != NONE -> /* it lives: our claims, and others', are not needed */
        drop(0);
        drop(1);
        drop(2);
        forget();
        d_step { seen_at = NONE; seen_nonce = 0 }
        goto find
    :: at == NONE && lowest == NONE ->
        if
        :: claims_too -> goto claim
        :: else -> goto done
        fi
    :: else
    fi;
#ifdef BUG_NO_NONCE
    d_step { seen_at = lowest; seen_nonce = lowest_nonce }
#endif
    if
    :: seen_at == lowest && seen_nonce == lowest_nonce ->
        kept = lowest;
        drop(0);
        drop(1);
        drop(2);
        if
        :: all -> forget(); goto promote
        :: else
        fi
    :: else
    fi;
    d_step { seen_at = lowest; seen_nonce = lowest_nonce }
    forget();
    goto look;

claim:
    /* Any free place will do; if there is none, any that is another's, or has meanwhile become ours. */
    seen_at = NONE;
    if
    :: at = 0
    :: at = 1
    :: at = 2
    fi;
    d_step { seen_nonce = 0; k = kind[at]; v = value[at] }
    if
    :: k == CLAIM -> forget(); goto look
    :: k == LIVE -> d_step { if :: v > sketch -> sketch = v :: else fi }
    :: else
    fi;
    if
    :: nonces == NONCES -> goto done
    :: else
    fi;
    d_step { nonces++; seen_nonce = nonces }
    swap(at, k, v, CLAIM, seen_nonce, did);
    if
    :: did -> seen_at = at
    :: else -> seen_nonce = 0
    fi;
#ifdef BUG_NO_LOOK
    if
    :: did -> goto promote
    :: else
    fi;
#endif
    forget();
    goto look;

promote:
#ifndef BUG_SEED_EARLY
    seed = sketch;
#endif
    if
    :: seed >= LIMIT -> swap(seen_at, CLAIM, seen_nonce, EMPTY, 0, did)
    :: else ->
        swap(seen_at, CLAIM, seen_nonce, LIVE, seed + 1, did);
        if
        :: did -> admit()
        :: else
        fi
    fi;
    d_step { seed = 0; seen_at = NONE; seen_nonce = 0 }
    if
    :: did
    :: else -> goto find
    fi;
done:
    skip
}

proctype evictor()
{
    byte at, v, left = EVICTIONS;
    bool did;
    do
    :: left > 0 ->
        if
        :: at = 0
        :: at = 1
        :: at = 2
        fi;
        left--;
        if
        :: d_step { kind[at] == OTHER -> kind[at] = EMPTY } /* it has expired */
        :: kind[at] == LIVE ->
            d_step { did = (kind[at] == LIVE); v = value[at] }
            if
            :: did ->
#ifndef BUG_CHARGE_LATE
                d_step { if :: v > sketch -> sketch = v :: else fi }
#endif
                swap(at, LIVE, v, OTHER, 0, did)
#ifdef BUG_CHARGE_LATE
                ; if
                :: did -> d_step { if :: v > sketch -> sketch = v :: else fi }
                :: else
                fi
#endif
            :: else
            fi
        :: else
        fi
    :: left == 0 -> break
    od
}

init
{
    atomic {
        kind[1] = OTHER;
        run hitter(true);
        run hitter(true);
        run hitter(false);
        run evictor()
    }
}
