-- sliding_log.lua - a sorted set with a member for each hit: lib/algo/sliding_log.h
--
-- The score is the time in microseconds, which is what Redis's clock tells and what a double can
-- hold until 2255; the member is what is left of the time, 10 bits, whether that lies ahead, 1 bit,
-- and a running number that makes it unique, 37 bits, most significant byte first: so members are
-- in order, to the nanosecond.  The newest has the number from which the next one follows.
--
-- Leased tokens have the time of the lease's end, `lead` after the call (lib/algo/lease.h): their
-- time lies ahead.  What is taken before that time is over has it, too, so that times never go
-- back.  An entry whose time lies ahead was made `lead` before it, at the latest.
--
-- SPDX-License-Identifier: Apache-2.0
local E6 = 1e6
local SEQUENCES = 137438953472          -- 2^37
local CHUNK = 1000                      -- members added by one ZADD
local LEAD_US, LEAD_MAX_US = 4000, 1e6  -- for each second of the window; lib/algo/lease.c

local function number(n)
    return string.format('%.0f', n)
end

-- The time of the member of a rank, its number, and 1 where the time lies ahead.
local function entry_at(key, rank)
    local pair = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    if not pair[1] then
        return nil, 0, -1, 0
    end
    local member = unpack_of('>I6', pair[1])
    local high = floor(member / SEQUENCES)
    return tonumber(pair[2]), floor(high / 2), member - high * SEQUENCES, high % 2
end

local function rest_of(member)
    return floor(unpack_of('>I6', member) / (2 * SEQUENCES))
end

local function is_before(us, rest, other_us, other_rest)
    return us < other_us or (us == other_us and rest < other_rest)
end

-- How many members of this microsecond are older than `rest` nanoseconds of it.  In production
-- none, because all times are whole microseconds.
local function older_within(key, us, rest)
    local count = 0
    if rest > 0 then
        for _, member in ipairs(call('ZRANGEBYSCORE', key, number(us), number(us))) do
            if rest_of(member) < rest then
                count = count + 1
            end
        end
    end
    return count
end

local function append(key, us, rest, ahead, sequence, count)
    local score, args = number(us), {}
    for i = 1, count do
        args[#args + 1] = score
        args[#args + 1] = pack('>I6', (2 * rest + ahead) * SEQUENCES + (sequence + i) % SEQUENCES)
        if #args >= 2 * CHUNK or i == count then
            call('ZADD', key, unpack(args))
            args = {}
        end
    end
end

-- The clock went back by more than a window: what is later than us, rest is brought there.
local function bring_nearer(key, us, rest, ahead)
    local late = call('ZCOUNT', key, '(' .. number(us), '+inf')
    for _, member in ipairs(call('ZRANGEBYSCORE', key, number(us), number(us))) do
        if rest_of(member) > rest then
            late = late + 1
        end
    end
    call('ZREMRANGEBYRANK', key, -late, -1)
    local _, _, sequence = entry_at(key, -1)
    append(key, us, rest, ahead, sequence, late)
end

-- Removes up to `hits` members of one time; says how many.
local function release(key, hits, us, rest)
    local sooner = call('ZCOUNT', key, '-inf', '(' .. number(us))
    local first = sooner + older_within(key, us, rest)
    local gone = min(hits, sooner + older_within(key, us, rest + 1) - first)
    if gone > 0 then
        call('ZREMRANGEBYRANK', key, first, first + gone - 1)
    end
    return gone
end

-- The time that counts: now, or when the newest entry was made if the clock went back, by a window
-- at most.  Then what is known of the newest.
local function catch_up(key, op, window_us, lead_us)
    local us, rest = now_s * E6 + floor(now_ns / 1000), now_ns % 1000
    local last_us, last_rest, sequence, ahead = entry_at(key, -1)
    if last_us and is_before(us, rest, last_us - ahead * lead_us, last_rest) then
        if not is_before(us + window_us, rest, last_us - ahead * lead_us, last_rest) then
            return last_us - ahead * lead_us, last_rest, last_us, last_rest, sequence, ahead
        end
        us = us + window_us
        if op ~= LOOK then
            bring_nearer(key, us + ahead * lead_us, rest, ahead)
            call('EXPIRE', key, kept_s(ceil((2 * window_us + lead_us) / E6) + 1))
            last_us, last_rest, sequence, ahead = entry_at(key, -1)
        end
    end
    return us, rest, last_us, last_rest, sequence, ahead
end

-- How many entries count since then; the others are dropped.
local function count_since(key, op, us, rest)
    local older = older_within(key, us, rest)
    if op == LOOK then
        return call('ZCOUNT', key, number(us), '+inf') - older
    end
    call('ZREMRANGEBYSCORE', key, '-inf', '(' .. number(us))
    if older > 0 then
        call('ZREMRANGEBYRANK', key, 0, older - 1)
    end
    return call('ZCARD', key)
end

kinds[7] = function(key, op, hits, counts, record, at)
    local limit, window_s, more = unpack_of('<I4I4', record, at)
    local lead_us = min(window_s * LEAD_US, LEAD_MAX_US)
    local us, rest, last_us, last_rest, sequence, ahead = catch_up(key, op, window_s * E6, lead_us)
    local top_us = us + ahead * lead_us         -- no entry is later, or is taken for it
    local held = last_us and count_since(key, op, us - window_s * E6, rest) or 0
    if op == RELEASE then
        held = release(key, hits, unpack_of('<I7I2', record, more))
        return held > 0, pack('<I4I7I2I7I2', held, 0, 0, 0, 0)
    end
    if held > 0 and is_before(top_us, rest, last_us, last_rest) then
        last_us, last_rest = top_us, rest
    end
    local is_allowed = op == GIVE or held + hits <= limit
    if op == GIVE and held > 0 and hits > 0 then
        call('ZREMRANGEBYRANK', key, -min(hits, held), -1)
        last_us, last_rest = entry_at(key, -1)
    elseif op == TAKE and (is_allowed or counts) then
        local added = min(hits, limit)
        if added > 0 then
            if ahead == 0 or is_before(last_us, last_rest, us, rest) then
                last_us, last_rest, ahead = us, rest, 0
            end
            append(key, last_us, last_rest, ahead, sequence, added)
        end
        if held + added > limit then
            call('ZREMRANGEBYRANK', key, 0, held + added - limit - 1)
        end
        if is_allowed and wish > 0 and lease_of(limit - held - hits) > 0 then
            last_us, last_rest = us + lead_us, rest
            append(key, last_us, last_rest, 1, sequence + added, granted)
        end
        if added + granted > 0 then
            call('EXPIRE', key, kept_s(floor(last_us / E6) - now_s + window_s + 1))
        end
    end
    -- What a refusal waits for: the youngest of those that must go.
    local gone_us, gone_rest = 0, 0
    if not is_allowed and hits <= limit then
        gone_us, gone_rest = entry_at(key, hits - limit - 1)
        if is_before(top_us, rest, gone_us, gone_rest) then
            gone_us, gone_rest = top_us, rest
        end
    end
    return is_allowed, pack('<I4I7I2I7I2', held, last_us or 0, last_rest, gone_us, gone_rest)
end
