-- reservations: the open reservations of a key, and the ids that ended before their take. Twin of pkg/limiters/leases.go.
--
-- KEYS    one string of at most FEW records. Beyond that it becomes a sorted set, see concurrency.lua, until the set is empty.
--         The string begins with the expiry of the key, in s since 1970 by this server's clock, and the number of records of
--         ended ids, 4 bytes each. A record has an id, 16 bytes, and its expiry, its estimate and the time charged, 8 bytes
--         each. Reservations come first, then ids that ended before their take, whose estimate is the actual cost; both are in
--         the order of expiry. A settled reservation has no id. The last record is not settled.
-- ARGV    none of its own.
-- units   times in µs since 1970, durations in µs
-- reply   none of its own.
--
-- A state has the unsettled records in text, or the state of the sorted set in long. Changes are written immediately. A failed
-- write is an error and leaves the state unchanged.
--
-- The most frequent hits need no state: a take appends a record to the string, and a settle overwrites its id, see reserves.lua.
local M = {
  MAX_LEASES = 10000, load = 0, count = 0, find = 0, cost = 0, put = 0, remove = 0, has_ended = 0, remember = 0, forget = 0, cut = 0,
  lapse = 0, wait = 0,
}
local ceil, sub = math.ceil, string.sub
local FEW, RECORD, HEAD = 64, 40, 8
local ENDED_FOR = 5000000
local NONE = {}

return function(sets, unsettled)

  -- The expiry, the estimate and the time of record i, from 1.
  local function record(s, i) return unpacked('>I8I8I8', s.text, (i - 1) * RECORD + 17) end

  -- The record of an id, of those from a first to a last one.
  local function search(s, id, first, last)
    if first > last then return nil end
    local at = string.find(s.text, id, (first - 1) * RECORD + 1, true)
    while at and at % RECORD ~= 1 do at = string.find(s.text, id, at + 1, true) end
    local i = at and (at - 1) / RECORD + 1
    return i and i <= last and i or nil
  end

  -- Sets the records of a state, and how many of them are open.
  local function set(s, text, count)
    s.text, s.open, s.ended, s.id = text, count, #text / RECORD - count, nil
    s.first, s.latest = 0, 0
    if count > 0 then s.first, s.latest = record(s, 1), record(s, count) end
  end

  -- Writes records. The key is kept for keep µs at least. Setting an expiry is expensive, so it is set a quarter longer than
  -- needed, and again only when that is too short.
  local function write(s, text, count, keep, server)
    local kept = s.kept
    if keep > 0 then
      local least = (server / 1000 + expiry(keep)) / 1000
      if kept < least then kept = ceil(least + expiry(keep) / 4000) end
    end
    local value = pack('>I4I4', kept, #text / RECORD - count) .. text
    if kept == s.kept then
      call('SET', s.key, value, 'KEEPTTL')
    else
      call('SET', s.key, value, 'PXAT', digits(kept * 1000))
    end
    s.kept = kept
    set(s, text, count)
  end

  -- Writes fewer records. A full Redis rejects SET, unless the script has written before.
  local function shrink(s, text, count)
    if text == '' then
      call('DEL', s.key)
      s.kept = 0
      return set(s, text, count)
    end
    if pcall(write, s, text, count, 0) then return end
    call('DEL', s.key)
    call('SET', s.key, pack('>I4I4', s.kept, #text / RECORD - count) .. text, 'PXAT', digits(s.kept * 1000))
    set(s, text, count)
  end

  local function without(s, i) return sub(s.text, 1, (i - 1) * RECORD) .. sub(s.text, i * RECORD + 1) end

  -- Moves the records to a sorted set.
  local function lengthen(s, server)
    call('APPEND', s.key, '') -- fails on a full Redis, before anything is changed
    call('DEL', s.key)
    s.long = sets().load(s.key, '', true)
    local open, ended = {}, {}
    for i = 1, s.open + s.ended do
      local list = i > s.open and ended or open
      list[#list + 1] = { sub(s.text, (i - 1) * RECORD + 1, (i - 1) * RECORD + 16), record(s, i) }
    end
    sets().fill(s.long, open, ended, s.kept, server)
  end

  -- value is the value of the key; false if it is absent or no string, nil if it is unknown.
  function M.load(key, value)
    value = value or redis.pcall('GET', key)
    local s = { key = key, kept = 0, text = '', open = 0, ended = 0, first = 0, latest = 0, id = nil, at = nil, long = nil }
    if type(value) == 'table' then
      if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err, 0) end
      s.long = sets().load(key, '', true)
    elseif value then
      local ended
      if #value % RECORD ~= HEAD then error('an unreadable value', 0) end
      s.kept, ended = unpacked('>I4I4', value)
      local text = unsettled(sub(value, HEAD + 1))
      local count = #text / RECORD - ended
      if count < 0 then error('an unreadable value', 0) end
      set(s, text, count)
    end
    return s
  end

  function M.count(s) return s.long and s.long.count or s.open end

  function M.find(s, id)
    if s.long then return sets().find(s.long, id) end
    if s.id ~= id then s.id, s.at = id, search(s, id, 1, s.open) end
    return s.at
  end

  function M.cost(s, id)
    if s.long then return sets().cost(s.long, id) end
    local _, n, at = record(s, M.find(s, id))
    return n, at
  end

  function M.put(s, id, l, now, n, at, server)
    if not s.long and s.open + s.ended >= FEW then lengthen(s, server) end
    if s.long then return sets().put(s.long, id, l, now, n, at, server) end
    local expires, i = now + l.ttl, s.open
    local more = pack('>c16I8I8I8', id, expires, n, at)
    if i == 0 or s.latest <= expires then
      if s.ended == 0 then return write(s, s.text .. more, i + 1, l.ttl, server) end
    else
      -- Limits of one group may have several TTLs.
      while i > 0 and record(s, i) > expires do i = i - 1 end
    end
    write(s, sub(s.text, 1, i * RECORD) .. more .. sub(s.text, i * RECORD + 1), s.open + 1, l.ttl, server)
  end

  function M.remove(s, id)
    if s.long then return sets().remove(s.long, id) end
    shrink(s, without(s, M.find(s, id)), s.open - 1)
  end

  function M.has_ended(s, id, now)
    if s.long then return sets().has_ended(s.long, id, now) end
    local i = search(s, id, s.open + 1, s.open + s.ended)
    if not i then return false end
    local expires, n = record(s, i)
    return expires > now, n
  end

  function M.remember(s, id, now, n, server)
    if not s.long and s.open + s.ended >= FEW then lengthen(s, server) end
    if s.long then return sets().remember(s.long, id, now, n, server) end
    local known = search(s, id, s.open + 1, s.open + s.ended)
    local others = known and { text = without(s, known) } or s
    local expires, i = now + ENDED_FOR, #others.text / RECORD
    while i > s.open and record(others, i) > expires do i = i - 1 end
    local one = pack('>c16I8I8I8', id, expires, n, 0)
    write(s, sub(others.text, 1, i * RECORD) .. one .. sub(others.text, i * RECORD + 1), s.open, ENDED_FOR, server)
  end

  function M.forget(s, id)
    if s.long then return sets().forget(s.long, id) end
    shrink(s, without(s, search(s, id, s.open + 1, s.open + s.ended)), s.open)
  end

  -- A failure to write changes nothing.
  function M.cut(s, latest)
    if s.long then return sets().cut(s.long, latest) end
    if s.open == 0 or s.latest <= latest then return end
    local parts = {}
    for i = 1, s.open do
      local expires, n, at = record(s, i)
      parts[i] = pack('>c16I8I8I8', sub(s.text, (i - 1) * RECORD + 1, (i - 1) * RECORD + 16), math.min(expires, latest), n, at)
    end
    pcall(write, s, table.concat(parts) .. sub(s.text, s.open * RECORD + 1), s.open, 0)
  end

  -- Drops what has expired. On a replica, which rejects all writes, it is dropped only from the state.
  function M.lapse(s, now, id)
    if s.long then return sets().lapse(s.long, now, id) end
    if (s.open == 0 or s.first > now) and (s.ended == 0 or record(s, s.open + 1) > now) then return NONE end
    local lapsed, kept, i = {}, {}, 1
    while i <= s.open and record(s, i) <= now do
      local _, n, at = record(s, i)
      lapsed[i], i = { at = at, delta = -n }, i + 1
    end
    kept[1] = sub(s.text, (i - 1) * RECORD + 1, s.open * RECORD)
    for j = s.open + 1, s.open + s.ended do
      if record(s, j) > now then kept[#kept + 1] = sub(s.text, (j - 1) * RECORD + 1, j * RECORD) end
    end
    local text, count = table.concat(kept), s.open - #lapsed
    if not pcall(shrink, s, text, count) then set(s, text, count) end
    return lapsed
  end

  -- Only a sorted set may have too many reservations.
  function M.wait(s, now, ttl) return sets().wait(s.long, now, ttl) end

  return M
end
