-- sliding_counter.lua - {index, previous, current}: lib/algo/sliding_counter.h
--
-- SPDX-License-Identifier: Apache-2.0
local SLIDE_COUNT_MAX = 1099511627775   -- 2^40 - 1

-- previous * (W - e), with e the time since the window began: limbs of seconds, and nanoseconds.
local function weighted(previous, index, window_s)
    local left_s, left_ns = (index + 1) * window_s - now_s, 0
    if left_s > window_s then           -- the clock went back: the window has not begun
        left_s = window_s
    elseif now_ns > 0 then
        left_s, left_ns = left_s - 1, E9 - now_ns
    end
    local whole_s, rest_ns = seconds_of(previous, left_ns)
    local high, low = product(previous, left_s, whole_s)
    return high, low, rest_ns
end

-- Whether round(previous * (W - e) / W) <= room: without dividing, previous * (W - e) is compared
-- with room * W, or when rounded down with (room + 1) * W.
local function fits(previous, index, window_s, room, is_up)
    if room < 0 then
        return false
    end
    local high, low, rest_ns = weighted(previous, index, window_s)
    local most_high, most_low = product(is_up and room or room + 1, window_s, 0)
    if high ~= most_high then
        return high < most_high
    end
    if low ~= most_low then
        return low < most_low
    end
    return is_up and rest_ns == 0
end

-- round(previous * (W - e) / W)
local function share_of(previous, index, window_s, is_up)
    local high, low, rest_ns = weighted(previous, index, window_s)
    local upper = floor(high / window_s)
    local rest = (high - upper * window_s) * LIMB + low
    local lower = floor(rest / window_s)
    if is_up and (rest > lower * window_s or rest_ns > 0) then
        lower = lower + 1
    end
    return upper * LIMB + lower
end

kinds[2] = function(key, op, hits, counts, record, at)
    local limit, window_s, is_up, more = unpack_of('<I4I4B', record, at)
    local old = call('GET', key)
    local used, previous, current = 0, 0, 0
    if old then
        used, previous, current = unpack_of('<I5I6I6', old)
    end
    local index = window_of(window_s, used)
    if used < index then
        previous, current = used + 1 == index and current or 0, 0
    end
    local allowed = true
    if op == RELEASE and not is_window_of(record, more, used, index) then
        return false, old
    elseif op == ADD then               -- hits of window `mark`, whatever the limit says
        local mark = unpack_of('<I6', record, more)
        if mark == index then
            current = min(current + hits, SLIDE_COUNT_MAX)
        elseif mark + 1 == index then
            previous = min(previous + hits, SLIDE_COUNT_MAX)
        else
            return false, old
        end
    elseif op >= GIVE then
        previous, current = max(previous - max(hits - current, 0), 0), max(current - hits, 0)
    else
        allowed = fits(previous, index, window_s, limit - hits - current, is_up == 1)
        if allowed and wish > 0 then
            hits = hits + lease_of(limit - hits - current
                                   - share_of(previous, index, window_s, is_up == 1))
        end
        if allowed or counts then
            current = min(current + hits, SLIDE_COUNT_MAX)
        end
    end
    save(key, op, old, pack('<I5I6I6', index, previous, current),
         hits > 0 and (op == ADD or op == TAKE and (allowed or counts)),
         (index + 2) * window_s - now_s)
    return allowed, old
end
