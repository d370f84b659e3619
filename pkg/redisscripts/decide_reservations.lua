-- decide_reservations: decides RESERVATIONS runs, see wire.go. It decides frequent operations itself, and leaves the others to
-- decide_extra.lua, which is loaded on demand, because creating its functions costs as much as several operations.
--
-- A frequent operation opens a reservation, or settles an open one. It reads and writes one lease in the hash of its key, see
-- leases_hash.lua. It never reads the whole hash, because Lua hashes every byte of each string that it creates. A frequent operation of an
-- algorithm that settles at once needs no state of its key either.
--
-- The head has two counts of 2 bytes: of leases and ended ids together, and of ended ids. They are read as one number of 4 bytes, counts,
-- because unpacking one number fewer is measurably cheaper. One lease adds $ONE_LEASE to counts.
local now, server, limits, packed, loaded_keys = env.now, env.server, env.limits, env.packed, env.loaded_keys

-- The functions below get the operation op of a run that is decided now. read_op and read_hash set its fields, and the others read them:
--   id, n, ends                       the id of the reservation, and whether the operation ends or opens it
--   key_index, name                   the index of the key of the usage, and the name of the key of the reservations
--   limit                             the limit
--   least, ttl_end                    the least expiry of the key, and the expiry of the reservation, if it is opened now
--   lease                             the value of the lease in the hash; false if it is absent
--   key_expiry, counts, first_expiry  as in the head

-- Reads an operation of a run. It returns whether the operation may be frequent, which depends on its hash.
local function read_op(op, run, op_index)
  local from, limit_index, op_kind, reservations_index = run.ops_at + $EXTRA_SIZE * (op_index - 1)
  op_kind, op.id, op.key_index, limit_index, op.n, reservations_index = struct_unpack($EXTRA_LAYOUT, packed, from)
  op.ends, op.name = op_kind == $END, KEYS[reservations_index]
  if op.limit ~= limits[limit_index] then
    op.limit = limits[limit_index]
    op.least, op.ttl_end = least_expiry(op.limit.keep, server), now + op.limit.ttl
  end
  local key = loaded_keys[op.key_index]
  return op.n >= 0 and op.id ~= $NO_ID and not loaded_keys[reservations_index] and not (key and key.failed)
end

-- Reads the head and the lease in a hash. It returns true if the operation is frequent. Then it settles an open reservation or opens a
-- new one. The hash is absent, or has no ended ids, and its leases expire after now and not after ttl_end.
local function read_hash(op)
  local found = redis.pcall('HMGET', op.name, $HEAD_FIELD, op.id)
  local head, lease, key_expiry, counts, first_expiry, latest = found[1], found[2], 0, 0, op.ttl_end
  if head == nil or op.ends == not lease then return end -- head is nil after an error
  if head then
    if #head ~= 24 then return end
    key_expiry, counts, first_expiry, latest = struct_unpack('>I4I4I8I8', head)
    if counts % $ONE_LEASE > 0 or first_expiry <= now or latest > op.ttl_end then return end
    if counts >= $MAX_HASH_LEASES * $ONE_LEASE and not op.ends then
      counts = (call('HLEN', op.name) - 1) * $ONE_LEASE
      if counts >= $MAX_HASH_LEASES * $ONE_LEASE then return end
    end
  end
  op.lease, op.key_expiry, op.counts, op.first_expiry = lease, key_expiry, counts, first_expiry
  return true
end

-- Writes the lease of a new reservation.
local function open(op, charged_at)
  local key_expiry, ttl_end, px = op.key_expiry, op.ttl_end
  if key_expiry < op.least then key_expiry, px = renew_expiry(op.limit.keep, server) end
  local head = struct_pack('>I4I4I8I8', key_expiry, op.counts + $ONE_LEASE, op.first_expiry, ttl_end)
  call('HSET', op.name, $HEAD_FIELD, head, op.id, struct_pack('>I8I8I8', ttl_end, op.n, charged_at))
  if px then call('PEXPIRE', op.name, px) end
end

-- Deletes the lease of a settled reservation, and returns its estimate. The hash is deleted with its last lease, if counts is exact.
local function delete_lease(op)
  if #op.lease ~= 24 then error('an unreadable value', 0) end
  if op.counts == $ONE_LEASE then call('DEL', op.name) else call('HDEL', op.name, op.id) end
  return struct_unpack('>I8', op.lease, 9)
end

-- Returns the key of the usage with its state.
local function load_usage(op, value)
  local limit, key = op.limit, module_of('keys', env).at(op.key_index)
  if not key.state and not key.failed then key.state = limit.algorithm.load(key.name, limit, now, value or nil) end
  return key
end

-- Charges delta hits on the state of the usage, if they fit or correct a settled reservation. It sets verdict i.
local function charge_state(op, i, value, delta)
  local limit, key = op.limit, load_usage(op, value)
  local settler, s, allowed, retry, charged = module_of('settle')[limit.algorithm.name], key.state, true, 0, false
  if op.ends then
    charged = delta ~= 0 and settler.settle(s, limit, now, { { charged_at = struct_unpack('>I8', op.lease, 17), delta = delta } })
  else
    allowed, retry = limit.algorithm.fits(s, limit, now, delta)
    if allowed then
      open(op, settler.charged_at(s, limit, now))
      charged = settler.charge(s, limit, now, delta)
    end
  end
  if charged then key.charged = limit end
  module_of('keys', env).report(key, i, limit, allowed, retry)
end

-- Decides a frequent operation and sets verdict i. values[v] is the value of the usage, see decide_each in batch.lua. It becomes nil when
-- the operation changes the usage.
local function decide_frequent(op, i, values, v)
  local limit, name, value, delta, used, reset = op.limit, KEYS[op.key_index], values[v], op.n
  local algorithm = limit.algorithm
  local needs_state = not algorithm.settles_at_once or value == nil or loaded_keys[op.key_index]
  -- A value that cannot be read is an error here, before anything is written.
  if needs_state then
    load_usage(op, value)
  elseif not value then
    value = call('GET', name)
  elseif op.ends then
    algorithm.load(name, limit, now, value)
  end
  if op.ends then delta = delta - delete_lease(op) end
  if not needs_state and delta ~= 0 then used, reset = algorithm.quick(name, limit, now, value, delta, server) end
  if not used then return charge_state(op, i, value, delta) end
  if not op.ends then open(op, 0) end
  values[v] = nil
  set_verdict(i, $ALLOWED, used, 0, reset)
end

-- Decides operations of a run, see decide_each in batch.lua.
return function(run, values)
  local base = run.key_index - 1
  local op = {
    id = 0, n = 0, ends = 0, key_index = 0, name = 0, limit = 0, least = 0, ttl_end = 0, lease = 0, key_expiry = 0,
    counts = 0, first_expiry = 0,
  }
  for op_index = run.op_index, run.op_count do
    run.op_index = op_index
    if read_op(op, run, op_index) and read_hash(op) then
      decide_frequent(op, run.first + op_index - 1, values, op.key_index - base)
    else
      load_usage(op, values[op.key_index - base])
      local extra = module_of('decide_extra', env)
      extra.decide({ extra.read_op(run, op_index, run.first + op_index - 2) })
    end
  end
end
