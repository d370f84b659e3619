-- leases_zset: the leases of a key, and the ids that ended before they were opened, in a sorted set. Twin of pkg/limiters/leases.go. The
-- set is the state of a key under concurrency, and contains the reservations of a key with many of them, see leases_hash.lua.
--
-- KEYS    one sorted set. Leases have scores from 1, ended ids from 0 to 1, and all other members 0 or less:
--           id      16 bytes: an open lease. Score: when it expires, in µs since 1970
--           id 'n'  -slots of a lease of several slots, or -estimate of a reservation
--           id 'a'  -when the estimate of a reservation was charged
--           id 'e'  an id that ended before it was opened. Score: when that is forgotten, times 2^-54
--           id 'm'  -actual cost of an ended id of a reservation
--           'c'     -(key_expiry * $EXPIRY_FACTOR + 2 * number of leases), and -1 more if 'x' or 'd' is not 0. The key expires at
--                   key_expiry, in s since 1970 by this server's clock
--           'x'     -number of slots beyond one for each lease
--           'd'     -number of ended ids
--           'f'     -a time at or before the first expiry of a lease
--           'l'     -the last expiry of a lease, or a time at or after that of a reservation
-- ARGV    none of its own.
-- units   times in µs since 1970, durations in µs
--
-- The cost of a call does not grow with the open leases. An operation shortens at most $LEASES_PER_OP expiries, and removes as many
-- expired leases and as many ended ids. A state in Lua has only the counters; leases are read from and written
-- to Redis immediately. A failed write is an error and leaves the state unchanged. The counters have few members, because a script
-- reads each score as text, which costs more than to find its member.
local M = {
  fill = 0, scores = 0, open_or_end = 0, load = 0, find = 0, cost = 0, open = 0, remove = 0, has_ended = 0, remember_end = 0,
  forget_end = 0, end_lease = 0, shorten = 0, expire = 0, wait = 0,
}
local floor, min, max = math.floor, math.min, math.max
local NONE = {}

local function number(score) return tonumber(score) or 0 end

local function member(id, kind) return struct_pack('c16c1', id, kind) end

-- The score of an ended id that is forgotten at a time, and the time of a score.
local function ended_score(at, format) return string.format(format or '%.17g', at * 2 ^ -54) end
local function time_of(score) return number(score) * 2 ^ 54 end

-- Runs a command on many members, $KEYS_PER_COMMAND at a time, and returns all replies in one list.
local function on_many(command, key, members)
  local replies = {}
  for i = 1, #members, $KEYS_PER_COMMAND do
    local part = redis.pcall(command, key, unpack(members, i, min(i + $KEYS_PER_COMMAND - 1, #members)))
    if type(part) == 'table' then for _, reply in ipairs(part) do replies[#replies + 1] = reply end end
  end
  return replies
end

-- Writes the counters, and pairs of a score and a member in members. If keep is set, the key stays for keep µs at least.
local function write(s, count, excess, count_ended, first_expiry, latest, members, keep, server)
  local key_expiry, n, px = s.key_expiry, #members
  if keep and key_expiry < least_expiry(keep, server) then key_expiry, px = renew_expiry(keep, server) end
  local counts = key_expiry * $EXPIRY_FACTOR + 2 * count + (excess + count_ended > 0 and 1 or 0)
  for i, value in ipairs({ counts, excess, count_ended, first_expiry, latest }) do
    members[n + 2 * i - 1], members[n + 2 * i] = digits(-value), string.sub('cxdfl', i, i)
  end
  call('ZADD', s.key, unpack(members))
  if px then call('PEXPIRE', s.key, px) end
  s.count, s.excess, s.count_ended, s.first_expiry, s.latest, s.key_expiry = count, excess, count_ended, first_expiry, latest, key_expiry
end

-- Writes reservations, and ids that ended, to a key that is absent: id, expiry, n and time of each. The key expires at key_expiry.
function M.fill(s, open, ended, key_expiry, server)
  local members, first_expiry, latest = {}, math.huge, 0
  for _, r in ipairs(open) do
    local id, expires, n, charged_at = unpack(r)
    first_expiry, latest = min(first_expiry, expires), max(latest, expires)
    for _, part in ipairs({ digits(expires), id, digits(-n), member(id, 'n'), digits(-charged_at), member(id, 'a') }) do
      members[#members + 1] = part
    end
  end
  for _, r in ipairs(ended) do
    local id, expires, n = unpack(r)
    first_expiry = min(first_expiry, expires)
    for _, part in ipairs({ ended_score(expires), member(id, 'e'), digits(-n), member(id, 'm') }) do members[#members + 1] = part end
  end
  s.key_expiry = key_expiry
  write(s, #open, 0, #ended, first_expiry, latest, members)
  call('PEXPIRE', s.key, digits(key_expiry * 1000 - server / 1000))
end

-- Removes the key. A replica, which rejects all writes, keeps it.
local function clear(s)
  redis.pcall('DEL', s.key)
  s.count, s.excess, s.count_ended, s.first_expiry, s.latest, s.key_expiry, s.expires = 0, 0, 0, 0, 0, 0, false
end

-- Removes members, one of which expires at a time, and the whole key if nothing is left in it.
local function remove_members(s, count, excess, count_ended, expires, ...)
  if count + count_ended == 0 then
    call('DEL', s.key)
    s.count, s.excess, s.count_ended, s.first_expiry, s.latest, s.key_expiry = 0, 0, 0, 0, 0, 0
  else
    call('ZREM', s.key, ...)
    local latest = s.latest
    if expires >= latest and not s.reserves then
      latest = count > 0 and number(call('ZRANGE', s.key, '-1', '-1', 'WITHSCORES')[2]) or 0
    end
    write(s, count, excess, count_ended, s.first_expiry, latest, {})
  end
end

-- The first score of a range, 0 if there is none.
local function first_score(key, low, high)
  return number(call('ZRANGEBYSCORE', key, low, high, 'WITHSCORES', 'LIMIT', '0', '1')[2])
end

-- Removes $LEASES_PER_OP expired leases, the earliest first, the expired one of the id, and $LEASES_PER_OP ended ids.
-- Later operations remove the others. On a replica, which rejects all writes, they are removed only from the state. It returns the
-- corrections that settle the removed reservations to 0, see settle.lua.
local function remove_expired(s, now, id)
  local key, excess, count_ended, members, corrections = s.key, s.excess, s.count_ended, {}, {}
  local expired = call('ZRANGEBYSCORE', key, '1', digits(now), 'LIMIT', '0', digits($LEASES_PER_OP))
  local backlog = #expired >= $LEASES_PER_OP
  if backlog and (M.find(s, id) or math.huge) <= now then
    local named = id
    for _, expired_id in ipairs(expired) do if expired_id == id then named = nil end end
    expired[$LEASES_PER_OP + 1] = named
  end
  if excess > 0 or s.reserves then
    local costs, times = {}, {}
    for i, expired_id in ipairs(expired) do
      costs[i], times[i] = member(expired_id, 'n'), member(expired_id, 'a')
      members[2 * i - 1], members[2 * i] = costs[i], times[i]
    end
    costs, times = on_many('ZMSCORE', key, costs), s.reserves and on_many('ZMSCORE', key, times)
    for i, expired_id in ipairs(expired) do
      local n = -number(costs[i])
      if times then
        corrections[i] = { charged_at = -number(times[i]), delta = -n }
      elseif n > 1 then
        excess = excess - (n - 1)
      end
    end
  end
  for _, expired_id in ipairs(expired) do members[#members + 1] = expired_id end
  local count = s.count - #expired
  if count_ended > 0 then
    for _, end_member in ipairs(call('ZRANGEBYSCORE', key, '(0', ended_score(now), 'LIMIT', '0', digits($LEASES_PER_OP))) do
      count_ended = count_ended - 1
      members[#members + 1] = end_member
      members[#members + 1] = member(string.sub(end_member, 1, 16), 'm')
    end
  end
  if s.expires and s.expires <= now then s.expires = false end
  if count + count_ended == 0 then
    clear(s)
    return corrections
  end
  on_many('ZREM', key, members)
  local first_expiry = math.huge
  if backlog or count > 0 then first_expiry = first_score(key, backlog and '1' or digits(now + 1), '+inf') end
  if first_expiry == 0 then first_expiry = math.huge end
  if count_ended > 0 then first_expiry = min(first_expiry, time_of(first_score(key, '(0', '(1'))) end
  local latest = count > 0 and s.latest or 0
  pcall(write, s, count, excess, count_ended, first_expiry, latest, {})
  s.count, s.excess, s.count_ended, s.first_expiry, s.latest = count, excess, count_ended, first_expiry, latest
  return corrections
end

-- Whether a key of leases has fully reset: the last lease and the last ended id have expired.
local function has_fully_reset(s, now)
  return not s.reserves and s.latest <= now and (s.count_ended == 0 or first_score(s.key, ended_score(now, '(%.17g'), '(1') == 0)
end

-- Removes expired leases and ended ids before an operation with an id, see remove_expired.
function M.expire(s, now, id)
  if s.first_expiry > now or s.count + s.count_ended == 0 then return NONE end
  if not has_fully_reset(s, now) then return remove_expired(s, now, id) end
  clear(s)
  return NONE
end

-- Makes latest the expiry of leases that expire later: of the earliest ones, at most $LEASES_PER_OP. A failure to write changes nothing.
function M.shorten(s, latest)
  if s.count == 0 or s.latest <= latest then return end
  local members = {}
  local late = call('ZRANGEBYSCORE', s.key, digits(latest + 1), '+inf', 'LIMIT', '0', digits($LEASES_PER_OP + 1))
  local rest = table.remove(late, $LEASES_PER_OP + 1)
  for i, id in ipairs(late) do members[2 * i - 1], members[2 * i] = digits(latest), id end
  if not pcall(write, s, s.count, s.excess, s.count_ended, min(s.first_expiry, latest), rest and s.latest or latest, members) then return end
  for _, id in ipairs(late) do
    if id == s.id then s.expires = latest end
  end
end

-- The scores of the counters and of an id, for load and open_or_end.
function M.scores(key, id) return call('ZMSCORE', key, 'c', 'f', 'l', id) end

-- The state, and the expiry of an id for find. Call expire and shorten before anything else.
function M.load(key, id, reserves, scores)
  scores = scores or M.scores(key, id)
  local counts, rest = -(scores[1] or 0), NONE
  local count = counts % $EXPIRY_FACTOR / 2 -- with a half if 'x' or 'd' is not 0
  if count % 1 > 0 then rest = call('ZMSCORE', key, 'x', 'd') end
  return {
    module = M, key = key, count = floor(count), excess = -(rest[1] or 0), count_ended = -(rest[2] or 0), first_expiry = -(scores[2] or 0),
    latest = -(scores[3] or 0), key_expiry = floor(counts / $EXPIRY_FACTOR), id = id, expires = scores[4] and tonumber(scores[4]),
    reserves = reserves,
  }
end

-- Opens or ends a lease of one slot under concurrency, without a state, and returns the usage. It handles a key with further leases of
-- one slot and no ended ids, if no lease has expired or expires after a new one. Otherwise it changes nothing and returns nil.
function M.open_or_end(key, id, limit, now, n, ends, scores, server)
  local counts, first_expiry, latest, expires, ttl_end = scores[1], scores[2], scores[3], scores[4], now + limit.ttl
  if not counts then return end
  counts, first_expiry, latest = -counts, -first_expiry, -latest
  local count = counts % $EXPIRY_FACTOR / 2
  if count == 0 or count % 1 > 0 or first_expiry <= now or latest > ttl_end then return end
  if ends then
    if not expires or count == 1 or tonumber(expires) >= latest then return end
    call('ZREM', key, id)
    call('ZADD', key, digits(2 - counts), 'c') -- one lease fewer
    return count - 1, latest - now
  end
  if expires or n ~= 1 or count >= limit.max or floor(counts / $EXPIRY_FACTOR) < least_expiry(limit.ttl, server) then return end
  call('ZADD', key, digits(ttl_end), id, digits(-counts - 2), 'c', digits(-ttl_end), 'l') -- one lease more
  return count + 1, limit.ttl
end

-- The wait of an operation until a lease ends, which may be at any time: until the first one expires, and at most $MAX_LEASE_WAIT µs.
function M.wait(s, now, ttl)
  return max(1, min(first_score(s.key, '1', '+inf') - now, ttl, $MAX_LEASE_WAIT))
end

-- The expiry of the open lease of an id; false or nil if there is none.
function M.find(s, id)
  if s.id ~= id then
    s.id, s.expires = id, s.count > 0 and tonumber(call('ZSCORE', s.key, id))
  end
  return s.expires
end

-- The slots of an open lease, or the estimate and the time of a reservation.
function M.cost(s, id)
  if s.excess == 0 and not s.reserves then return 1 end
  local r = call('ZMSCORE', s.key, member(id, 'n'), member(id, 'a'))
  return -(tonumber(r[1]) or -1), -number(r[2])
end

-- Opens a lease of n slots, or a reservation of n charged at charged_at.
function M.open(s, id, limit, now, n, charged_at, server)
  local expires = now + limit.ttl
  local members, excess, first_expiry = { digits(expires), id }, s.excess, s.first_expiry
  if s.reserves then
    members = { digits(expires), id, digits(-n), member(id, 'n'), digits(-charged_at), member(id, 'a') }
  elseif n ~= 1 then
    members, excess = { digits(expires), id, digits(-n), member(id, 'n') }, excess + n - 1
  end
  if first_expiry == 0 or expires < first_expiry then first_expiry = expires end
  write(s, s.count + 1, excess, s.count_ended, first_expiry, max(s.latest, expires), members, limit.keep, server)
  s.id, s.expires = id, expires
end

-- Ends the open lease of an id.
function M.remove(s, id)
  local expires = M.find(s, id)
  if s.excess == 0 and not s.reserves then
    remove_members(s, s.count - 1, 0, s.count_ended, expires, id)
  else
    local excess = s.reserves and 0 or s.excess - (M.cost(s, id) - 1)
    remove_members(s, s.count - 1, excess, s.count_ended, expires, id, member(id, 'n'), member(id, 'a'))
  end
  s.id, s.expires = id, false
end

-- Whether an id ended before it was opened, and its actual cost.
function M.has_ended(s, id, now)
  if s.count_ended == 0 then return false end
  local r = call('ZMSCORE', s.key, member(id, 'e'), member(id, 'm'))
  return time_of(r[1]) > now, -number(r[2])
end

-- Remembers the end of an id that is not open, and its actual cost.
function M.remember_end(s, id, now, n, server)
  local known, expires, first_expiry = s.count_ended > 0 and call('ZSCORE', s.key, member(id, 'e')), now + $ENDED_TTL, s.first_expiry
  if not known and s.count_ended >= $MAX_LEASES then return end
  if first_expiry == 0 or expires < first_expiry then first_expiry = expires end
  local members = { ended_score(expires), member(id, 'e') }
  if s.reserves then members = { ended_score(expires), member(id, 'e'), digits(-n), member(id, 'm') } end
  write(s, s.count, s.excess, s.count_ended + (known and 0 or 1), first_expiry, s.latest, members, $ENDED_TTL, server)
end

function M.forget_end(s, id) remove_members(s, s.count, s.excess, s.count_ended - 1, 0, member(id, 'e'), member(id, 'm')) end

-- Ends the open lease of an id. The end of another id is remembered, because the charge that opens it may follow.
function M.end_lease(s, id, now, server)
  if M.find(s, id) then M.remove(s, id) else M.remember_end(s, id, now, 0, server) end
end

return M
