-- concurrency.lua - {deadline, slots that end then, at the one before, before that}:
-- lib/algo/concurrency.h
--
-- SPDX-License-Identifier: Apache-2.0
local LEASES = '<I6I2I2I2'

-- The newest deadline, the slots by age of their deadline, and whether the clock went back.
local function expire(old, window_s)
    local newest = part_of_window(window_s, 2) + 3
    local held = {[0] = 0, 0, 0}
    if not old then
        return newest, held, false
    end
    local deadline, first, second, third = unpack_of(LEASES, old)
    local went_back = deadline > newest
    if went_back then
        newest = newest + 1
    end
    for age, slots in pairs({[0] = first, second, third}) do
        local new_age = max(newest - (deadline - age), 0)
        if new_age < 3 then
            held[new_age] = held[new_age] + slots
        end
    end
    return newest, held, went_back
end

-- The age of the deadline that a mark names, if any slots still end then.
local function age_of(mark, newest, went_back)
    local age = max(newest - mark, 0)
    if age < 3 and (mark <= newest or went_back) then
        return age
    end
end

kinds[6] = function(key, op, hits, _, record, at)
    local limit, window_s, mark = unpack_of('<I4I4I6', record, at)
    local old = call('GET', key)
    local newest, held, went_back = expire(old, window_s)
    local allowed = true
    if op == TAKE or op == LOOK then
        allowed = hits == 0 or held[0] + held[1] + held[2] + hits <= limit
        if allowed then
            held[0] = held[0] + hits
        end
    elseif op == GIVE then
        for age = 2, 0, -1 do
            local gone = min(held[age], hits)
            held[age], hits = held[age] - gone, hits - gone
        end
    else
        local age = age_of(mark, newest, went_back)
        local gone = age and min(held[age], hits) or 0
        if gone == 0 or (op == RENEW and gone < hits) then
            return false, old
        end
        held[age] = held[age] - gone
        if op == RENEW then
            held[0] = held[0] + gone
        end
    end
    save(key, op, old, pack(LEASES, newest, held[0], held[1], held[2]),
         op == TAKE and hits > 0 and allowed, ceil(newest * window_s / 2) - now_s)
    return allowed, old
end
