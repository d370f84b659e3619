-- funnel: a leaky bucket as a meter: it holds up to a capacity and drains max per window. Twin of pkg/limiters/funnel.go.
--
-- KEYS    one string of 28 bytes: at, whole, frac, den, expiry. At the time at, in µs since 1970, the funnel needed whole + frac/den µs
--         to drain. expiry is the expiry of the key, in s since 1970 by this server's clock. If it is 2^32 - 1, the key expires later.
-- ARGV    the limit's arguments: max, window (µs), counts_denied (0|1), peek_over (0|1), capacity, and the time to drain a hit:
--         drain_whole + drain_frac/den µs, in lowest terms
-- units   times in µs since 1970, durations in µs
--
-- A span is a time to drain: whole + frac/den µs, with the den of the limit. A limit has three: drain, of one hit; full, of its
-- capacity; overdraft, of twice its capacity, which bounds counted denied hits.
--
-- settles_at_once: quick may charge a reservation and settle it, because a settle does not need the time of the charge.
local M = {
  name = 'funnel', settles_at_once = true, limit = 0, check = 0, load = 0, fits = 0, charge = 0, usage = 0, save = 0, quick = 0,
}
local floor, ceil = math.floor, math.ceil

-- The time to drain k hits. Products beyond 2^53 are split: k is at most 2^33, and drain_frac and den are below 2^32.
local function time_for(l, k)
  if l.drain_frac == 0 then return k * l.drain_whole, 0 end
  local high = floor(k / 65536)
  local x = high * l.drain_frac
  local y = x % l.den * 65536 + (k - high * 65536) * l.drain_frac
  return k * l.drain_whole + floor(x / l.den) * 65536 + floor(y / l.den), y % l.den
end

local function less(a_whole, a_frac, b_whole, b_frac) return a_whole < b_whole or a_whole == b_whole and a_frac < b_frac end

local function add(l, a_whole, a_frac, b_whole, b_frac)
  local frac = a_frac + b_frac
  if frac >= l.den then return a_whole + b_whole + 1, frac - l.den end
  return a_whole + b_whole, frac
end

local function sub(l, a_whole, a_frac, b_whole, b_frac)
  if not less(b_whole, b_frac, a_whole, a_frac) then return 0, 0 end
  if a_frac < b_frac then return a_whole - 1 - b_whole, a_frac + l.den - b_frac end
  return a_whole - b_whole, a_frac - b_frac
end

local function round_up(whole, frac)
  if frac > 0 then return whole + 1 end
  return whole
end

-- The number of hits that drain in a span, rounded up. The quotient of doubles is off by at most 1; time_for is exact.
local function hits(l, whole, frac)
  -- Below 2^53 a fractional quotient is never rounded to a whole number.
  if l.drain_frac == 0 and frac == 0 then return math.min(ceil(whole / l.drain_whole), $MAX_FUNNEL_USED) end
  local n = floor((whole + frac / l.den) / (l.drain_whole + l.drain_frac / l.den))
  if n >= $MAX_FUNNEL_USED then return $MAX_FUNNEL_USED end
  local n_whole, n_frac = time_for(l, n)
  while less(n_whole, n_frac, whole, frac) do
    n = n + 1
    n_whole, n_frac = time_for(l, n)
  end
  while n > 0 do
    n_whole, n_frac = time_for(l, n - 1)
    if less(n_whole, n_frac, whole, frac) then break end
    n = n - 1
  end
  return math.min(n, $MAX_FUNNEL_USED)
end

function M.limit(text, from)
  local max, window, counts_denied, peek_over, capacity, drain_whole, drain_frac, den, after = struct_unpack('>I8I8I8I8I8I8I8I8', text, from)
  local l = {
    module = 0, max = max, window = window, counts_denied = counts_denied == 1, capacity = capacity,
    drain_whole = drain_whole, drain_frac = drain_frac, den = den, peek_over = peek_over == 1,
    full_whole = 0, full_frac = 0, overdraft_whole = 0, overdraft_frac = 0,
  }
  l.full_whole, l.full_frac = time_for(l, l.capacity)
  l.overdraft_whole, l.overdraft_frac = time_for(l, 2 * l.capacity)
  return l, after
end

-- check unpacks a value. An unreadable value is an error.
function M.check(v) return whole_numbers(v, 28, '>I8I8I4I4I4') end

function M.load(key, l, now, v, s)
  local at, whole, frac, den, expiry = 0, 0, 0, 1, 0
  if v == nil then v = call('GET', key) end
  if v then at, whole, frac, den, expiry = M.check(v) end
  if at - now > l.window then at, whole, frac = now, 0, 0 end
  if at < now then
    whole = whole - (now - at)
    at = now
    if whole < 0 then whole, frac = 0, 0 end
  end
  if not s then return { at = at, whole = whole, frac = frac, den = den, expiry = expiry } end
  s.at, s.whole, s.frac, s.den, s.expiry = at, whole, frac, den, expiry
  return s
end

-- The level of the funnel, as the time to drain. It is rounded up if it was stored with another den.
local function level(s, l)
  if s.den ~= l.den and s.frac > 0 then return s.whole + 1, 0 end
  return s.whole, s.frac
end

function M.fits(s, l, now, n)
  if n == 0 and not l.peek_over then n = 1 end
  if n > l.capacity or l.max == 0 then return false, -1 end
  local whole, frac = level(s, l)
  whole, frac = add(l, whole, frac, time_for(l, n))
  if not less(l.full_whole, l.full_frac, whole, frac) then return true, 0 end
  return false, round_up(sub(l, whole, frac, l.full_whole, l.full_frac)) + s.at - now
end

function M.charge(s, l, now, n)
  if l.max == 0 then return false end
  local whole, frac = level(s, l)
  if n > 0 then
    local max_whole, max_frac = l.overdraft_whole, l.overdraft_frac
    if less(max_whole, max_frac, whole, frac) then max_whole, max_frac = whole, frac end
    whole, frac = add(l, whole, frac, time_for(l, math.min(n, 2 * l.capacity)))
    if less(max_whole, max_frac, whole, frac) then whole, frac = max_whole, max_frac end
  else
    if whole == 0 and frac == 0 then return false end
    whole, frac = sub(l, whole, frac, time_for(l, math.min(-n, hits(l, whole, frac))))
  end
  s.whole, s.frac, s.den = whole, frac, l.den
  if whole == 0 and frac == 0 then s.at, s.den = now, 1 end
  return true
end

function M.usage(s, l, now)
  if l.max == 0 then return 0, 0 end
  local whole, frac = level(s, l)
  if whole == 0 and frac == 0 then return 0, 0 end
  return hits(l, whole, frac), round_up(whole, frac) + s.at - now
end

-- Writes a state that resets in reset µs.
local function write(key, at, whole, frac, den, expiry, reset, server)
  if expiry >= least_expiry(reset, server) then
    call('SETRANGE', key, '0', struct_pack('>I8I8I4I4I4', at, whole, frac, den, expiry))
  else
    local px
    expiry, px = renew_expiry(reset, server)
    call('SET', key, struct_pack('>I8I8I4I4I4', at, whole, frac, den, expiry), 'PX', px)
  end
end

function M.save(key, s, _, reset, _, server)
  if s.whole == 0 and s.frac == 0 then
    call('DEL', key)
  else
    write(key, s.at, s.whole, s.frac, s.den, s.expiry, reset, server)
  end
end

-- For hits that fit, and refunds, if a hit drains in whole µs. v is false if the key is absent.
function M.quick(key, l, now, v, n, server)
  if l.drain_frac > 0 or n > l.capacity then return end
  local at, whole, frac, expiry, _ = now, 0, 0, 0
  if v then
    if #v ~= 28 then return end
    at, whole, frac, _, expiry = struct_unpack('>I8I8I4I4I4', v)
    if at > now or frac > 0 then return end
    whole = whole - (now - at)
    if whole < 0 then whole = 0 end
  end
  if n < 0 and whole == 0 then return 0, 0 end
  whole = whole + n * l.drain_whole
  if whole > l.full_whole then return end
  if whole > 0 then
    write(key, now, whole, 0, 1, expiry, whole, server)
    return ceil(whole / l.drain_whole), whole
  end
  if v then call('DEL', key) end
  return 0, 0
end

return M
