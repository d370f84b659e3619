-- reservation_limit: the part of a limit that reserves. reservations.lua stores the reservations, and settle.lua applies them to the
-- state of the algorithm.
--
-- KEYS    none of its own.
-- ARGV    ttl, refunds_expired. With refunds_expired = 1 an expired reservation is settled to 0.
-- units   times in µs since 1970, durations in µs
local M = { limit = 0 }

function M.limit(text, offset)
  local ttl, refunds_expired = struct_unpack('>I8I8', text, offset)
  return { algorithm = 0, ttl = ttl, refunds_expired = refunds_expired == 1 }
end

return M
