-- call.lua - one call: the counters of one request, decided and charged in one step.
--
--     KEYS[i]      a counter
--     ARGV[1]      one byte: 1 where the request is atomic; behind it, for tests, the time
--     ARGV[1 + i]  its record: kind, op, counts, ends, part, hits, then what the kind needs
--
-- The limits of a rule follow each other, and the last has ends = 1.  They are taken all or none.
-- part says what an atomic request makes of the rule: 0 it is part of it, 1 in quota mode, 2 it is
-- not (shadow mode, refunds).
--
-- A LEASE has, before what its kind needs: wish, sure, shares, ttl, step.  It is a TAKE of a rule with one
-- limit, in a request that is not atomic.
--
-- Returned are a string - the time, a byte for each counter: 1 allowed, 2 charged, 4 to be asked
-- again; for each LEASE how many tokens it became - and what each counter held before, from which
-- the caller computes the rest.
--
-- ARGV[1] may also be the letter of another kind of call (gossip.lua).
--
-- SPDX-License-Identifier: Apache-2.0
local HEAD = '<BBBBBI6'
local ALLOWED, CHARGED, STALE = 1, 2, 4
local LOG = 7

local keys, records, olds, bytes        -- of this call; bytes[i]: the sum of the above
local grants                            -- of its leases

local function apply(i, as_op, is_quiet)
    local record = records[i + 1]
    local kind, op, counts, _, _, hits, at = unpack_of(HEAD, record)
    local is_lease = op == LEASE
    if is_lease then
        wish, sure, shares, ttl_ns, step_s, step_ns, step_num, at =
            unpack_of('<I4I4I4I4I5I4I4', record, at)
        op = TAKE
    end
    granted = 0
    local allowed, old, is_stale =
        kinds[kind](keys[i], as_op or op, hits, counts == 1 and not is_quiet, record, at)
    if is_lease then
        grants = grants .. pack('<I4', granted)
        wish = 0
    end
    olds[i + 1] = old
    if is_stale then
        bytes[i] = STALE
    else
        bytes[i] = allowed and ALLOWED or 0
    end
    return allowed
end

local function op_of(i)
    return byte(records[i + 1], 2)
end

-- Charged before a later counter of the same request refused: only a counter that the request
-- names twice can do that.  The last comes first: what it found is what the others had made.
local function undo(first, last)
    for i = last, first, -1 do
        if bytes[i] >= CHARGED and bytes[i] < STALE then
            local old = olds[i + 1]
            if byte(records[i + 1], 1) == LOG then
                apply(i, GIVE)
                olds[i + 1] = old
            elseif old then
                call('SET', keys[i], old, 'KEEPTTL')
            else
                call('DEL', keys[i])
            end
            bytes[i] = ALLOWED
        end
    end
end

local function look(first, last)
    local allowed = true
    for i = first, last do
        allowed = apply(i, LOOK, true) and allowed
    end
    return allowed
end

local function take(first, last)
    for i = first, last do
        if not apply(i, TAKE, true) then
            undo(first, i - 1)
            return false
        end
        bytes[i] = bytes[i] + CHARGED
    end
    return true
end

-- One rule by itself.
local function decide(first, last)
    if first == last or op_of(first) ~= TAKE then
        for i = first, last do
            if apply(i) and op_of(i) ~= LOOK then
                bytes[i] = bytes[i] + CHARGED
            end
        end
    elseif look(first, last) then
        take(first, last)
    end
end

-- The end of the rule that begins here.
local function last_of(first)
    while byte(records[first + 1], 4) == 0 do
        first = first + 1
    end
    return first
end

-- Over if a rule is, of those in quota mode if all are.
local function is_over(rules)
    local quota, quota_over = 0, 0
    for _, rule in ipairs(rules) do
        if rule.part == 1 then
            quota = quota + 1
            quota_over = quota_over + (rule.allowed and 0 or 1)
        elseif not rule.allowed then
            return true
        end
    end
    return quota > 0 and quota_over == quota
end

local function take_rules(rules)
    for _, rule in ipairs(rules) do
        if rule.allowed then
            rule.allowed = take(rule.first, rule.last)
            if is_over(rules) then
                for n = #rules, 1, -1 do
                    undo(rules[n].first, rules[n].last)
                end
                return
            end
        end
    end
end

-- Whether a rule must be asked again: then so must all, because nothing was decided.
local function is_undecided(rules)
    local found = false
    for _, rule in ipairs(rules) do
        for i = rule.first, rule.last do
            found = found or bytes[i] == STALE
        end
    end
    for _, rule in ipairs(found and rules or {}) do
        for i = rule.first, rule.last do
            bytes[i] = STALE
        end
    end
    return found
end

local function decide_atomic(count)
    local rules, first = {}, 1
    while first <= count do
        local last, part = last_of(first), byte(records[first + 1], 5)
        if part == 2 then
            decide(first, last)
        else
            rules[#rules + 1] =
                {first = first, last = last, part = part, allowed = look(first, last)}
        end
        first = last + 1
    end
    if not is_undecided(rules) and not is_over(rules) then
        take_rules(rules)
    end
end

local function run(of_keys, of_records)
    bind()
    if byte(of_records[1]) == GOSSIP then
        return gossip(of_keys, of_records)
    end
    wish = 0                            -- an error may have ended a call within its lease
    keys, records, olds, bytes, grants = of_keys, of_records, {false}, {}, ''
    local count = #keys
    read_clock(records[1])
    if byte(records[1]) == 1 then
        decide_atomic(count)
    else
        local first = 1
        while first <= count do
            local last = last_of(first)
            decide(first, last)
            first = last + 1
        end
    end
    olds[1] = pack('<I5I4', now_s, now_ns) .. string.char(unpack(bytes)) .. grants
    return olds
end
