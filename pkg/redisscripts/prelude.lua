-- prelude: helpers of all algorithms.
--
-- Every file creates a table as large as it becomes, because Lua grows tables slowly. So a constructor names fields that are set only
-- later: the 0 of local M = { name = 'funnel', limit = 0, load = 0, ... }, or the nil of { nil, nil }, is a placeholder. Without them, Redis
-- needs 3 to 7 % more CPU in BenchmarkCall of redisstore under a fixed window or a sliding log.
local call, struct_pack, struct_unpack = redis.call, struct.pack, struct.unpack

-- The expiry, in ms, of a key that has fully reset in reset µs. It is at least min_expiry_ms, and a second longer than needed: it
-- only frees memory, and decides nothing.
local min_expiry_ms = 0
local function expiry_ms(reset)
  local px = reset / 1000 + 1000
  if px < min_expiry_ms then return min_expiry_ms end
  return px
end

-- The integer part of a number, exactly: redis.call by itself may lose digits, and takes as long for the conversion as for the call.
local function digits(n) return string.format('%d', n) end

-- Setting an expiry is the most expensive step of a write. So most values contain the expiry of their key, in s since 1970 by this
-- server's clock. A write renews it only if it is before least_expiry. renew_expiry returns a new one, a quarter later than needed,
-- and the argument of PX. A value has 4 bytes for its expiry, so the stored one is at most 2^32 - 1, in the year 2106. The key itself
-- may expire later.
local function least_expiry(reset, server) return (server / 1000 + expiry_ms(reset)) / 1000 end

local function renew_expiry(reset, server)
  local seconds = math.ceil((server / 1000 + 1.25 * expiry_ms(reset)) / 1000)
  return math.min(seconds, 2 ^ 32 - 1), digits(seconds * 1000 - server / 1000)
end

-- The verdicts of a batch, four numbers each.
local verdicts = { nil, nil, nil, nil }

local function verdict_of(i) return unpack(verdicts, 4 * i - 3, 4 * i) end

local function set_verdict(i, result, used, retry, reset)
  i = 4 * i
  verdicts[i - 3], verdicts[i - 2], verdicts[i - 1], verdicts[i] = result, used, retry, reset
end

-- module_of returns the module of a file, which runs once, when it is needed: creating closures costs time, and most batches use one
-- algorithm. Source generates run_file. The files of deciders read the parameter env, see the end of batch.lua; others need none.
local modules, run_file = {}
local function module_of(name, env)
  local module = modules[name] or run_file(name, env)
  modules[name] = module
  return module
end

-- whole_numbers unpacks a value with a format of struct. It raises an error if the value has another length, or is an error reply.
local function whole_numbers(value, bytes, format)
  if #value ~= bytes then error(value.err or 'an unreadable value', 0) end
  local a, b, c, d, e = struct_unpack(format, value)
  if a > 2 ^ 53 or b > 2 ^ 53 then error('an unreadable value', 0) end
  return a, b, c, d, e
end
