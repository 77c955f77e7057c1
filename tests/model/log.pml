/* log.pml - a log in an extent: the control word, cells that are written after it, freezing, moving (store/wide_state.c).
 *
 * A ring of two cells, a limit of two in any window of two instants.  Two processes take hits, each at the time that
 * it has read, which may be over by the time that it swaps; a third freezes the log and moves it to another extent, as
 * eviction or a raised limit would.  Whoever finds it frozen moves it, too, into an extent of its own; the first
 * to point the slot there wins.  Every load, every swap, every cell is a step of its own.  A process that dies
 * takes no further step: such runs are among those that are searched.
 *
 * Holds: never more than the limit in any window, by the times that the log has given the hits.
 * Planted: BUG_NO_FLUSH    counts on cells that the last swap has not written yet
 *          BUG_LATE_FLUSH  writes cells without looking whether the control word is still the same
 *          BUG_NO_FREEZE   moves a log that others still write to
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define LIMIT 2
#define CELLS 2
#ifdef FOUR_HITS
#define TIMES 4
#else
#define TIMES 3
#endif
/* Instants are 1 .. TIMES; an entry counts at its own and at the next. */
#define EXTENTS 4

/* count: entries; fresh: how many of them are of `last`, and may not be in their cells yet. */
typedef control {
    byte last, head, count, fresh;
    bool frozen
};

control word[EXTENTS];
byte cell[EXTENTS * CELLS];
byte slot = 0; /* where it points */
byte now = 1;
byte admitted[TIMES + 2];

#define SAME(e) (word[e].last == c.last && word[e].head == c.head && word[e].count == c.count && \
                 word[e].fresh == c.fresh && word[e].frozen == c.frozen)

inline load(e)
{
    d_step {
        c.last = word[e].last; c.head = word[e].head; c.count = word[e].count; c.fresh = word[e].fresh;
        c.frozen = word[e].frozen
    }
}

inline store(e)
{
    word[e].last = c.last; word[e].head = c.head; word[e].count = c.count; word[e].fresh = c.fresh;
    word[e].frozen = c.frozen
}

/* The cell of an entry; rank 1 is the newest. */
#define CELL_OF(rank) (e * CELLS + (c.head + CELLS + CELLS - (rank)) % CELLS)

/* Writes the run of c into its cells; ok is false where the control word is no longer c. */
inline flush()
{
    rank = 1;
    ok = true;
    do
    :: rank <= c.fresh && ok ->
        seen = cell[CELL_OF(rank)];
        if
        :: seen != c.last ->
#ifndef BUG_LATE_FLUSH
            ok = SAME(e);
#endif
            if
            :: ok ->
#ifdef BUG_LATE_FLUSH
                cell[CELL_OF(rank)] = c.last
#else
                d_step {
                    if
                    :: cell[CELL_OF(rank)] == seen -> cell[CELL_OF(rank)] = c.last
                    :: else
                    fi
                }
#endif
            :: else
            fi
        :: else
        fi;
        rank++
    :: else -> break
    od;
    rank = 0;
    seen = 0
}

/* Copies the frozen log e, whose control word is c, into the extent `to`, and points the slot there. */
inline move(to)
{
    flush();
    if
    :: ok ->
        rank = 1;
        do
        :: rank <= c.count ->
            cell[to * CELLS + c.count - rank] = cell[CELL_OF(rank)];
            rank++
        :: else -> break
        od;
        rank = 0;
        d_step {
            word[to].last = c.last; word[to].head = c.count % CELLS; word[to].count = c.count;
            word[to].fresh = 0; word[to].frozen = false
        }
        d_step {
            if
            :: slot == e -> slot = to
            :: else
            fi
        }
    :: else
    fi
}

/* One hit, at a time that may lag. */
inline take(to)
{
    at = now;
    done = false;
    do
    :: !done ->
        e = slot;
        load(e);
        if
        :: c.frozen -> move(to)
        :: else ->
#ifdef BUG_NO_FLUSH
            ok = true;
#else
            flush();
#endif
            if
            :: ok ->
                /* The clock never goes back for a log. */
                d_step { t = (c.count > 0 && c.last > at -> c.last : at); live = 0; rank = 1 }
                do
                :: rank <= c.count ->
                    seen = (rank <= c.fresh -> c.last : cell[CELL_OF(rank)]);
                    if
                    :: seen + 1 >= t && seen > 0 -> live = rank; rank++
                    :: else -> break
                    fi
                :: else -> break
                od;
                rank = 0;
                d_step {
                    seen = 0;
                    if
                    :: live >= LIMIT -> done = true /* refused */
                    :: live < LIMIT && SAME(e) ->
                        c.fresh = ((c.last == t && c.count > 0) -> c.fresh + 1 : 1);
                        c.last = t; c.head = (c.head + 1) % CELLS; c.count = live + 1;
                        c.fresh = (c.fresh > c.count -> c.count : c.fresh);
                        store(e);
                        done = true;
                        admitted[t]++;
                        assert(admitted[t] + admitted[t - 1] <= LIMIT);
                        assert(admitted[t] + admitted[t + 1] <= LIMIT)
                    :: else
                    fi;
                    live = 0
                }
            :: else
            fi
        fi
    :: else -> break
    od;
    at = 0; /* a d_step is no place to jump to */
    d_step { t = 0; e = 0; c.last = 0; c.head = 0; c.count = 0; c.fresh = 0; c.frozen = false }
}

proctype hitter(byte to; bool twice)
{
    control c;
    byte e, at, t, live, rank, seen;
    bool ok, done;
    take(to);
    if
    :: twice -> take(to)
    :: else
    fi
}

proctype mover(byte to)
{
    control c;
    byte e, rank, seen;
    bool ok;
    e = slot;
#ifdef BUG_NO_FREEZE
    load(e);
#else
    do
    :: load(e);
        if
        :: c.frozen -> break
        :: else ->
            d_step {
                if
                :: SAME(e) -> c.frozen = true; store(e)
                :: else
                fi
            }
        fi
    od;
#endif
    ok = true;
    move(to)
}

/* One that only looks, and helps: it may sleep for long between reading and writing a cell. */
proctype helper()
{
    control c;
    byte e, rank, seen;
    bool ok;
    e = slot;
    load(e);
    flush()
}

proctype clock()
{
    do
    :: now < TIMES -> now++
    :: else -> break
    od
}

init
{
    atomic {
        /* One hit at the first instant, by one who died before it wrote the cell. */
        word[0].last = 1; word[0].head = 1; word[0].count = 1; word[0].fresh = 1;
        admitted[1] = 1;
        run hitter(1, true);
#ifdef FOUR_HITS /* instead of the move: both would be too many runs */
        run hitter(2, true);
        run helper();
#else
        run hitter(2, false);
        run mover(3);
#endif
        run clock()
    }
}
