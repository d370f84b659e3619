-- decide_extra: decides groups in which a limit has extra state, which is a penalty or leases. Twin of groupDecision in
-- pkg/limiters.
--
-- keys.lua lists the fields of operations and keys. This file adds allowed and these fields to each operation of a group:
--   group           its group
--   penalty_key     the key of its penalty
--   leases          the state of its leases, whose module is leases_zset.lua or leases_hash.lua
--   lease_effect    the effect of an allowed operation on its lease: none, opens, already_open or ended, as leaseEffect in pkg/limiters
--   charged_at      the time by which settle finds the charge of a reservation that the operation opens
--   actual          the actual cost of an id that ended before it was opened
--   too_many        whether it is denied because its key has too many reservations
--   began           whether a penalty began with it
local now, server, limits, packed, keys = env.now, env.server, env.limits, env.packed, module_of('keys', env)
local key_at, state_of, guarded, report = keys.at, keys.state_of, keys.guarded, keys.report

-- Reads operation i of an EXTRA or RESERVATIONS run. Its first verdict is the one after last. An inspection has a second one, of a penalty.
local function read_op(run, i, last)
  local op_kind, id, key_index, limit_index, n, reservations_index, penalty_index =
    struct_unpack($EXTRA_LAYOUT, packed, run.ops_at + $EXTRA_SIZE * (i - 1))
  return {
    first = last + 1, last = last + (op_kind == $INSPECT and penalty_index > 0 and 2 or 1), key = key_at(key_index),
    limit = limits[limit_index], n = n, op_kind = op_kind, id = id, reservations_index = reservations_index, penalty_index = penalty_index,
  }
end

-- The functions by which the reservations of a limit change the state of its algorithm.
local function settler_of(limit) return module_of('settle')[limit.algorithm.name] end

-- The effect of an operation on its lease, if the operation is allowed.
local function lease_effect_of(op)
  local leases = op.leases
  if not leases or op.id == $NO_ID or op.n < 0 or op.n == 0 and not op.limit.reserves then return 'none' end
  if leases.module.find(leases, op.id) then return 'already_open' end
  if leases.module.has_ended(leases, op.id, now) then return 'ended' end
  return 'opens'
end

-- Removes expired leases, and shortens expiries beyond now plus the TTL. It returns the corrections that settle removed reservations to 0.
local function expire_leases(op)
  local leases = op.leases
  local corrections = leases.module.expire(leases, now, op.id)
  leases.module.shorten(leases, now + op.limit.ttl)
  return corrections
end

-- Loads the reservations of a key. It removes the expired ones, and settles them to 0 if the limit refunds them.
local function load_reservations(key, op)
  local leases_key = key_at(op.reservations_index)
  leases_key.state = leases_key.state or module_of('leases_hash').load(leases_key.name)
  op.leases = leases_key.state
  local corrections = expire_leases(op)
  if #corrections > 0 and op.limit.refunds_expired and settler_of(op.limit).settle(key.state, op.limit, now, corrections) then
    local _
    _, key.reset = op.limit.algorithm.usage(key.state, op.limit, now)
    key.charged = op.limit
  end
end

local function load(key, op)
  local algorithm = op.limit.algorithm
  if algorithm.is_concurrency then
    key.state = key.state or algorithm.leases.load(key.name, op.id)
    op.leases = key.state
    expire_leases(op)
    return
  end
  state_of(key, op.limit)
  if op.limit.reserves then load_reservations(key, op) end
  if op.limit.penalty then
    local penalty_key = key_at(op.penalty_index)
    penalty_key.group = op.group
    penalty_key.state = penalty_key.state or op.limit.penalty.algorithm.load(penalty_key.name)
    op.penalty_key = penalty_key
  end
end

-- The time left of the penalty of a key, which denies every request.
local function penalty_left(op)
  if not op.limit.penalty then return 0 end
  return op.limit.penalty.algorithm.time_left(op.penalty_key.state, op.limit.penalty, now)
end

-- Adds an operation to the hits that its group would charge to its key, and to the leases that the group would open there. The group
-- opens the lease of an id once.
local function add(key, op)
  op.lease_effect = lease_effect_of(op)
  if op.lease_effect == 'opens' then
    key.new_ids = key.new_ids or {}
    if key.new_ids[op.id] then return end
    key.new_ids[op.id], key.opens = true, key.opens + 1
  end
  if op.lease_effect ~= 'already_open' and op.n > 0 then key.sum = math.min(key.sum + op.n, $MAX_HITS) end
end

local function check_extra(key, op)
  op.allowed = true
  if op.n < 0 then return end
  op.checked = key.sum
  if penalty_left(op) > 0 then
    op.allowed = false
    return
  end
  if op.lease_effect == 'already_open' then return end
  op.allowed = op.limit.algorithm.fits(key.state, op.limit, now, key.sum)
  if op.allowed and op.lease_effect == 'opens' and op.leases.count + key.opens > $MAX_LEASES then
    op.allowed, op.too_many = false, true
  end
end

-- Changes the result of the reported verdict i.
local function set_result(i, result) set_verdict(i, result, select(2, verdict_of(i))) end

-- Reports an operation that is allowed, even if its group is not.
local function report_allowed(op)
  report(op.key, op.first, op.limit, true, 0)
  if op.lease_effect == 'already_open' then set_result(op.first, $LEASE_ALREADY_OPEN) end
end

-- Opens the leases of an allowed group, before any hits are charged. Redis rejects the first write of a script or none: if it rejects
-- one, nothing of the group is written.
local function open_leases(group)
  for _, op in ipairs(group) do
    local effect, leases = lease_effect_of(op), op.leases
    op.lease_effect = effect
    if effect == 'ended' then
      local _
      _, op.actual = leases.module.has_ended(leases, op.id, now)
      leases.module.forget_end(leases, op.id)
    elseif effect == 'opens' then
      op.charged_at = op.limit.reserves and settler_of(op.limit).charged_at(op.key.state, op.limit, now)
      leases.module.open(leases, op.id, op.limit, now, op.n, op.charged_at, server)
    end
    if op.limit.algorithm.is_concurrency then report_allowed(op) end
  end
end

local function charge_extra(key, op)
  local n, charged = op.n, false
  if op.lease_effect == 'ended' then n = op.actual end
  if op.lease_effect == 'opens' then
    local settler, leases = settler_of(op.limit), op.leases
    local charged_at = settler.charged_at(key.state, op.limit, now)
    if charged_at ~= op.charged_at then -- an earlier operation of the group refunded the newest hits
      leases.module.remove(leases, op.id)
      leases.module.open(leases, op.id, op.limit, now, n, charged_at, server)
    end
    charged = settler.charge(key.state, op.limit, now, n)
  elseif n ~= 0 and op.lease_effect ~= 'already_open' then
    charged = op.limit.algorithm.charge(key.state, op.limit, now, n)
  end
  if charged then key.charged = op.limit end
  report_allowed(op)
end

-- Removes the leases that a group has opened, because one of its charges failed, and fails their operations.
local function take_back_leases(group)
  for _, op in ipairs(group) do
    if op.lease_effect == 'opens' then
      pcall(op.leases.module.remove, op.leases, op.id)
      module_of('failures').fail(op.first, group.unsaved)
    end
  end
end

local function charge_denied(key, op)
  if op.allowed or op.n <= 0 or not op.limit.counts_denied or penalty_left(op) > 0 then return end
  if op.limit.algorithm.charge(key.state, op.limit, now, op.n) then key.charged = op.limit end
end

-- Counts an offense. The denied operations of a group on one key are one offense.
local function add_offense(key, op)
  if op.allowed or not op.limit.penalty or key.offended == op.group then return end
  key.offended = op.group
  local penalty_key, penalty, had_begun = op.penalty_key, op.limit.penalty, penalty_left(op) > 0
  if penalty.algorithm.add_offense(penalty_key.state, penalty, now) then
    penalty_key.charged, penalty_key.reset = penalty, penalty.algorithm.reset(penalty_key.state, penalty, now)
  end
  op.began = not had_begun and penalty_left(op) > 0
end

-- Reports that the key of an operation has too many open reservations.
local function report_too_many(op)
  report(op.key, op.first, op.limit, false, op.leases.module.wait(op.leases, now, op.limit.ttl))
  set_result(op.first, $TOO_MANY_LEASES)
end

local function report_denied(key, op)
  if op.allowed then return report_allowed(op) end
  if op.too_many then
    report_too_many(op)
  else
    local _, retry = op.limit.algorithm.fits(key.state, op.limit, now, key.sum)
    report(key, op.first, op.limit, false, retry)
  end
  local time_left = penalty_left(op)
  if time_left > 0 then op.limit.penalty.algorithm.add_to_denial(op.first, time_left, op.began) end
end

-- Moves the charge of an open reservation to the actual cost.
local function settle(op, actual)
  local key, leases, module = op.key, op.leases, op.leases.module
  if not module.find(leases, op.id) then return module.remember_end(leases, op.id, now, actual, server) end
  local estimate, charged_at = module.cost(leases, op.id)
  local corrections = { { charged_at = charged_at, delta = actual - estimate } }
  local changed = settler_of(op.limit).settle(key.state, op.limit, now, corrections)
  module.remove(leases, op.id)
  if changed then key.charged = op.limit end
end

-- Ends a lease, or settles a reservation. The end of an id that is not open is remembered, because the charge that
-- opens it may follow.
local function end_lease(op)
  if op.id ~= $NO_ID and op.limit.reserves then
    settle(op, math.max(0, op.n))
  elseif op.id ~= $NO_ID and op.leases then
    op.leases.module.end_lease(op.leases, op.id, now, server)
  end
  report(op.key, op.first, op.limit, true, 0)
end

-- Reports whether one more hit fits, in a new reservation if the limit reserves. Under a penalty, a second verdict reports the time left of
-- it.
local function inspect(key, op)
  local allowed, retry = op.limit.algorithm.fits(key.state, op.limit, now, 1)
  if allowed and op.limit.reserves and op.leases.count >= $MAX_LEASES then
    report_too_many(op)
  else
    report(key, op.first, op.limit, allowed, retry)
  end
  if op.limit.penalty then set_verdict(op.first + 1, 0, 0, penalty_left(op), 0) end
end

local function each(group, f)
  for _, op in ipairs(group) do guarded(f, op) end
end

-- Decides a group. All its operations are checked before one is charged.
local function decide(group)
  for _, op in ipairs(group) do
    local key = op.key
    op.group = group
    if key.group ~= group then key.group, key.sum, key.opens, key.new_ids = group, 0, 0, nil end
  end
  each(group, load)
  if group[1].op_kind == $INSPECT then return each(group, inspect) end
  if group[1].op_kind == $END then
    local op = group[1]
    local ok, problem = true, nil
    if not op.key.failed then ok, problem = pcall(end_lease, op) end
    if not ok then module_of('failures').fail(op.first, problem) end
    return
  end
  each(group, add)
  each(group, check_extra)
  local allowed = true
  for _, op in ipairs(group) do allowed = allowed and op.allowed and not op.key.failed end
  if allowed then
    group.charging = true
    local ok, problem = pcall(open_leases, group)
    for _, op in ipairs(group) do
      if not ok then module_of('failures').fail(op.first, problem)
      elseif not op.limit.algorithm.is_concurrency then guarded(charge_extra, op) end
    end
    if group.unsaved then take_back_leases(group) end
    return
  end
  for _, f in ipairs({ charge_denied, add_offense, report_denied }) do each(group, f) end
end

-- Decides an EXTRA run, and returns the index of its last verdict.
local function decide_run(run)
  local group, last = { nil }, run.first - 1
  for i = 1, run.op_count do
    group[i] = read_op(run, i, last)
    last = group[i].last
  end
  run.ops = group
  decide(group)
  return last
end

return { read_op = read_op, decide = decide, decide_run = decide_run }
