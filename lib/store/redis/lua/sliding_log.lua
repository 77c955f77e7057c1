-- sliding_log.lua - a sorted set with a member for each hit: lib/algo/sliding_log.h
--
-- The score is the time in microseconds, which is what Redis's clock tells and what a double can
-- hold until 2255; the member is what is left of the time, 10 bits, and a running number that makes
-- it unique, 38 bits, most significant byte first: so members are in order, to the nanosecond.  The
-- newest has the number from which the next one follows.
--
-- SPDX-License-Identifier: Apache-2.0
local E6 = 1e6
local SEQUENCES = 274877906944          -- 2^38
local CHUNK = 1000                      -- members added by one ZADD

local function number(n)
    return string.format('%.0f', n)
end

local function read_entry(pair)
    if not pair[1] then
        return nil, 0, -1
    end
    local member = unpack_of('>I6', pair[1])
    local rest = floor(member / SEQUENCES)
    return tonumber(pair[2]), rest, member - rest * SEQUENCES
end

local function entry_at(key, rank)
    return read_entry(call('ZRANGE', key, rank, rank, 'WITHSCORES'))
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
            if floor(unpack_of('>I6', member) / SEQUENCES) < rest then
                count = count + 1
            end
        end
    end
    return count
end

local function append(key, us, rest, sequence, count)
    local score, args = number(us), {}
    for i = 1, count do
        args[#args + 1] = score
        args[#args + 1] = pack('>I6', rest * SEQUENCES + (sequence + i) % SEQUENCES)
        if #args >= 2 * CHUNK or i == count then
            call('ZADD', key, unpack(args))
            args = {}
        end
    end
end

-- The clock went back by more than a window: what is later than us, rest is brought there.
local function bring_nearer(key, us, rest)
    local late = call('ZCOUNT', key, '(' .. number(us), '+inf')
    for _, member in ipairs(call('ZRANGEBYSCORE', key, number(us), number(us))) do
        if floor(unpack_of('>I6', member) / SEQUENCES) > rest then
            late = late + 1
        end
    end
    call('ZREMRANGEBYRANK', key, -late, -1)
    local _, _, sequence = entry_at(key, -1)
    append(key, us, rest, sequence, late)
end

kinds[7] = function(key, op, hits, counts, record, at)
    local limit, window_s = unpack_of('<I4I4', record, at)
    local now_us = now_s * E6 + floor(now_ns / 1000)
    local now_rest = now_ns % 1000
    local last_us, last_rest, sequence = entry_at(key, -1)
    local us, rest = now_us, now_rest   -- the time that counts
    if last_us and is_before(now_us, now_rest, last_us, last_rest) then
        us, rest = last_us, last_rest
        if is_before(now_us + window_s * E6, now_rest, last_us, last_rest) then
            us, rest = now_us + window_s * E6, now_rest
            if op ~= LOOK then
                bring_nearer(key, us, rest)
                last_us, last_rest, sequence = entry_at(key, -1)
            end
        end
    end
    local since_us, held = us - window_s * E6, 0
    local older = last_us and older_within(key, since_us, rest) or 0
    if last_us and op == LOOK then
        held = call('ZCOUNT', key, number(since_us), '+inf') - older
        if held > 0 and is_before(us, rest, last_us, last_rest) then
            last_us, last_rest = us, rest
        end
    elseif last_us then
        call('ZREMRANGEBYSCORE', key, '-inf', '(' .. number(since_us))
        if older > 0 then
            call('ZREMRANGEBYRANK', key, 0, older - 1)
        end
        held = call('ZCARD', key)
    end
    local is_allowed = op == GIVE or held + hits <= limit
    if op == GIVE and held > 0 and hits > 0 then
        call('ZREMRANGEBYRANK', key, -min(hits, held), -1)
        last_us, last_rest = entry_at(key, -1)
    elseif op == TAKE and hits > 0 and (is_allowed or counts) then
        local added = min(hits, limit)
        append(key, us, rest, sequence, added)
        if held + added > limit then
            call('ZREMRANGEBYRANK', key, 0, held + added - limit - 1)
        end
        call('EXPIRE', key, kept_s(ceil((us - now_us) / E6) + window_s + 1))
        last_us, last_rest = us, rest
    end
    -- What a refusal waits for: the youngest of those that must go.
    local gone_us, gone_rest = 0, 0
    if not is_allowed and hits <= limit then
        local rank = hits - limit - 1
        gone_us, gone_rest = entry_at(key, rank)
        if is_before(us, rest, gone_us, gone_rest) then
            gone_us, gone_rest = us, rest
        end
    end
    return is_allowed, pack('<I4I7I2I7I2', held, last_us or 0, last_rest, gone_us, gone_rest)
end
