-- token_tick.lua - {tick, used}: the token bucket with `refill: interval`, lib/algo/token_bucket.h
--
-- SPDX-License-Identifier: Apache-2.0
local USE_S_MAX = 10000000000

kinds[5] = function(key, op, hits, _, record, at)
    local limit, window_s, burst, more = unpack_of('<I4I4I4', record, at)
    local old = call('GET', key)
    local tick, used = 0, 0
    if old then
        tick, used = unpack_of('<I5I4', old)
    end
    local now = window_of(window_s, tick)
    -- Beyond 2^53 the product is rounded, and then more than was ever in use.
    used = min(max(used - max(now - tick, 0) * limit, 0), burst)
    local allowed = true
    if op == RELEASE and not is_window_of(record, more, tick, now) then
        return false, old
    elseif op >= GIVE then
        used = max(used - hits, 0)
    else
        allowed = used + hits <= burst
        if allowed then
            if wish > 0 then
                hits = hits + lease_of(burst - used - hits)
            end
            used = used + hits
        end
    end
    local full_s = (now + ceil(used / limit)) * window_s
    save(key, op, old, pack('<I5I4', now, used), op == TAKE and hits > 0 and allowed,
         min(full_s - now_s, USE_S_MAX))
    return allowed, old
end
