-- reserve: the part of a limit that reserves. reservations.lua stores the reservations, and settle.lua applies them to the
-- state of the algorithm.
--
-- KEYS    none of its own.
-- ARGV    the reservation's arguments: ttl, releases. With releases = 1 an expired reservation is settled to 0.
-- units   times in µs since 1970, durations in µs
local M = { limit = 0 }

function M.limit(text, at)
  local ttl, releases = unpacked('>I8I8', text, at)
  return { algorithm = 0, ttl = ttl, releases = releases == 1 }
end

return M
