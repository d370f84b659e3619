-- prelude: helpers of all algorithms. The constants are MaxHits and maxUsed of pkg/limiters. digits formats an integer exactly;
-- redis.call by itself may lose digits, and takes as long for the conversion as for the call.
local MAX_HITS, MAX_USED = 2 ^ 52, 2 ^ 33
local NO_ID = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local call, pack, unpacked = redis.call, struct.pack, struct.unpack

-- The expiry, in ms, of a key that has fully reset in reset µs. It is at least soonest, and a second longer than needed: it
-- only frees memory, and decides nothing.
local soonest = 0
local function expiry(reset) return math.max(math.ceil(reset / 1000) + 1000, soonest) end

local function digits(n) return string.format('%d', n) end

-- whole_numbers unpacks a value of a number of bytes by a format. Another length, or a value that is an error, is an error.
local function whole_numbers(value, bytes, format)
  if #value ~= bytes then error(value.err or 'an unreadable value', 0) end
  local a, b, c, d, e = unpacked(format, value)
  if a > 2 ^ 53 or b > 2 ^ 53 then error('an unreadable value', 0) end
  return a, b, c, d, e
end
