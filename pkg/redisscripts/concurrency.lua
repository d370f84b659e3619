-- concurrency: bounds the slots that requests hold at a time. Twin of pkg/limiters/concurrency.go.
--
-- KEYS    one sorted set of leases, see leases_zset.lua.
-- ARGV    the limit's arguments: max, ttl (µs)
-- units   times in µs since 1970, durations in µs
local leases = module_of('leases_zset')
local M = { limit = 0, open_or_peek = 0, fits = 0, usage = 0, is_concurrency = true, leases = leases }

function M.limit(text, from)
  local max_slots, ttl, after = struct_unpack('>I8I8', text, from)
  return { algorithm = 0, max = max_slots, ttl = ttl, keep = ttl }, after
end

-- Opens a lease of n slots, or peeks. id is false without a lease. It returns whether the operation is allowed, the wait, and whether the
-- id has a lease already.
function M.open_or_peek(s, id, limit, now, n, server)
  if n <= 0 or not id then
    if n < 0 then return true, 0 end
    return M.fits(s, limit, now, n)
  end
  if leases.find(s, id) then return true, 0, true end
  local allowed, retry = M.fits(s, limit, now, n)
  if allowed and leases.has_ended(s, id, now) then
    leases.forget_end(s, id)
  elseif allowed then
    leases.open(s, id, limit, now, n, now, server)
  end
  return allowed, retry
end

function M.fits(s, limit, now, n)
  if n == 0 then n = 1 end
  if n > limit.max then return false, -1 end
  if s.count + s.excess + n <= limit.max then return true, 0 end
  return false, leases.wait(s, now, limit.ttl)
end

function M.usage(s, limit, now)
  if s.count == 0 then return 0, 0 end
  return s.count + s.excess, math.max(1, math.min(s.latest - now, limit.ttl))
end

return M
