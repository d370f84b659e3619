-- batch: the driver, which decides a batch of operations in order, all at the same time. Twin of limiters.Decide. See wire.go for
-- KEYS, ARGV, units and the reply.
--
-- It reads the limits, decides run by run, and packs the verdicts. A run is consecutive operations that are decided in one way. The kind
-- of a run selects its decider. decide_extra.lua could decide every operation but OpCountDenied. Each other decider leaves out steps that
-- its operations do not need, and so saves CPU of Redis: ADR 3 has the measurements.
--   kind          decider                  operations
--   ALONE         decide_alone, below      ungrouped, each on a key of its own, as most are: no state is kept
--   SAME_KEY      decide_same_key.lua      ungrouped, on one key: one state for all
--   GROUPED       decide_group.lua         a group without extra state
--   CONCURRENCY   decide_concurrency.lua   ungrouped, under concurrency limits
--   RESERVATIONS  decide_reservations.lua  ungrouped, under limits with reservations and no penalty
--   EXTRA         decide_extra.lua         any other group; any other ungrouped operation is a group of one
--
-- The file of an algorithm returns a table of these members, which is limit.algorithm for its limits:
--   limit(text, from) -> limit, after               decodes the numbers of a limit, from byte from of text on. after is the byte after them
--   load(key, limit, now, value, s) -> s            reads a state. value is the reply to GET: a string, an error, or false if the key is
--                                                   absent. If it is nil, load reads it. s is a state to reuse, or nil
--   fits(s, limit, now, n) -> allowed, retry        retry is -1 if n hits never fit. n = 0 is a peek, which checks 1 hit, or 0 hits if
--                                                   limit.peek_over. Each fits repeats this rule, because a call would cost time
--   charge(s, limit, now, n) -> changed             charges n > 0 hits, or refunds -n
--   usage(s, limit, now) -> used, reset
--   save(key, s, limit, reset, now, server)         writes a changed state, which has fully reset after reset µs
--   quick(key, limit, now, value, n, server) -> used, reset
--                                                   charges and saves n > 0 hits that fit, or refunds -n. In a case that it does not
--                                                   handle, it changes nothing and returns nil. value is not nil
--   settles_at_once                                 true if a settle does not need the time of the charge, for decide_reservations.lua
-- concurrency.lua has is_concurrency = true, and of these functions limit, fits and usage. limit.penalty is the penalty of a limit, whose
-- algorithm is penalty.lua. If limit.reserves is true, limit.ttl is the TTL of a reservation, and limit.keep the time, in µs, for which Redis
-- keeps the key of the reservations.

-- Creating a closure, or a local that closures capture, costs time in every call. So rare closures are created on demand.
local now, not_after = struct_unpack('>I8I8', ARGV[1])
local time = call('TIME')
local server = time[1] * 1000000 + time[2]
if not_after > 0 and server > not_after then return { struct_pack('>I8', server) } end
-- Only tests give a time. It may stand still or differ from this server's, which expires the keys: keep them for an hour at least.
if now == 0 then now = server else min_expiry_ms = 3600000 end

local limits = { nil }
for i = 2, #ARGV - 1 do
  local element = ARGV[i]
  local name, from = struct_unpack('s', element)
  local algorithm = module_of(name)
  local limit, kept_to_refund
  limit, from = algorithm.limit(element, from)
  limit.algorithm = algorithm
  if from <= #element then -- the limit reserves or has a penalty
    limit.ttl, kept_to_refund, from = struct_unpack('>I8I8', element, from)
    limit.reserves, limit.refunds_expired, limit.keep = limit.ttl > 0, kept_to_refund > 0, math.max(limit.ttl, kept_to_refund)
    if from <= #element then
      local penalty = module_of('penalty')
      limit.penalty = penalty.limit(element, from)
      limit.penalty.algorithm = penalty
    end
  end
  limits[i - 1] = limit
end

-- The encoded runs.
local packed = ARGV[#ARGV]

-- Charges an operation, of which allowed and retry are the result of fits for n hits: n if it is allowed; otherwise denied_n, if the limit
-- counts denied hits. It returns the wait, and whether the state has changed.
local function charge_checked(s, limit, n, denied_n, allowed, retry)
  local algorithm = limit.algorithm
  if allowed then return 0, algorithm.charge(s, limit, now, n) end
  if denied_n <= 0 or not limit.counts_denied then return retry, false end
  local charged = algorithm.charge(s, limit, now, denied_n)
  -- The wait includes the hits that were just counted.
  local _
  _, retry = algorithm.fits(s, limit, now, n)
  return retry, charged
end

-- Decides the operations of a run from run.op_index on. decide is decide_alone, or the function of decide_concurrency.lua or
-- decide_reservations.lua. It sets run.op_index to the operation that it decides now. An error fails this operation, and decide is
-- called again for the next one. values holds the reply of MGET, from the key run.key_index on. An element is false if the key is
-- absent or not a string. The table is empty if an ACL forbids MGET.
local function decide_each(decide, run, values)
  while run.op_index <= run.op_count do
    local ok, problem = pcall(decide, run, values)
    if not ok then module_of('failures').fail(run.first + run.op_index - 1, problem) end
    run.op_index = ok and run.op_count + 1 or run.op_index + 1
  end
end

-- Decides operations of an ALONE run, see decide_each. The functions of the algorithm are locals, because Lua reads a local faster than a
-- field.
local function decide_alone(run, values)
  local count_denied, ops_at, first, offset = run.count_denied, run.ops_at, run.first, run.key_index - 1
  local names = KEYS
  local algorithm, load, fits, usage, quick, s
  for op_index = run.op_index, run.op_count do
    run.op_index = op_index
    local limit_index, n = struct_unpack($ALONE_LAYOUT, packed, ops_at + $ALONE_SIZE * (op_index - 1))
    local limit, denied_n = limits[limit_index], n
    if count_denied then n = 0 end
    if limit.algorithm ~= algorithm then
      algorithm, s = limit.algorithm, nil
      load, fits, usage, quick = algorithm.load, algorithm.fits, algorithm.usage, algorithm.quick
    end
    local key, value = names[offset + op_index], values[op_index]
    if not value then value = redis.pcall('GET', key) end
    local allowed, charged, retry, used, reset = true, false, 0
    if n ~= 0 then used, reset = quick(key, limit, now, value, n, server) end
    if not used then
      s = load(key, limit, now, value, s)
      if n >= 0 then allowed, retry = fits(s, limit, now, n) end
      if allowed and n ~= 0 or not allowed and limit.counts_denied then
        retry, charged = charge_checked(s, limit, n, denied_n, allowed, retry)
      end
      used, reset = usage(s, limit, now)
    end
    local i = first + op_index - 1
    set_verdict(i, allowed and $ALLOWED or $DENIED, used, retry, reset)
    if charged then
      if allowed then
        algorithm.save(key, s, limit, reset, now, server)
      else
        local ok, problem = pcall(algorithm.save, key, s, limit, reset, now, server)
        if not ok then module_of('failures').report_unsaved(i, key, limit, now, n, problem) end
      end
    end
  end
end

-- The environment of the deciders in other files. It is created on demand, because most calls have only ALONE runs. runs holds the other
-- runs so far. loaded_keys holds their keys by index, see keys.lua.
local env

-- Decides run by run. A SAME_KEY run has these fields:
--   first, last  the indices of its first and its last verdict
--   key          its key, once decide_same_key.lua has read it
--   n, denied_n  an operation charges n hits. If it is denied, it charges denied_n, and only if the limit counts denied hits
-- Another run has these:
--   first        the index of its first verdict
--   ops_at       the byte of packed at which the layouts of its operations begin
--   op_index     the index of the operation that decide_each decides now
--   ops          the operations of a group, once its decider has read them
-- The other fields are those of wire.go. count is the number of verdicts so far.
local from, count = 1, 0
while from <= #packed do
  local op_count, key_index, kind, limit_index, n, ops_at = struct_unpack($RUN_LAYOUT, packed, from)
  local count_denied, size, last = kind >= $COUNT_DENIED, 0, count + op_count
  local run
  if count_denied then kind = kind - $COUNT_DENIED end
  -- Lua rounds the size of a table up to a power of 2. More than 8 fields would slow down a SAME_KEY run.
  if kind == $SAME_KEY then
    run = {
      kind = kind, first = count + 1, last = last, key_index = key_index, key = false, limit = limits[limit_index],
      n = count_denied and 0 or n, denied_n = n,
    }
  else
    run = {
      kind = kind, first = count + 1, key_index = key_index, op_count = op_count, ops_at = ops_at, op_index = 1,
      count_denied = count_denied, ops = false,
    }
  end
  if kind == $ALONE then
    -- MGET costs a third of a GET for each key. decide_alone reads a single key, and the keys without a value, with GET.
    local last_key = key_index - 1 + op_count
    decide_each(decide_alone, run, last_key > key_index and redis.pcall('MGET', unpack(KEYS, key_index, last_key)) or {})
    size = $ALONE_SIZE
  else
    env = env or {
      now = now, server = server, limits = limits, packed = packed, runs = { nil }, loaded_keys = {}, charge_checked = charge_checked,
    }
    env.runs[#env.runs + 1] = run
    if kind == $CONCURRENCY then
      decide_each(module_of('decide_concurrency', env), run)
      size = $CONCURRENCY_SIZE
    elseif kind == $RESERVATIONS then
      -- The keys of the limits come first among the keys of a call, so one MGET reads those of the run, or most of them.
      local last_key = math.min(key_index - 1 + op_count, #KEYS)
      decide_each(module_of('decide_reservations', env), run, redis.pcall('MGET', unpack(KEYS, key_index, last_key)))
      size = $EXTRA_SIZE
    elseif kind == $SAME_KEY then
      module_of('decide_same_key', env)(run)
    elseif kind == $GROUPED then
      module_of('decide_group', env)(run)
      size = $GROUPED_SIZE
    else
      last = module_of('decide_extra', env).decide_run(run)
      size = $EXTRA_SIZE
    end
  end
  from, count = ops_at + size * op_count, last
end
if modules.keys and not modules.keys.save() then module_of('failures').report_keys(env) end

local failures = modules.failures
-- Clients leave a server that is no longer the master if the reply is an error.
if failures and failures.is_replica then return redis.error_reply('READONLY a read only replica') end

-- Many verdicts are packed at a time. A string for each would cost more than its numbers.
local format, per_pack, numbers = $PACK_FORMAT, 4 * $VERDICTS_PER_PACK, 4 * count
local to = math.min(numbers, per_pack)
local reply = struct_pack(string.sub(format, 1, 3 + 2 * to), server, unpack(verdicts, 1, to))
if numbers > per_pack then
  local texts = { reply }
  for from = per_pack + 1, numbers, per_pack do
    to = math.min(from + per_pack - 1, numbers)
    texts[#texts + 1] = struct_pack('>' .. string.sub(format, 4, 3 + 2 * (to - from + 1)), unpack(verdicts, from, to))
  end
  reply = table.concat(texts)
end
if not failures then return { reply } end
table.insert(failures.texts, 1, reply)
return failures.texts
