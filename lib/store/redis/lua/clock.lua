-- clock.lua - what all kinds of counters share: the time, whole numbers beyond 2^53, writing.
--
-- Lua's numbers are doubles, exact up to 2^53; nanoseconds since 1970 need 61 bits.  So a time is
-- seconds and nanoseconds, a length of time {s, ns, num} is s seconds, ns nanoseconds and num/den
-- of one (lib/algo/math.h), and products are made of limbs.  Windows are whole seconds long.
--
-- A kind of counter is kinds[n] = function(key, op, hits, counts, record, at): it reads the
-- counter, decides, and writes unless it only looks.  It returns whether the hits are allowed, and
-- what was stored before (false: nothing), from which the caller works out all else with lib/algo.
-- A third result true says that nothing was decided: the rate has changed since (token_bucket.lua).
--
-- SPDX-License-Identifier: Apache-2.0
local call, pack, unpack_of, floor, ceil, min, max, sub, byte

-- None of them is there while a library is loaded.
local function bind()
    call, pack, unpack_of = redis.call, struct.pack, struct.unpack
    floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
    sub, byte = string.sub, string.byte
end

local TAKE, LOOK, GIVE, RELEASE, RENEW, LEASE, ADD = 0, 1, 2, 3, 4, 5, 6
local E9 = 1e9
local LIMB = 2097152                    -- 2^21
local EXACT = 9007199254740992          -- 2^53

local now_s, now_ns                     -- the instant of this call
local stays_s                           -- how long counters stay, in tests

-- Of a TAKE that leases (lib/algo/lease.h): how many tokens beyond its hits; of these, how many for
-- requests that wait; the others are at most what is left divided by `shares`; for how long; the
-- time that a bucket's token is worth; how many it became.
local wish, sure, shares, ttl_ns, step_s, step_ns, step_num, granted = 0

local kinds = {}

-- The time is Redis's own; only tests and replays send one.  Theirs has nothing to do with the
-- clock that expires keys, so their counters stay for ten minutes, whatever they are.
local function read_clock(head)
    if #head > 1 then
        now_s, now_ns = unpack_of('<I5I4', head, 2)
        stays_s = 600
    else
        local time = call('TIME')
        now_s, now_ns = tonumber(time[1]), time[2] * 1000
        stays_s = nil
    end
end

-- For how many seconds a key is to be kept that is of use for use_s: a second more, because keys
-- expire by a reading of the clock that may be another.
local function kept_s(use_s)
    return stays_s or max(use_s, 0) + 1
end

-- floor(now / (W/n)), for W of window_s seconds: W/n need not be whole seconds, but n*now in
-- seconds and its fraction is small enough.
local function part_of_window(window_s, n)
    local window = floor(now_s / window_s)
    local elapsed = (now_s - window * window_s) * n + floor(now_ns * n / E9)
    return window * n + floor(elapsed / window_s)
end

-- The window that counts: a used one is not opened again when the clock goes back behind it, but
-- none further off than the next counts.
local function window_of(window_s, used)
    local index = floor(now_s / window_s)
    if used > index then
        return index + 1
    end
    return index
end

-- a*b + c as high*2^21 + low, for a < 2^42, b < 2^32, c < 2^42.
local function product(a, b, c)
    local plain = a * b + c
    if plain < EXACT then
        local high = floor(plain / LIMB)
        return high, plain - high * LIMB
    end
    local upper = floor(a / LIMB)
    local low = (a - upper * LIMB) * b + c
    local carry = floor(low / LIMB)
    return upper * b + carry, low - carry * LIMB
end

-- floor(a*ns / 10^9), and the rest; a < 2^42, ns < 10^9.
local function seconds_of(a, ns)
    local upper = floor(a / LIMB)
    local high = upper * ns
    local high_s = floor(high / E9)
    local low = (high - high_s * E9) * LIMB + (a - upper * LIMB) * ns
    local low_s = floor(low / E9)
    return high_s * LIMB + low_s, low - low_s * E9
end

-- Whether {s1, ns1, num1} < {s2, ns2, num2}.
local function less(s1, ns1, num1, s2, ns2, num2)
    if s1 ~= s2 then
        return s1 < s2
    end
    if ns1 ~= ns2 then
        return ns1 < ns2
    end
    return num1 < num2
end

-- How many tokens are leased of a counter of which `left` are.
local function lease_of(left)
    granted = min(wish, max(floor(left / shares), min(sure, left)))
    return granted
end

-- Whether what was leased may be given back: the window that it was charged in counts still.
local function is_window_of(record, at, used, index)
    local mark = unpack_of('<I6', record, at)
    return used == mark and index == mark
end

-- Stores what has changed, for as long as it is of use.  A counter that is not there yet is made
-- only by hits that count.
local function save(key, op, old, new, is_counted, use_s)
    if op ~= LOOK and new ~= old and (old or is_counted) then
        call('SET', key, new, 'EX', kept_s(use_s))
    end
end

-- A limit of 0 refuses every hit and keeps nothing.
kinds[0] = function(_, op, hits)
    return op == GIVE or (op < GIVE and hits == 0), false
end
