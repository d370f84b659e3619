-- sliding_log: allowed is what fits with the hits of the last window, (t - window, t]. Twin of pkg/limiters/slidinglog.go.
--
-- KEYS    one list of records of 9 bytes, in the order of time. A record (at, sum) says that up to and with time at
--         (µs since 1970, modulo 2^51) sum hits were logged (modulo 2^21, more than twice the largest max). Record 0 is
--         no hit: its sum is the count before the first, its time means nothing.
-- ARGV    the limit's numbers: max, window (µs), count_denied (0|1)
-- units   times in µs since 1970, durations in µs
-- reply   judge: fits (boolean), retry (-1 = never); usage: used, reset
--
-- No command here takes time with the number of hits charged; what has left goes in one LTRIM, and what is asked of the
-- log is a binary search by LINDEX.
--
-- A state: records first..tail of the list stand, those of pend follow, base is the sum before the first. To let the
-- oldest go is therefore to trim the list to the last one that left, which becomes record 0.
local M = {}
local floor, max, min = math.floor, math.max, math.min
local SUMS, TIMES, HALF = 2 ^ 21, 2 ^ 51, 2 ^ 50

local function pack(at, sum)
  at = at % TIMES
  return struct.pack('>I6I3', at % 2 ^ 48, floor(at / 2 ^ 48) * SUMS + sum)
end

-- The time told is the one nearest to now of those that the record may mean.
local function unpack_record(v, now)
  if #v ~= 9 then error('an unreadable record in the log', 0) end
  local low, rest = struct.unpack('>I6I3', v)
  local at = floor(rest / SUMS) * 2 ^ 48 + low
  return now + (at - now % TIMES + TIMES + HALF) % TIMES - HALF, rest % SUMS
end

function M.limit(p)
  return { max = p[1], window = p[2], count_denied = p[3] == 1 }
end

function M.load(key, now)
  local n = redis.call('LLEN', key)
  local s = { key = key, now = now, listed = n, first = 1, tail = max(n - 1, 0), pend = {}, base = 0, records = {} }
  if n > 0 then
    local _, base = unpack_record(redis.call('LINDEX', key, 0), now)
    s.base, s.listed_base = base, base
  end
  return s
end

local function last(s) return s.tail + #s.pend end

local function record(s, i)
  if i > s.tail then return s.pend[i - s.tail] end
  local r = s.records[i]
  if r then return r end
  local at, sum = unpack_record(redis.call('LINDEX', s.key, i), s.now)
  r = { at = at, sum = sum }
  s.records[i] = r
  return r
end

-- The first index from low on for which found holds; it holds for all after the first. high + 1 if for none.
local function search(low, high, found)
  while low <= high do
    local mid = floor((low + high) / 2)
    if found(mid) then high = mid - 1 else low = mid + 1 end
  end
  return low
end

-- What counts at now: the time that counts, the first index within the window, the sum before it, how many hits.
local function live(s, l, now)
  local n = last(s)
  if n < s.first then return now, s.first, s.base, 0 end
  local newest = record(s, n)
  if newest.at - now > l.window then return now, n + 1, newest.sum, 0 end
  local at, first, base = max(now, newest.at), s.first, s.base
  if record(s, first).at <= at - l.window then
    first = search(first + 1, n, function(i) return record(s, i).at > at - l.window end)
    base = record(s, first - 1).sum
  end
  return at, first, base, (newest.sum - base + SUMS) % SUMS
end

local function up_to(s, first, base, n)
  return search(first, last(s), function(i) return (record(s, i).sum - base + SUMS) % SUMS >= n end)
end

function M.judge(s, l, now, n)
  n = max(n, 1)
  if n > l.max then return false, -1 end
  local _, first, base, used = live(s, l, now)
  if used + n <= l.max then return true, 0 end
  return false, record(s, up_to(s, first, base, used + n - l.max)).at + l.window - now
end

-- Takes the last record out of the list, into pend, so that it can be changed.
local function pull_last(s)
  if #s.pend == 0 then
    s.pend[1] = record(s, s.tail)
    s.tail = s.tail - 1
  end
  return s.pend[#s.pend]
end

local function drop_front(s, first, base)
  s.first, s.base = first, base
  if first > s.tail + 1 then
    for _ = 1, first - s.tail - 1 do table.remove(s.pend, 1) end
    s.tail, s.first = 0, 1
  end
end

local function give_back(s, first, base, used, n)
  if n == used then
    s.first, s.tail, s.pend, s.base = 1, 0, {}, 0
    return
  end
  local keep = up_to(s, first, base, used - n)
  while last(s) > keep and #s.pend > 0 do table.remove(s.pend) end
  if s.tail > keep then s.tail = keep end
  pull_last(s).sum = (base + used - n) % SUMS
  drop_front(s, first, base)
end

function M.charge(s, l, now, n)
  local at, first, base, used = live(s, l, now)
  if n < 0 then
    n = min(-n, used)
    if n > 0 then give_back(s, first, base, used, n) end
    return n > 0
  end
  n = min(n, 2 * l.max)
  local over = min(used + n - 2 * l.max, used)
  if over > 0 then
    first = up_to(s, first, base, over + 1)
    base = (base + over) % SUMS
  end
  drop_front(s, first, base)
  local sum = base
  if last(s) >= s.first then
    local newest = record(s, last(s))
    sum = newest.sum
    if newest.at == at then
      pull_last(s).sum = (sum + n) % SUMS
      return true
    end
  end
  s.pend[#s.pend + 1] = { at = at, sum = (sum + n) % SUMS }
  return true
end

function M.usage(s, l, now)
  local _, _, _, used = live(s, l, now)
  if used == 0 then return 0, 0 end
  return used, record(s, last(s)).at + l.window - now
end

function M.save(key, s, px)
  local rest = {}
  for i, r in ipairs(s.pend) do rest[i] = pack(r.at, r.sum) end
  if s.tail < s.first then
    if s.listed > 0 then redis.call('DEL', key) end
    if #rest == 0 then return end
    table.insert(rest, 1, pack(0, s.base))
  else
    local base = s.first > 1 and record(s, s.first - 1).sum or s.listed_base
    if s.first > 1 or s.tail < s.listed - 1 then redis.call('LTRIM', key, s.first - 1, s.tail) end
    if s.base ~= base then redis.call('LSET', key, 0, pack(0, s.base)) end
  end
  if #rest > 0 then redis.call('RPUSH', key, unpack(rest)) end
  redis.call('PEXPIRE', key, px)
end

return M
