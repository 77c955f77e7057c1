-- rules_db.lua - the rules database: what reads or changes it, each in one step.
--
-- A domain's rules are a hash; what they were before is a stream, whose ids are the versions.  The
-- head knows the number of the last change of all; a version is that number, so it never comes
-- twice, and whoever remembers the last one knows with one look whether anything has changed.
--
-- SPDX-License-Identifier: Apache-2.0
local TEXT_MAX, WORDS_MAX = 4194304, 4096  -- WEIR_RULES_DB_TEXT_MAX; of who, why and the like together
local HISTORY_MAX = 50                     -- versions of a domain that are kept
local FORGOTTEN_S = 7776000                -- 90 days: so long stays the history of a deleted domain
local call = redis.call

-- {name, value, name, value ...} to {name = value ...}
local function fields_of(flat)
    local fields = {}
    for i = 1, #flat, 2 do
        fields[flat[i]] = flat[i + 1]
    end
    return fields
end

-- What is sent of one version; weir_redis_rules_entry reads it.
local function entry_of(fields, text)
    return {fields.version or '0', fields.time or '0', fields.who or '', fields.why or '', fields.sha256 or '',
            tostring(#(fields.text or '')), fields.deleted or '', text}
end

local ops = {}

-- get <domain>: the rules as they are.
function ops.get(keys)
    local words = 0
    for _, name in ipairs({'version', 'time', 'who', 'why', 'sha256', 'deleted'}) do
        words = words + call('HSTRLEN', keys[1], name)
    end
    if words > WORDS_MAX or call('HSTRLEN', keys[1], 'text') > TEXT_MAX then
        return redis.error_reply('TOOLARGE what is stored was not stored by weir')
    end
    local flat = call('HMGET', keys[1], 'version', 'time', 'who', 'why', 'sha256', 'text')
    if not flat[1] then
        return false
    end
    local fields = {version = flat[1], time = flat[2], who = flat[3], why = flat[4], sha256 = flat[5], text = flat[6]}
    return entry_of(fields, fields.text or '')
end

-- old <history> VERSION: as they were.
function ops.old(keys, args)
    local found = call('XRANGE', keys[1], args[2] .. '-0', args[2] .. '-0')
    if not found[1] then
        return false
    end
    local fields = fields_of(found[1][2])
    return entry_of(fields, fields.text or '')
end

-- history <history>: all that is kept, the newest first, without their texts.
function ops.history(keys)
    local found = call('XREVRANGE', keys[1], '+', '-', 'COUNT', HISTORY_MAX)
    local entries = {}
    for i = 1, #found do
        entries[i] = entry_of(fields_of(found[i][2]), '')
    end
    return entries
end

-- The number of a change that is about to be made: beyond all that were, though the head was lost.
local function next_version(keys, last)
    local version = tonumber(last)
    for i = 4, #keys, 2 do
        local newest = call('XREVRANGE', keys[i], '+', '-', 'COUNT', 1)
        if newest[1] then
            version = math.max(version, tonumber(string.match(newest[1][1], '^%d+')))
        end
    end
    return string.format('%.0f', version + 1)
end

-- What speaks against a change; nil: nothing.
local function objection(key, change)
    local version = call('HGET', key, 'version') or '0'
    if change.replaces ~= '' and change.replaces ~= version then
        local flat = call('HMGET', key, 'version', 'time', 'who', 'why')
        local fields = {version = version, time = flat[2], who = flat[3], why = flat[4]}
        return {'conflict', change.domain, entry_of(fields, '')}
    end
    if change.deletes == '1' and version == '0' then
        return {'absent', change.domain}
    end
    return nil
end

-- Whether a domain is what it is to become.
local function is_unchanged(key, change)
    return change.deletes == '0' and call('HSTRLEN', key, 'text') == #change.text and
           call('HGET', key, 'sha256') == change.sha256 and call('HGET', key, 'text') == change.text
end

local function apply(keys, at, change, common)
    local deleted = change.deletes == '1'
    call('XADD', keys[at + 1], 'MAXLEN', HISTORY_MAX, common.version .. '-0', 'version', common.version,
         'time', common.time, 'who', common.who, 'why', common.why, 'sha256', change.sha256,
         'deleted', change.deletes, 'text', change.text)
    if deleted then
        call('DEL', keys[at])
        call('HDEL', keys[2], change.domain)
        call('EXPIRE', keys[at + 1], FORGOTTEN_S)
        return
    end
    call('PERSIST', keys[at + 1])
    call('HSET', keys[at], 'version', common.version, 'time', common.time, 'who', common.who,
         'why', common.why, 'sha256', change.sha256, 'text', change.text)
    call('HSET', keys[2], change.domain, common.version)
end

-- change <head> <domains> (<domain> <history>)... LAST ID WHO WHY (DOMAIN REPLACES DELETES SHA256 TEXT)...
-- All or nothing.  LAST: the number of the last change, as it was when the rules were checked.
function ops.change(keys, args)
    local last = call('HGET', keys[1], 'version') or '0'
    if last ~= args[2] then
        return {'moved', last}
    end
    local answer, changes = {'done', last}, {}
    for at = 3, #keys, 2 do
        local first = 6 + (at - 3) / 2 * 5
        local change = {domain = args[first], replaces = args[first + 1], deletes = args[first + 2],
                        sha256 = args[first + 3], text = args[first + 4], key = at}
        local no = objection(keys[at], change)
        if no then
            return no
        end
        local before = call('HGET', keys[at], 'version') or '0'
        if not is_unchanged(keys[at], change) then
            changes[#changes + 1] = change
        end
        change.after = #answer + 2  -- where the answer says which version it has now
        answer[#answer + 1] = before
        answer[#answer + 1] = before
    end
    if #changes == 0 then
        return answer
    end
    local common = {version = next_version(keys, last), time = call('TIME')[1], who = args[4], why = args[5]}
    for _, change in ipairs(changes) do
        apply(keys, change.key, change, common)
        answer[change.after] = common.version
    end
    call('HSETNX', keys[1], 'id', args[3])
    call('HSET', keys[1], 'version', common.version)
    answer[2] = common.version
    return answer
end

return ops[ARGV[1]](KEYS, ARGV)
