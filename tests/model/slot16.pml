/* slot16.pml - why a slot is swapped as one, fingerprint and state together (lib/base/atomic16.h).
 *
 * One slot.  A process charges key 1 in it: reads both halves, one after the other, computes, and swaps.  Meanwhile the
 * slot is given to key 2, which counts in it too.  Half of what was read may be of another moment; the swap of all 16
 * bytes finds that out.
 *
 * Holds: what is admitted to a key is what is counted for it, in its slot or in the sketch.
 * Planted: BUG_STATE_ALONE  swaps the state and not the fingerprint: key 2 is charged for key 1's hit, which
 *                           is itself forgotten
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define LIMIT 2

byte fp = 1;     /* which key's slot it is */
byte state_ = 0; /* hits counted in it */
byte sketch[3];  /* what was charged, by key */
byte admitted[3];

/* What is known of a key: its slot, or what it left behind. */
#define COUNTED(key) ((fp == key && state_ > sketch[key]) -> state_ : sketch[key])

/* Holds whenever nobody is between its swap and its note of it: both are one step here. */
inline check()
{
    assert(COUNTED(1) >= admitted[1]);
    assert(COUNTED(2) >= admitted[2]);
    assert(admitted[1] <= LIMIT && admitted[2] <= LIMIT)
}

inline swap(key, old_fp, old_state, new_fp, new_state, hits, did)
{
    d_step {
        if
#ifdef BUG_STATE_ALONE
        :: state_ == old_state -> state_ = new_state; did = true
#else
        :: fp == old_fp && state_ == old_state -> fp = new_fp; state_ = new_state; did = true
#endif
        :: else -> did = false
        fi;
        if
        :: did -> admitted[key] = admitted[key] + hits
        :: else
        fi;
        check()
    }
}

/* Takes hits of a key while the slot is its own. */
proctype hitter(byte key)
{
    byte seen_fp, seen_state, tries = 2;
    bool did;
    do
    :: tries > 0 ->
        tries--;
        seen_state = state_; /* the two halves of a read are not of one instant */
        seen_fp = fp;
        if
        :: seen_fp == key && seen_state < LIMIT ->
            swap(key, seen_fp, seen_state, seen_fp, seen_state + 1, 1, did)
        :: else
        fi
    :: else -> break
    od
}

/* Gives the slot to another key, which starts from what the sketch has of it. */
proctype evictor()
{
    byte seen_fp, seen_state, next, tries = 2;
    do
    :: tries > 0 ->
        tries--;
        d_step { seen_fp = fp; seen_state = state_ } /* a 16-byte load */
        next = 3 - seen_fp;
        d_step { if :: seen_state > sketch[seen_fp] -> sketch[seen_fp] = seen_state :: else fi }
        d_step { /* the claim, and its promotion from the sketch, are insert.pml's to check */
            if
            :: fp == seen_fp && state_ == seen_state -> fp = next; state_ = sketch[next]
            :: else
            fi;
            check()
        }
    :: else -> break
    od
}

init
{
    atomic {
        run hitter(1);
        run hitter(1);
        run hitter(2);
        run evictor()
    }
}
