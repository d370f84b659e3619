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
local M = {
  name = 'funnel', settles_at_once = true, limit = 0, load = 0, fits = 0, charge = 0, usage = 0, save = 0, quick = 0,
}
local floor, ceil = math.floor, math.ceil

-- The time to drain k hits. Products beyond 2^53 are split: k is at most 2^33, and drain_frac and den are below 2^32.
local function time_for(limit, k)
  if limit.drain_frac == 0 then return k * limit.drain_whole, 0 end
  local high = floor(k / 65536)
  local x = high * limit.drain_frac
  local y = x % limit.den * 65536 + (k - high * 65536) * limit.drain_frac
  return k * limit.drain_whole + floor(x / limit.den) * 65536 + floor(y / limit.den), y % limit.den
end

local function less(a_whole, a_frac, b_whole, b_frac) return a_whole < b_whole or a_whole == b_whole and a_frac < b_frac end

local function add(limit, a_whole, a_frac, b_whole, b_frac)
  local frac = a_frac + b_frac
  if frac >= limit.den then return a_whole + b_whole + 1, frac - limit.den end
  return a_whole + b_whole, frac
end

local function sub(limit, a_whole, a_frac, b_whole, b_frac)
  if not less(b_whole, b_frac, a_whole, a_frac) then return 0, 0 end
  if a_frac < b_frac then return a_whole - 1 - b_whole, a_frac + limit.den - b_frac end
  return a_whole - b_whole, a_frac - b_frac
end

local function round_up(whole, frac)
  if frac > 0 then return whole + 1 end
  return whole
end

-- The number of hits that drain in a span, rounded up. The quotient of doubles is off by at most 1; time_for is exact.
local function hits(limit, whole, frac)
  -- Below 2^53 a fractional quotient is never rounded to a whole number.
  if limit.drain_frac == 0 and frac == 0 then return math.min(ceil(whole / limit.drain_whole), $MAX_FUNNEL_USED) end
  local n = floor((whole + frac / limit.den) / (limit.drain_whole + limit.drain_frac / limit.den))
  if n >= $MAX_FUNNEL_USED then return $MAX_FUNNEL_USED end
  local n_whole, n_frac = time_for(limit, n)
  while less(n_whole, n_frac, whole, frac) do
    n = n + 1
    n_whole, n_frac = time_for(limit, n)
  end
  while n > 0 do
    n_whole, n_frac = time_for(limit, n - 1)
    if less(n_whole, n_frac, whole, frac) then break end
    n = n - 1
  end
  return math.min(n, $MAX_FUNNEL_USED)
end

function M.limit(text, from)
  local max, window, counts_denied, peek_over, capacity, drain_whole, drain_frac, den, after = struct_unpack('>I8I8I8I8I8I8I8I8', text, from)
  local limit = {
    algorithm = 0, max = max, window = window, counts_denied = counts_denied == 1, capacity = capacity,
    drain_whole = drain_whole, drain_frac = drain_frac, den = den, peek_over = peek_over == 1,
    full_whole = 0, full_frac = 0, overdraft_whole = 0, overdraft_frac = 0,
  }
  limit.full_whole, limit.full_frac = time_for(limit, limit.capacity)
  limit.overdraft_whole, limit.overdraft_frac = time_for(limit, 2 * limit.capacity)
  return limit, after
end

function M.load(key, limit, now, value, s)
  local at, whole, frac, den, expiry = 0, 0, 0, 1, 0
  if value == nil then value = call('GET', key) end
  if value then at, whole, frac, den, expiry = whole_numbers(value, 28, '>I8I8I4I4I4') end
  if at - now > limit.window then at, whole, frac = now, 0, 0 end
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
local function level(s, limit)
  if s.den ~= limit.den and s.frac > 0 then return s.whole + 1, 0 end
  return s.whole, s.frac
end

function M.fits(s, limit, now, n)
  if n == 0 and not limit.peek_over then n = 1 end
  if n > limit.capacity or limit.max == 0 then return false, -1 end
  local whole, frac = level(s, limit)
  whole, frac = add(limit, whole, frac, time_for(limit, n))
  if not less(limit.full_whole, limit.full_frac, whole, frac) then return true, 0 end
  return false, round_up(sub(limit, whole, frac, limit.full_whole, limit.full_frac)) + s.at - now
end

function M.charge(s, limit, now, n)
  if limit.max == 0 then return false end
  local whole, frac = level(s, limit)
  if n > 0 then
    local max_whole, max_frac = limit.overdraft_whole, limit.overdraft_frac
    if less(max_whole, max_frac, whole, frac) then max_whole, max_frac = whole, frac end
    whole, frac = add(limit, whole, frac, time_for(limit, math.min(n, 2 * limit.capacity)))
    if less(max_whole, max_frac, whole, frac) then whole, frac = max_whole, max_frac end
  else
    if whole == 0 and frac == 0 then return false end
    whole, frac = sub(limit, whole, frac, time_for(limit, math.min(-n, hits(limit, whole, frac))))
  end
  s.whole, s.frac, s.den = whole, frac, limit.den
  if whole == 0 and frac == 0 then s.at, s.den = now, 1 end
  return true
end

function M.usage(s, limit, now)
  if limit.max == 0 then return 0, 0 end
  local whole, frac = level(s, limit)
  if whole == 0 and frac == 0 then return 0, 0 end
  return hits(limit, whole, frac), round_up(whole, frac) + s.at - now
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

-- For hits that fit, and refunds, if a hit drains in whole µs.
function M.quick(key, limit, now, value, n, server)
  if limit.drain_frac > 0 or n > limit.capacity then return end
  local at, whole, frac, expiry, _ = now, 0, 0, 0
  if value then
    if #value ~= 28 then return end
    at, whole, frac, _, expiry = struct_unpack('>I8I8I4I4I4', value)
    if at > now or frac > 0 then return end
    whole = whole - (now - at)
    if whole < 0 then whole = 0 end
  end
  if n < 0 and whole == 0 then return 0, 0 end
  whole = whole + n * limit.drain_whole
  if whole > limit.full_whole then return end
  if whole > 0 then
    write(key, now, whole, 0, 1, expiry, whole, server)
    return ceil(whole / limit.drain_whole), whole
  end
  if value then call('DEL', key) end
  return 0, 0
end

return M
