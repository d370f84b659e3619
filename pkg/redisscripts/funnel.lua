-- funnel: holds up to a capacity and leaks max per window, continuously. Twin of pkg/limiters/funnel.go.
--
-- KEYS    one string: "<at> <whole> <frac> <den>": at time at (µs since 1970) it took whole + frac/den µs to drain
-- ARGV    the limit's numbers: max, window (µs), count_denied (0|1), capacity, and the time one hit takes to leave:
--         p + r/den µs, in lowest terms
-- units   times in µs since 1970, durations in µs
-- reply   judge: fits (boolean), retry (-1 = never); usage: used, reset
local M = {}
local floor = math.floor

-- What would pass 2^53 is split: a number of hits k is up to 2^33, and r and den are under 2^32.
local function of(l, k)
  local high = floor(k / 65536)
  local x = high * l.r
  local y = x % l.den * 65536 + (k - high * 65536) * l.r
  return k * l.p + floor(x / l.den) * 65536 + floor(y / l.den), y % l.den
end

local function less(a, af, b, bf) return a < b or a == b and af < bf end

local function add(l, a, af, b, bf)
  local f = af + bf
  if f >= l.den then return a + b + 1, f - l.den end
  return a + b, f
end

local function sub(l, a, af, b, bf)
  if not less(b, bf, a, af) then return 0, 0 end
  if af < bf then return a - 1 - b, af + l.den - bf end
  return a - b, af - bf
end

local function up(a, af)
  if af > 0 then return a + 1 end
  return a
end

-- How many hits take that long to leave, rounded up. The quotient of doubles is off by one at most, and of() is exact.
local function hits(l, a, af)
  local n = floor((a + af / l.den) / (l.p + l.r / l.den))
  if n >= MOST_HELD then return MOST_HELD end
  local b, bf = of(l, n)
  while less(b, bf, a, af) do
    n = n + 1
    b, bf = of(l, n)
  end
  while n > 0 do
    b, bf = of(l, n - 1)
    if less(b, bf, a, af) then break end
    n = n - 1
  end
  return math.min(n, MOST_HELD)
end

function M.limit(p)
  local l = { max = p[1], window = p[2], count_denied = p[3] == 1, capacity = p[4], p = p[5], r = p[6], den = p[7] }
  l.full, l.full_f = of(l, l.capacity)
  l.debt, l.debt_f = of(l, 2 * l.capacity)
  return l
end

function M.load(key)
  local v = redis.call('GET', key)
  if not v then return { at = 0, whole = 0, frac = 0, den = 1 } end
  local at, whole, frac, den = numbers(v, '^(%d+) (%d+) (%d+) (%d+)$')
  return { at = at, whole = whole, frac = frac, den = den }
end

local function held(s, l, now)
  if s.at - now > l.window then return 0, 0, now end
  local at = math.max(now, s.at)
  local a, af = s.whole, s.frac
  if s.den ~= l.den and af > 0 then a, af = a + 1, 0 end
  a = a - (at - s.at)
  if a < 0 then return 0, 0, at end
  return a, af, at
end

function M.judge(s, l, now, n)
  n = math.max(n, 1)
  if n > l.capacity or l.max == 0 then return false, -1 end
  local a, af, at = held(s, l, now)
  a, af = add(l, a, af, of(l, n))
  if not less(l.full, l.full_f, a, af) then return true, 0 end
  return false, up(sub(l, a, af, l.full, l.full_f)) + at - now
end

function M.charge(s, l, now, n)
  if l.max == 0 then return false end
  local a, af, at = held(s, l, now)
  if n > 0 then
    local most, most_f = l.debt, l.debt_f
    if less(most, most_f, a, af) then most, most_f = a, af end
    a, af = add(l, a, af, of(l, math.min(n, 2 * l.capacity)))
    if less(most, most_f, a, af) then a, af = most, most_f end
  else
    if a == 0 and af == 0 then return false end
    a, af = sub(l, a, af, of(l, math.min(-n, hits(l, a, af))))
  end
  s.at, s.whole, s.frac, s.den = at, a, af, l.den
  if a == 0 and af == 0 then s.at, s.den = 0, 1 end
  return true
end

function M.usage(s, l, now)
  if l.max == 0 then return 0, 0 end
  local a, af, at = held(s, l, now)
  if a == 0 and af == 0 then return 0, 0 end
  return hits(l, a, af), up(a, af) + at - now
end

function M.save(key, s, px)
  if s.whole == 0 and s.frac == 0 then
    redis.call('DEL', key)
  else
    redis.call('SET', key, string.format('%d %d %d %d', s.at, s.whole, s.frac, s.den), 'PX', px)
  end
end

return M
