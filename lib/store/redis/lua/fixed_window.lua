-- fixed_window.lua - {index, count}: lib/algo/fixed_window.h
--
-- SPDX-License-Identifier: Apache-2.0
local WINDOW_COUNT_MAX = 4398046511103  -- 2^42 - 1

kinds[1] = function(key, op, hits, counts, record, at)
    local limit, window_s, more = unpack_of('<I4I4', record, at)
    local old = call('GET', key)
    local used, count = 0, 0
    if old then
        used, count = unpack_of('<I5I6', old)
    end
    local index = window_of(window_s, used)
    if used < index then
        count = 0
    end
    local allowed = true
    if op == RELEASE and not is_window_of(record, more, used, index) then
        return false, old
    elseif op >= GIVE then
        count = max(count - hits, 0)
    else
        allowed = count + hits <= limit
        if allowed and wish > 0 then
            hits = hits + lease_of(limit - count - hits)
        end
        if allowed or counts then
            count = min(count + hits, WINDOW_COUNT_MAX)
        end
    end
    save(key, op, old, pack('<I5I6', index, count), op == TAKE and hits > 0 and (allowed or counts),
         (index + 1) * window_s - now_s)
    return allowed, old
end
