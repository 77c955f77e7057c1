-- sub_windows.lua - {index, hits of sub-window index, of index - 1, ...}: lib/algo/sub_windows.h
--
-- The table keeps running totals, because it can change only 16 bytes at once; here all counts are
-- one string, as long as there is something to count.
--
-- SPDX-License-Identifier: Apache-2.0
local SUB_COUNT_MAX = 2147483647        -- 2^31 - 1

-- The hits by age of their sub-window, and how many are in those from `oldest` on.
local function read_counts(old, index, oldest)
    local counts, used = {}, 0
    for age = 0, (#old - 6) / 4 - 1 do
        counts[age] = unpack_of('<I4', old, 7 + 4 * age)
        if index - age >= oldest then
            used = used + counts[age]
        end
    end
    return counts, used
end

-- The string for sub-windows newest .. oldest; counts[age] is that of sub-window base - age.
local function write_counts(counts, base, newest, oldest)
    local parts, length = {pack('<I6', newest)}, 1
    for index = newest, oldest, -1 do
        local hits = counts[base - index] or 0
        parts[2 + newest - index] = pack('<I4', hits)
        if hits > 0 then
            length = 2 + newest - index
        end
    end
    return table.concat(parts, '', 1, length)
end

kinds[3] = function(key, op, hits, is_counted, record, at)
    local limit, window_s, n, more = unpack_of('<I4I4B', record, at)
    local now = part_of_window(window_s, n)
    local old = call('GET', key)
    local index = old and unpack_of('<I6', old) or now
    local newest = max(index, now)
    if op == RELEASE and not (old and is_window_of(record, more, index, newest)) then
        return false, old
    end
    local counts, used = {}, 0
    if old and index > now + n then     -- from the future: all that counts, as near as can be
        local _
        _, used = read_counts(old, index, index - n)
        index, newest = now + n, now + n
        counts[0] = used
    elseif old then
        counts, used = read_counts(old, index, newest - n)
    end
    local allowed = true
    if op >= GIVE then
        hits = min(hits, used)
        for age = 0, n do
            local gone = min(counts[age] or 0, hits)
            counts[age] = (counts[age] or 0) - gone
            hits = hits - gone
        end
        newest = index
    else
        allowed = used + hits <= limit
        if allowed and wish > 0 then
            hits = hits + lease_of(limit - used - hits)
        end
        if hits > 0 and (allowed or is_counted) then
            local age = index - newest  -- 0, or below: a sub-window that is opened now
            counts[age] = (counts[age] or 0) + min(hits, SUB_COUNT_MAX - used)
        else
            newest = index
        end
    end
    -- Until the sub-window newest + n + 1 begins, counted from the window that now is in.
    local window = floor(now_s / window_s)
    local end_s = ceil((newest + n + 1 - window * n) * window_s / n)
    save(key, op, old, write_counts(counts, index, newest, newest - n),
         op == TAKE and hits > 0 and (allowed or is_counted), end_s - (now_s - window * window_s))
    return allowed, old
end
