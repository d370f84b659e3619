-- decide_concurrency: decides CONCURRENCY runs, see wire.go.
--
-- leases_zset.lua decides a frequent operation immediately. Any other operation changes the state of its key, step by step, see keys.lua.
local now, server, limits, packed, loaded_keys = env.now, env.server, env.limits, env.packed, env.loaded_keys

-- Changes the state of a key by an operation with a lease or without one. It returns the same as open_or_peek in concurrency.lua.
local function decide(leases, s, id, limit, n, ends)
  local lease_id = id ~= $NO_ID and id
  leases.expire(s, now, id)
  leases.shorten(s, now + limit.ttl)
  if not ends then return limit.algorithm.open_or_peek(s, lease_id, limit, now, n, server) end
  if lease_id then leases.end_lease(s, id, now, server) end
  return true, 0
end

-- Decides operations of a run, see decide_each in batch.lua.
return function(run)
  for op_index = run.op_index, run.op_count do
    run.op_index = op_index
    local op_kind, id, key_index, limit_index, n = struct_unpack($CONCURRENCY_LAYOUT, packed, run.ops_at + $CONCURRENCY_SIZE * (op_index - 1))
    local limit = limits[limit_index]
    local leases, name, key, allowed, retry = limit.algorithm.leases, KEYS[key_index], loaded_keys[key_index], true, 0
    local already_open, scores, used, reset
    if not key and id ~= $NO_ID then
      scores = leases.scores(name, id)
      used, reset = leases.open_or_end(name, id, limit, now, n, op_kind == $END, scores, server)
    end
    if not used then
      key = key or { name = name }
      key.state = key.state or leases.load(name, id, false, scores)
      loaded_keys[key_index] = key
      allowed, retry, already_open = decide(leases, key.state, id, limit, n, op_kind == $END)
      used, reset = limit.algorithm.usage(key.state, limit, now)
    end
    local result = already_open and $LEASE_ALREADY_OPEN or allowed and $ALLOWED or $DENIED
    set_verdict(run.first + op_index - 1, result, used, retry, reset)
  end
end
