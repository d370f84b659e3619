-- leases_hash: the reservations of a key, and the ids that ended before they were opened, in a hash. Twin of pkg/limiters/leases.go.
--
-- KEYS    one hash. With more than $MAX_HASH_LEASES reservations and ended ids it becomes a sorted set, see leases_zset.lua, until the set is
--         empty. With a set alone a frequent operation would cost 1.5 to 1.8 times as much, and a hash has no order of expiries (ADR 17).
--         If the limit refunds expired reservations, the key is kept for as long as their estimates may count.
--         The fields:
--           'h'         4  the expiry of the key, in s since 1970 by this server's clock
--                       2  a number of reservations and ended ids, at least as many as there are
--                       2  the number of ended ids
--                       8  a lower bound of the first expiry of these
--                       8  an upper bound of the last expiry of a reservation
--           id          an open reservation: its expiry, its estimate and the time charged, 8 bytes each
--           id .. 'e'   an id that ended before it was opened: when that is forgotten and the actual cost, 8 bytes each
-- ARGV    none of its own.
-- units   times in µs since 1970, durations in µs
--
-- A state has the leases in open and ended by id, or is that of the sorted set. Its module is this file or leases_zset.lua. Changes are
-- written immediately. A failed write is an error and leaves the state unchanged.
--
-- The most frequent operations need no state: decide_reservations.lua reads and writes one lease of the hash.
local M = {
  load = 0, find = 0, cost = 0, open = 0, remove = 0, has_ended = 0, remember_end = 0, forget_end = 0, shorten = 0, expire = 0,
}
local sub, min, max, huge = string.sub, math.min, math.max, math.huge
local NONE = {}

local function head_of(s, key_expiry)
  return struct_pack('>I4I2I2I8I8', key_expiry, s.count + s.count_ended, s.count_ended, s.first_expiry, s.latest)
end

-- Sets the counts and the bounds of a state from its leases.
local function sum_up(s)
  s.count, s.count_ended, s.first_expiry, s.latest = 0, 0, huge, 0
  for _, r in pairs(s.open) do
    s.count, s.first_expiry, s.latest = s.count + 1, min(s.first_expiry, r.expires), max(s.latest, r.expires)
  end
  for _, r in pairs(s.ended) do s.count_ended, s.first_expiry = s.count_ended + 1, min(s.first_expiry, r.expires) end
  if s.first_expiry == huge then s.first_expiry = 0 end
end

-- Sets the lease of an id in one of the tables of a state, and writes the change by a function. If that fails, the lease
-- becomes the old one again.
local function change(s, leases, id, lease, written, ...)
  local old = leases[id]
  leases[id] = lease
  sum_up(s)
  local ok, problem = pcall(written, s, ...)
  if ok then return end
  leases[id] = old
  sum_up(s)
  error(problem, 0)
end

-- Writes a lease, and keeps the key for keep µs at least.
local function write(s, field, value, keep, server)
  local key_expiry, px = s.key_expiry
  if key_expiry < least_expiry(keep, server) then key_expiry, px = renew_expiry(keep, server) end
  call('HSET', s.key, $HEAD_FIELD, head_of(s, key_expiry), field, value)
  if px then call('PEXPIRE', s.key, px) end
  s.key_expiry = key_expiry
end

-- Deletes fields that the state no longer has. A full Redis allows the deletion, and after it the write of the head.
local function delete(s, ...)
  if s.count + s.count_ended == 0 then
    call('DEL', s.key)
    s.key_expiry = 0
  else
    call('HDEL', s.key, ...)
    call('HSET', s.key, $HEAD_FIELD, head_of(s, s.key_expiry))
  end
end

-- Returns the state of a sorted set, which few keys need.
local function load_set(key) return module_of('leases_zset').load(key, '', true) end

-- Moves the leases to a sorted set, whose state s becomes.
local function become_set(s, server)
  call('HSET', s.key, $HEAD_FIELD, head_of(s, s.key_expiry)) -- fails on a full Redis, before anything is changed
  call('DEL', s.key)
  local set, open, ended = load_set(s.key), {}, {}
  for id, r in pairs(s.open) do open[#open + 1] = { id, r.expires, r.n, r.charged_at } end
  for id, r in pairs(s.ended) do ended[#ended + 1] = { id, r.expires, r.n } end
  set.module.fill(set, open, ended, s.key_expiry, server)
  for field, value in pairs(set) do s[field] = value end
end

local function is_full(s) return s.count + s.count_ended >= $MAX_HASH_LEASES end

local function read(s, field, value)
  if field == $HEAD_FIELD then
    if #value ~= 24 then error('an unreadable value', 0) end
    s.key_expiry = struct_unpack('>I4', value)
  elseif #field == 16 then
    local expires, n, charged_at = whole_numbers(value, 24, '>I8I8I8')
    s.open[field] = { expires = expires, n = n, charged_at = charged_at }
  elseif #field == 17 then
    local expires, n = whole_numbers(value, 16, '>I8I8')
    s.ended[sub(field, 1, 16)] = { expires = expires, n = n }
  else
    error('an unreadable value', 0)
  end
end

function M.load(key)
  local s = { module = M, key = key, key_expiry = 0, open = {}, ended = {}, count = 0, count_ended = 0, first_expiry = 0, latest = 0 }
  local fields = redis.pcall('HGETALL', key)
  if fields.err then
    if not string.find(fields.err, 'WRONGTYPE', 1, true) then error(fields.err, 0) end
    return load_set(key)
  end
  for i = 1, #fields, 2 do read(s, fields[i], fields[i + 1]) end
  sum_up(s)
  return s
end

function M.find(s, id) return s.open[id] end

function M.cost(s, id) return s.open[id].n, s.open[id].charged_at end

function M.open(s, id, limit, now, n, charged_at, server)
  if is_full(s) then
    become_set(s, server)
    return s.module.open(s, id, limit, now, n, charged_at, server)
  end
  local expires = now + limit.ttl
  local value = struct_pack('>I8I8I8', expires, n, charged_at)
  change(s, s.open, id, { expires = expires, n = n, charged_at = charged_at }, write, id, value, limit.keep, server)
end

function M.remove(s, id) change(s, s.open, id, nil, delete, id) end

function M.has_ended(s, id, now)
  local r = s.ended[id]
  if not r then return false end
  return r.expires > now, r.n
end

function M.remember_end(s, id, now, n, server)
  if is_full(s) then
    become_set(s, server)
    return s.module.remember_end(s, id, now, n, server)
  end
  local expires = now + $ENDED_TTL
  change(s, s.ended, id, { expires = expires, n = n }, write, id .. 'e', struct_pack('>I8I8', expires, n), $ENDED_TTL, server)
end

function M.forget_end(s, id) change(s, s.ended, id, nil, delete, id .. 'e') end

-- A failure to write changes nothing.
function M.shorten(s, latest)
  if s.latest <= latest then return end
  local values, late = { s.key }, {}
  for id, r in pairs(s.open) do
    if r.expires > latest then
      late[#late + 1] = r
      values[#values + 1], values[#values + 2] = id, struct_pack('>I8I8I8', latest, r.n, r.charged_at)
    end
  end
  if type(redis.pcall('HSET', unpack(values))) == 'table' then return end
  for _, r in ipairs(late) do r.expires = latest end
  sum_up(s)
  call('HSET', s.key, $HEAD_FIELD, head_of(s, s.key_expiry))
end

-- Removes expired reservations and ended ids. On a replica, which rejects all writes, they are removed only from the state. It returns the
-- corrections that settle the removed reservations to 0, see settle.lua.
function M.expire(s, now)
  if s.first_expiry > now or s.count + s.count_ended == 0 then return NONE end
  local corrections, fields = {}, {}
  for id, r in pairs(s.open) do
    if r.expires <= now then corrections[#corrections + 1], fields[#fields + 1] = { charged_at = r.charged_at, delta = -r.n }, id end
  end
  for id, r in pairs(s.ended) do
    if r.expires <= now then fields[#fields + 1] = id .. 'e' end
  end
  for _, field in ipairs(fields) do
    local leases = #field == 16 and s.open or s.ended
    leases[sub(field, 1, 16)] = nil
  end
  sum_up(s)
  pcall(delete, s, unpack(fields))
  return corrections
end

return M
