-- token_bucket.lua - the instant when it is full again, {s, ns, num}, and the rate that num and all
-- hits so far were counted at: lib/algo/gcra.h.  Leaky buckets, too: they have one place more.
--
-- The caller sends what its hits are worth in time, so nothing is multiplied here.  A counter whose
-- rule got another rate is left alone: the caller works out what it is at the new rate, and sends
-- both with the next call, which goes by the new one if the old one is still there.
--
-- SPDX-License-Identifier: Apache-2.0
local TAT = '<I5I4I2I4'
local TAT_LEN = 15
local FULL_PART, BUCKET_MIN_NS = 8, 5e6    -- lib/algo/lease.c
local UNCUT_S = 1e10                    -- longer than any bucket takes to fill

-- What is in use: from now until it is full, at most cap.
local function ahead_of(s, ns, num, cap_s, cap_ns, cap_num)
    if s < now_s or (s == now_s and ns < now_ns) then
        return 0, 0, 0
    end
    s, ns = s - now_s, ns - now_ns
    if ns < 0 then
        s, ns = s - 1, ns + E9
    end
    if less(cap_s, cap_ns, cap_num, s, ns, num) then
        return cap_s, cap_ns, cap_num
    end
    return s, ns, num
end

local function add(s, ns, num, more_s, more_ns, more_num, den)
    s, ns, num = s + more_s, ns + more_ns, num + more_num
    if num >= den then
        ns, num = ns + 1, num - den
    end
    if ns >= E9 then
        s, ns = s + 1, ns - E9
    end
    return s, ns, num
end

local function subtract(s, ns, num, less_s, less_ns, less_num, den)
    if less(s, ns, num, less_s, less_ns, less_num) then
        return 0, 0, 0
    end
    s, ns, num = s - less_s, ns - less_ns, num - less_num
    if num < 0 then
        ns, num = ns - 1, num + den
    end
    if ns < 0 then
        s, ns = s - 1, ns + E9
    end
    return s, ns, num
end

-- The low 48 bits of an instant in nanoseconds: with num, the mark of a place in a queue.
local function low_bits(s, ns)
    local upper = floor(s / 65536)
    return ((upper * E9 % 4294967296) * 65536 + (s - upper * 65536) * E9 + ns) % 281474976710656
end

-- Whether a place may be given back: it is the last of the queue, and has not left.
local function is_last(record, at, s, ns, num, ahead_s, ahead_ns, ahead_num)
    local mark, mark_num, step_s, step_ns, step_num = unpack_of('<I6I2I5I4I4', record, at)
    return low_bits(s, ns) == mark and num == mark_num
           and not less(ahead_s, ahead_ns, ahead_num, step_s, step_ns, step_num)
end

-- n steps.
local function steps(n, den)
    local s, ns = seconds_of(n, step_ns)
    local num = n * step_num
    local carry = floor(num / den)
    ns = ns + carry
    local carry_s = floor(ns / E9)
    return n * step_s + s + carry_s, ns - carry_s * E9, num - carry * den
end

-- What is in use once tokens are leased, too (lib/algo/lease.h).  How many are left is a division of
-- doubles first, which may be off by a few, and then a comparison of spans.
local function lease(ahead_s, ahead_ns, ahead_num, cap_s, cap_ns, cap_num, den)
    local left_s, left_ns, left_num =
        subtract(cap_s, cap_ns, cap_num, ahead_s, ahead_ns, ahead_num, den)
    local function fits(n)
        return not less(left_s, left_ns, left_num, steps(n, den))
    end
    local step = step_s * E9 + step_ns + step_num / den
    local left = floor((left_s * E9 + left_ns + left_num / den) / step)
    while left > 0 and not fits(left) do
        left = left - 1
    end
    while fits(left + 1) do
        left = left + 1
    end
    local n = lease_of(left)
    if n > 0 then
        local least_ns = max(floor(ttl_ns / FULL_PART), BUCKET_MIN_NS)
        local lasts_ns = min(ttl_ns, max(ahead_s * E9 + ahead_ns, least_ns))
        if ahead_s * E9 + ahead_ns < lasts_ns then
            ahead_s = floor(lasts_ns / E9)
            ahead_ns, ahead_num = lasts_ns - ahead_s * E9, 0
        end
        local more_s, more_ns, more_num = steps(n, den)
        return add(ahead_s, ahead_ns, ahead_num, more_s, more_ns, more_num, den)
    end
    return ahead_s, ahead_ns, ahead_num
end

-- is_uncut: what a larger bucket has used of this counter stands, see lib/engine/throttle.h.
kinds[4] = function(key, op, hits, is_uncut, record, at)
    local den, rate, cap_s, cap_ns, cap_num, cost_s, cost_ns, cost_num, more =
        unpack_of('<I4I4I5I4I4I5I4I4', record, at)
    local stored = call('GET', key)
    local old = stored
    local s, ns, num, old_rate = 0, 0, 0, rate
    if old then
        if op ~= RELEASE and #record >= more and sub(record, more, more + TAT_LEN - 1) == old then
            old = sub(record, more + TAT_LEN)
        end
        s, ns, num, old_rate = unpack_of(TAT, old)
    end
    local is_past = s < now_s or (s == now_s and ns < now_ns)
    if old_rate ~= rate and not is_past then
        return false, old, true
    end
    local ahead_s, ahead_ns, ahead_num =
        ahead_of(s, ns, num, is_uncut and UNCUT_S or cap_s, cap_ns, cap_num)
    local allowed = true
    if op == TAKE or op == LOOK then
        local next_s, next_ns, next_num =
            add(ahead_s, ahead_ns, ahead_num, cost_s, cost_ns, cost_num, den)
        allowed = hits == 0 or not less(cap_s, cap_ns, cap_num, next_s, next_ns, next_num)
        if allowed then
            ahead_s, ahead_ns, ahead_num = next_s, next_ns, next_num
        end
        if allowed and wish > 0 then
            ahead_s, ahead_ns, ahead_num =
                lease(ahead_s, ahead_ns, ahead_num, cap_s, cap_ns, cap_num, den)
        end
    elseif op == RELEASE
           and not is_last(record, more, s, ns, num, ahead_s, ahead_ns, ahead_num) then
        return false, old
    else
        ahead_s, ahead_ns, ahead_num =
            subtract(ahead_s, ahead_ns, ahead_num, cost_s, cost_ns, cost_num, den)
    end
    s, ns, num = add(now_s, now_ns, 0, ahead_s, ahead_ns, ahead_num, den)
    save(key, op, stored, pack(TAT, s, ns, num, rate), op == TAKE and hits + granted > 0 and allowed,
         ahead_s + 1)
    return allowed, old
end
