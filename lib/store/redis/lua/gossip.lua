-- gossip.lua - what each node has admitted of a key in a window (`consistency: eventual`).
--
--     KEYS[1]   a hash of that window: node -> hits, and `over` -> hits beyond what may pass in all
--     KEYS[2]   the hash of the window before, where it still makes a difference
--     ARGV[1]   GOSSIP
--     ARGV[2]   who, in 16 digits
--     ARGV[3]   hits 6, most 6, keep 5: how many it has admitted; how many may pass in all; for how
--               many milliseconds the hash is of use
--
-- Nothing is decided here.  A node's hits only grow, so a message that is late or comes again
-- changes nothing.  Each hit beyond `most` is told to exactly one node, the one whose message
-- brought it, so that the sum over all nodes is what slipped through.
--
-- SPDX-License-Identifier: Apache-2.0
local GOSSIP = 71                       -- 'G'

local function sum_of(fields)
    local sum = 0
    for i = 1, #fields, 2 do
        if fields[i] ~= 'over' then
            sum = sum + fields[i + 1]
        end
    end
    return sum
end

local function gossip(of_keys, args)
    local key, who = of_keys[1], args[2]
    local hits, most, keep_ms = unpack_of('<I6I6I5', args[3])
    if hits > tonumber(call('HGET', key, who) or 0) then
        call('HSET', key, who, hits)
        call('PEXPIRE', key, keep_ms)
    end
    local fields = call('HGETALL', key)
    local over = max(sum_of(fields) - most, 0)
    local told = tonumber(over > 0 and call('HGET', key, 'over') or 0)
    if over > told then
        call('HSET', key, 'over', over)
    end
    return {max(over - told, 0), fields, of_keys[2] and call('HGETALL', of_keys[2]) or {}}
end
