-- sliding_log: allows hits that fit together with those in (t - window, t]. Twin of pkg/limiters/slidinglog.go.
--
-- KEYS    entries of $LOG_ENTRY_SIZE bytes in the order of time: a string of at most $MAX_STRING_ENTRIES of them, or a list, which
--         stays a list until it is empty. An entry (at, sum) means that sum hits (modulo $LOG_SUMS, more than twice the largest max) were
--         logged up to and including time at (µs since 1970, modulo $LOG_TIMES). Entry 0 is not a hit: its sum is the count before the
--         first hit, and its time is meaningless.
-- ARGV    the limit's arguments: max, window (µs), counts_denied (0|1), peek_over (0|1)
-- units   times in µs since 1970, durations in µs
--
-- A call takes no longer if it charges, refunds or expires many hits. One LTRIM removes the expired entries of a list, and binary searches
-- of at most 21 LINDEX find the others. An LINDEX in a list of 1,000,000 entries passes at most 700 nodes, of 8 KB each.
--
-- A state has the entries from first to tail of those in Redis, followed by the entries of the list unstored. Its other fields:
--   stored   the number of entries in Redis, with entry 0 and expired ones
--   base     the sum before the first entry of the state
--   used     the hits of the entries of the state
--   newest   the time of the last one
-- When the oldest entries expire, the last of these becomes entry 0.
local M = {
  name = 'sliding_log', limit = 0, load = 0, fits = 0, charge = 0, usage = 0, save = 0, quick = 0, search = 0, is_after = 0, entry = 0,
  last = 0, expire = 0,
}
local floor, max, min = math.floor, math.max, math.min
local NONE = {}

local function encode(at, sum)
  at = at % $LOG_TIMES
  return struct_pack('>I6I3', at % 2 ^ 48, floor(at / 2 ^ 48) * $LOG_SUMS + sum)
end

-- The time and the sum of the entry at byte from. Of the times that the stored one may stand for, it is the nearest to now.
local function decode(text, from, now)
  local low, rest = struct_unpack('>I6I3', text, from)
  local sum = rest % $LOG_SUMS
  local at = (rest - sum) / $LOG_SUMS * 2 ^ 48 + low
  return now + (at - now % $LOG_TIMES + $LOG_TIMES + $LOG_TIMES / 2) % $LOG_TIMES - $LOG_TIMES / 2, sum
end

-- The time and the sum of entry i.
local function entry(s, i, now)
  if i > s.tail then
    local r = s.unstored[i - s.tail]
    return r.at, r.sum
  end
  local text, from = s.text, i * $LOG_ENTRY_SIZE + 1
  if not text then
    text, from = s.list.entries[i], 1
    if not text then
      text = call('LINDEX', s.list.key, digits(i))
      if #text ~= $LOG_ENTRY_SIZE then error('an unreadable entry in the log', 0) end
      s.list.entries[i] = text
    end
  end
  return decode(text, from, now)
end

local function last(s) return s.tail + #s.unstored end

-- The first index from low to high for which f(s, time, sum, x) is true, or high + 1. f must be monotonic.
local function search(s, low, high, now, f, x)
  while low <= high do
    local mid = floor((low + high) / 2)
    local at, sum = entry(s, mid, now)
    if f(s, at, sum, x) then high = mid - 1 else low = mid + 1 end
  end
  return low
end

local function is_after(_, at, _, edge) return at > edge end

local function reaches(s, _, sum, n) return (sum - s.base + $LOG_SUMS) % $LOG_SUMS >= n end

-- The index of the first entry whose sum reaches n hits, counted from the oldest.
local function index_of_hit(s, now, n) return search(s, s.first, last(s), now, reaches, n) end

function M.limit(text, from)
  local limit_max, window, counts_denied, peek_over, after = struct_unpack('>I8I8I8I8', text, from)
  return { algorithm = 0, max = limit_max, window = window, counts_denied = counts_denied == 1, peek_over = peek_over == 1 }, after
end

-- For a list, value is the error of GET.
function M.load(key, limit, now, value)
  if value == nil then value = redis.pcall('GET', key) end
  local s = { text = value or '', stored = 0, first = 1, tail = 0, unstored = NONE, base = 0, used = 0, newest = 0 }
  if not value then return s end
  if type(value) == 'table' then
    s.text, s.list, s.stored = nil, { key = key, entries = {} }, call('LLEN', key)
  else
    s.stored = #value / $LOG_ENTRY_SIZE
    if s.stored % 1 > 0 then error('an unreadable log', 0) end
  end
  local _, sum
  s.tail = s.stored - 1
  _, s.base = entry(s, 0, now)
  if s.tail == 0 then return s end
  s.newest, sum = entry(s, s.tail, now)
  if s.newest - now > limit.window then
    s.first, s.base, s.newest = s.stored, sum, 0
    return s
  end
  local edge = max(now, s.newest) - limit.window
  if entry(s, 1, now) <= edge then
    s.first = search(s, 2, s.tail, now, is_after, edge)
    _, s.base = entry(s, s.first - 1, now)
  end
  s.used = (sum - s.base + $LOG_SUMS) % $LOG_SUMS
  return s
end

function M.fits(s, limit, now, n)
  if n == 0 and not limit.peek_over then n = 1 end
  if n > limit.max or limit.max == 0 then return false, -1 end
  if s.used + n <= limit.max then return true, 0 end
  return false, entry(s, index_of_hit(s, now, s.used + n - limit.max), now) + limit.window - now
end

local function add(s, at, sum)
  local r = { at = at, sum = sum }
  if s.unstored == NONE then s.unstored = { r } else s.unstored[#s.unstored + 1] = r end
end

-- Moves the last stored entry into unstored, where it can be changed.
local function pull_last(s, now)
  if #s.unstored == 0 then
    add(s, entry(s, s.tail, now))
    s.tail = s.tail - 1
  end
  return s.unstored[#s.unstored]
end

-- Removes the entries of unstored that are before the first valid one.
local function remove_front(s)
  if s.first > s.tail + 1 then
    for _ = 1, s.first - s.tail - 1 do table.remove(s.unstored, 1) end
    s.tail, s.first = 0, 1
  end
end

local function refund(s, now, n)
  if n == s.used then
    s.first, s.tail, s.unstored, s.base, s.used, s.newest = 1, 0, NONE, 0, 0, 0
    return
  end
  local keep = index_of_hit(s, now, s.used - n)
  while last(s) > keep and #s.unstored > 0 do table.remove(s.unstored) end
  if s.tail > keep then s.tail = keep end
  s.used = s.used - n
  local newest = pull_last(s, now)
  newest.sum = (s.base + s.used) % $LOG_SUMS
  s.newest = newest.at
  remove_front(s)
end

-- Removes the entries before the window, after a charge at a time beyond the newest hit.
function M.expire(s, limit, now)
  local first = search(s, s.first, last(s), now, is_after, max(now, s.newest) - limit.window)
  if first == s.first then return end
  local _, base = entry(s, first - 1, now)
  s.first, s.base, s.used = first, base, s.used - (base - s.base + $LOG_SUMS) % $LOG_SUMS
  remove_front(s)
end

function M.charge(s, limit, now, n)
  if n < 0 then
    n = min(-n, s.used)
    if n > 0 then refund(s, now, n) end
    return n > 0
  end
  n = min(n, 2 * limit.max)
  local over = min(s.used + n - max(2 * limit.max, s.used), s.used)
  if over > 0 then
    s.first = index_of_hit(s, now, over + 1)
    s.base = (s.base + over) % $LOG_SUMS
    s.used = s.used - over
  end
  remove_front(s)
  local at = max(now, s.newest)
  local same = s.newest == at and s.used > 0
  s.used = s.used + n
  local sum = (s.base + s.used) % $LOG_SUMS
  if same then
    pull_last(s, now).sum = sum
  else
    add(s, at, sum)
  end
  s.newest = at
  return true
end

function M.usage(s, limit, now)
  if s.used == 0 then return 0, 0 end
  return s.used, s.newest + limit.window - now
end

-- The expiry is set by the first hit of each quarter of a window, and is a quarter of a window longer than needed.
local function expires_late_enough(s, limit, now)
  if s.stored < 2 or s.first > 1 or s.tail == 0 then return false end
  local quarter = limit.window / 4
  return floor(entry(s, s.tail, now) / quarter) == floor(s.newest / quarter)
end

local function is_untouched(s, now)
  if s.stored == 0 or s.first > 1 or s.tail < s.stored - 1 then return false end
  local _, base = entry(s, 0, now)
  return base == s.base
end

local function save_text(key, s, rest, px)
  local retained = string.sub(s.text, s.first * $LOG_ENTRY_SIZE + 1, (s.tail + 1) * $LOG_ENTRY_SIZE)
  call('SET', key, table.concat({ encode(0, s.base), retained, table.concat(rest) }), 'PX', digits(px))
end

local function save_list(key, s, rest, px, limit, now)
  local has_expiry = expires_late_enough(s, limit, now)
  if s.text or s.tail < s.first then
    -- A new key, without the expiry of the old one.
    has_expiry = false
    for i = s.tail, s.first, -1 do table.insert(rest, 1, encode(entry(s, i, now))) end
    table.insert(rest, 1, encode(0, s.base))
    if s.stored > 0 then call('DEL', key) end
  else
    local _, base = entry(s, s.first - 1, now)
    if s.first > 1 or s.tail < s.stored - 1 then call('LTRIM', key, digits(s.first - 1), digits(s.tail)) end
    if s.base ~= base then call('LSET', key, '0', encode(0, s.base)) end
  end
  for i = 1, #rest, $KEYS_PER_COMMAND do call('RPUSH', key, unpack(rest, i, min(i + $KEYS_PER_COMMAND - 1, #rest))) end
  if not has_expiry then call('PEXPIRE', key, digits(px)) end
end

function M.save(key, s, limit, reset, now)
  if #s.unstored == 1 and s.text and is_untouched(s, now) and s.stored < $MAX_STRING_ENTRIES and expires_late_enough(s, limit, now) then
    call('APPEND', key, encode(s.unstored[1].at, s.unstored[1].sum))
    return
  end
  -- Later by a quarter of the window, in ms, see expires_late_enough.
  local px = expiry_ms(reset) + floor(limit.window / 4000)
  local rest, retained = {}, max(s.tail - s.first + 1, 0)
  for i, r in ipairs(s.unstored) do rest[i] = encode(r.at, r.sum) end
  if retained + #rest == 0 then
    call('DEL', key)
  elseif retained + #rest > $MAX_STRING_ENTRIES or s.list and retained > 0 then
    save_list(key, s, rest, px, limit, now)
  else
    if s.list then
      call('DEL', key)
      s.text = ''
    end
    save_text(key, s, rest, px)
  end
end

-- For hits that fit in a short log, if none of its entries has expired and its expiry was set in this quarter of a window.
function M.quick(key, limit, now, value, n)
  if n < 0 or not value then return end
  local size = #value
  if size < 2 * $LOG_ENTRY_SIZE or size >= $MAX_STRING_ENTRIES * $LOG_ENTRY_SIZE or size % $LOG_ENTRY_SIZE > 0 then return end
  local newest, sum = decode(value, size - $LOG_ENTRY_SIZE + 1, now)
  if newest >= now or decode(value, $LOG_ENTRY_SIZE + 1, now) <= now - limit.window then return end
  local _, base = decode(value, 1, now)
  local used, quarter = (sum - base + $LOG_SUMS) % $LOG_SUMS + n, limit.window / 4
  if used > limit.max or floor(newest / quarter) ~= floor(now / quarter) then return end
  call('APPEND', key, encode(now, (base + used) % $LOG_SUMS))
  return used, limit.window
end

-- For settle.lua.
M.search, M.is_after, M.entry, M.last = search, is_after, entry, last

return M
