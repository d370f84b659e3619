-- What every algorithm may use. MAX_HITS and MOST_HELD are those of pkg/limiters. A number passed to redis.call as a number
-- costs as much as the call itself: digits() writes a whole number, and no digit is lost.
local MAX_HITS, MOST_HELD = 2 ^ 52, 2 ^ 33
local call, pack, unpacked = redis.call, struct.pack, struct.unpack

-- The least expiry, in ms, and the time for which a key is kept that is as good as new in reset µs: a second more than is
-- needed, for the expiry frees memory and decides nothing.
local soonest = 0
local function expiry(reset) return math.max(math.ceil(reset / 1000) + 1000, soonest) end

local function digits(n) return string.format('%d', n) end

-- whole_numbers reads a value that is so many bytes, as the format says. Any other is an error, as is what is one already.
local function whole_numbers(value, bytes, format)
  if #value ~= bytes then error(value.err or 'an unreadable value', 0) end
  local a, b, c, d, e = unpacked(format, value)
  if a > 2 ^ 53 or b > 2 ^ 53 then error('an unreadable value', 0) end
  return a, b, c, d, e
end
