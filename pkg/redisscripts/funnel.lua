-- funnel: a leaky bucket as a meter: it holds up to a capacity and drains max per window. Twin of pkg/limiters/funnel.go.
--
-- KEYS    one string of 28 bytes: at, whole, frac, den, expiry. At time at (µs since 1970), whole + frac/den µs were left to
--         drain. The key expires at expiry, in s since 1970 by this server's clock.
-- ARGV    the limit's arguments: max, window (µs), count_denied (0|1), capacity, and the time to drain a hit:
--         p + r/den µs, in lowest terms; peek_over (0|1)
-- units   times in µs since 1970, durations in µs
-- reply   fits: a boolean, retry (-1 = never); usage: used, reset
local M = { name = 'funnel', limit = 0, check = 0, load = 0, fits = 0, charge = 0, usage = 0, save = 0, quick = 0 }
local floor, ceil = math.floor, math.ceil

-- The time that k hits take to leave. Products beyond 2^53 are split: k is at most 2^33, and r and den are below 2^32.
local function drain_time(l, k)
  if l.r == 0 then return k * l.p, 0 end
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

local function round_up(a, af)
  if af > 0 then return a + 1 end
  return a
end

-- The number of hits that take a + af/den µs to leave, rounded up. The quotient of doubles is off by at most 1; drain_time is exact.
local function hits(l, a, af)
  local MAX_USED = 2 ^ 33 -- maxUsed of pkg/limiters
  -- Below 2^53 a fractional quotient is never rounded to a whole number.
  if l.r == 0 and af == 0 then return math.min(ceil(a / l.p), MAX_USED) end
  local n = floor((a + af / l.den) / (l.p + l.r / l.den))
  if n >= MAX_USED then return MAX_USED end
  local b, bf = drain_time(l, n)
  while less(b, bf, a, af) do
    n = n + 1
    b, bf = drain_time(l, n)
  end
  while n > 0 do
    b, bf = drain_time(l, n - 1)
    if less(b, bf, a, af) then break end
    n = n - 1
  end
  return math.min(n, MAX_USED)
end

function M.limit(text, at)
  local max, window, count_denied, capacity, p, r, den, peek_over = struct.unpack('>I8I8I8I8I8I8I8I8', text, at)
  local l = {
    algorithm = 0, max = max, window = window, counts_denied = count_denied == 1 and max > 0, capacity = capacity, p = p, r = r,
    den = den, peek_over = peek_over == 1, full = 0, full_f = 0, overdraft = 0, overdraft_f = 0,
  }
  l.full, l.full_f = drain_time(l, l.capacity)
  l.overdraft, l.overdraft_f = drain_time(l, 2 * l.capacity)
  return l
end

-- check unpacks a value. An unreadable value is an error.
function M.check(v) return whole_numbers(v, 28, '>I8I8I4I4I4') end

-- v is the value of the key: false if it is absent, nil if it is unknown. s is a state to reuse, or nil.
function M.load(key, l, now, v, s)
  local at, a, af, den, expiry = 0, 0, 0, 1, 0
  if v == nil then v = call('GET', key) end
  if v then at, a, af, den, expiry = M.check(v) end
  if at - now > l.window then at, a, af = now, 0, 0 end
  if at < now then
    a = a - (now - at)
    at = now
    if a < 0 then a, af = 0, 0 end
  end
  if not s then return { at = at, whole = a, frac = af, den = den, expiry = expiry } end
  s.at, s.whole, s.frac, s.den, s.expiry = at, a, af, den, expiry
  return s
end

-- The contents of the funnel in the limit's fractions, rounded up if they were stored in others.
local function contents(s, l)
  if s.den ~= l.den and s.frac > 0 then return s.whole + 1, 0 end
  return s.whole, s.frac
end

function M.fits(s, l, now, n)
  if n == 0 and not l.peek_over then n = 1 end
  if n > l.capacity or l.max == 0 then return false, -1 end
  local a, af = contents(s, l)
  a, af = add(l, a, af, drain_time(l, n))
  if not less(l.full, l.full_f, a, af) then return true, 0 end
  return false, round_up(sub(l, a, af, l.full, l.full_f)) + s.at - now
end

function M.charge(s, l, now, n)
  if l.max == 0 then return false end
  local a, af = contents(s, l)
  if n > 0 then
    local bound, bound_f = l.overdraft, l.overdraft_f
    if less(bound, bound_f, a, af) then bound, bound_f = a, af end
    a, af = add(l, a, af, drain_time(l, math.min(n, 2 * l.capacity)))
    if less(bound, bound_f, a, af) then a, af = bound, bound_f end
  else
    if a == 0 and af == 0 then return false end
    a, af = sub(l, a, af, drain_time(l, math.min(-n, hits(l, a, af))))
  end
  s.whole, s.frac, s.den = a, af, l.den
  if a == 0 and af == 0 then s.at, s.den = now, 1 end
  return true
end

function M.usage(s, l, now)
  if l.max == 0 then return 0, 0 end
  local a, af = contents(s, l)
  if a == 0 and af == 0 then return 0, 0 end
  return hits(l, a, af), round_up(a, af) + s.at - now
end

-- Writes a state that resets in reset µs.
local function write(key, at, whole, frac, den, expiry, reset, server)
  if expiry >= least_expiry(reset, server) then
    call('SETRANGE', key, '0', pack('>I8I8I4I4I4', at, whole, frac, den, expiry))
  else
    local px
    expiry, px = renew_expiry(reset, server)
    call('SET', key, pack('>I8I8I4I4I4', at, whole, frac, den, expiry), 'PX', px)
  end
end

function M.save(key, s, _, reset, _, server)
  if s.whole == 0 and s.frac == 0 then
    call('DEL', key)
  else
    write(key, s.at, s.whole, s.frac, s.den, s.expiry, reset, server)
  end
end

-- For hits that fit, and refunds, if a hit takes whole µs to leave. v is false if the key is absent.
function M.quick(key, l, now, v, n, server)
  if l.r > 0 or n > l.capacity then return end
  local at, a, af, expiry, _ = now, 0, 0, 0
  if v then
    if #v ~= 28 then return end
    at, a, af, _, expiry = unpacked('>I8I8I4I4I4', v)
    if at > now or af > 0 then return end
    a = a - (now - at)
    if a < 0 then a = 0 end
  end
  a = a + n * l.p
  if a > l.full then return end
  if a > 0 then
    write(key, now, a, 0, 1, expiry, a, server)
    return ceil(a / l.p), a
  end
  if v then call('DEL', key) end
  return 0, 0
end

return M
