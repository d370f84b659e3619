-- decide_extra: decides groups in which a limit has extra state, which is a penalty or leases. Twin of groupDecision in
-- pkg/limiters.
--
-- batch.lua lists the fields of runs and keys. This file adds allowed and these fields to each run of a group:
--   key, group      its key and its group
--   penalty_key     the key of its penalty
--   leases          the state of its leases, whose module is leases_zset.lua or leases_hash.lua
--   lease_effect    the effect of an allowed operation on its lease: none, opens, already_open or ended, as leaseEffect in pkg/limiters
--   charged_at      the time by which settle finds the charge of a reservation that the operation opens
--   actual          the actual cost of an id that ended before it was opened
--   too_many        whether it is denied because its key has too many reservations
--   began           whether a penalty began with it
local now, server, failures, shared = batch.now, batch.server, batch.failures, module_of('decide_shared', batch)
local key_at, state_of, guarded, report, settler_of = shared.key_at, shared.state_of, shared.guarded, shared.report, shared.settler_of

-- The effect of an operation on its lease, if the operation is allowed.
local function lease_effect_of(run)
  local leases = run.leases
  if not leases or run.id == $NO_ID or run.n < 0 or run.n == 0 and not run.limit.reserves then return 'none' end
  if leases.module.find(leases, run.id) then return 'already_open' end
  if leases.module.has_ended(leases, run.id, now) then return 'ended' end
  return 'opens'
end

-- Removes expired leases, and shortens expiries beyond now plus the TTL. It returns the corrections that settle removed reservations to 0.
local function expire_leases(run)
  local leases = run.leases
  local corrections = leases.module.expire(leases, now, run.id)
  leases.module.shorten(leases, now + run.limit.ttl)
  return corrections
end

-- Loads the reservations of a key. It removes the expired ones, and settles them to 0 if the limit refunds them.
local function load_reservations(key, run)
  local leases_key = key_at(run.reservations_index)
  leases_key.state = leases_key.state or module_of('leases_hash').load(leases_key.name)
  run.leases = leases_key.state
  local corrections = expire_leases(run)
  if #corrections > 0 and run.limit.refunds_expired and settler_of(run.limit).settle(key.state, run.limit, now, corrections) then
    local _
    _, key.reset = run.limit.module.usage(key.state, run.limit, now)
    key.charged = run.limit
  end
end

local function load(key, run)
  local algorithm = run.limit.module
  if algorithm.is_concurrency then
    key.state = key.state or algorithm.leases.load(key.name, run.id)
    run.leases = key.state
    expire_leases(run)
    return
  end
  state_of(key, run.limit)
  if run.limit.reserves then load_reservations(key, run) end
  if run.limit.penalty then
    local penalty_key = key_at(run.penalty_index)
    penalty_key.group = run.group
    penalty_key.state = penalty_key.state or run.limit.penalty.module.load(penalty_key.name)
    run.penalty_key = penalty_key
  end
end

-- The time left of the penalty of a key, which denies every request.
local function penalty_left(run)
  if not run.limit.penalty then return 0 end
  return run.limit.penalty.module.left(run.penalty_key.state, run.limit.penalty, now)
end

-- Adds a run to the hits that its group would charge to its key, and to the leases that the group would open there.
local function add(key, run)
  run.lease_effect = lease_effect_of(run)
  if run.lease_effect ~= 'already_open' and run.n > 0 then key.sum = math.min(key.sum + run.n, $MAX_HITS) end
  if run.lease_effect == 'opens' then key.opens = key.opens + 1 end
end

local function check(key, run)
  run.allowed = true
  if run.n < 0 then return end
  if penalty_left(run) > 0 then
    run.allowed = false
    return
  end
  if run.lease_effect == 'already_open' then return end
  run.allowed = run.limit.module.fits(key.state, run.limit, now, key.sum)
  if run.allowed and run.lease_effect == 'opens' and run.leases.count + key.opens > $MAX_LEASES then
    run.allowed, run.too_many = false, true
  end
end

-- Changes the result of the reported verdict i.
local function set_result(i, result) set_verdict(i, result, select(2, verdict_of(i))) end

-- Reports an operation that is allowed, even if its group is not.
local function report_allowed(run)
  report(run.key, run.first, run.limit, true, 0)
  if run.lease_effect == 'already_open' then set_result(run.first, $LEASE_ALREADY_OPEN) end
end

-- Opens the leases of an allowed group, before any hits are charged. Redis rejects the first write of a script or none: if it rejects
-- one, nothing of the group is written.
local function open_leases(group)
  for _, run in ipairs(group) do
    local effect, leases = lease_effect_of(run), run.leases
    run.lease_effect = effect
    if effect == 'ended' then
      local _
      _, run.actual = leases.module.has_ended(leases, run.id, now)
      leases.module.forget_end(leases, run.id)
    elseif effect == 'opens' then
      run.charged_at = run.limit.reserves and settler_of(run.limit).charged_at(run.key.state, run.limit, now)
      leases.module.open(leases, run.id, run.limit, now, run.n, run.charged_at, server)
    end
    if run.limit.module.is_concurrency then report_allowed(run) end
  end
end

local function charge(key, run)
  local n, charged = run.n, false
  if run.lease_effect == 'ended' then n = run.actual end
  if run.lease_effect == 'opens' then
    local settler, leases = settler_of(run.limit), run.leases
    local charged_at = settler.charged_at(key.state, run.limit, now)
    if charged_at ~= run.charged_at then -- an earlier operation of the group refunded the newest hits
      leases.module.remove(leases, run.id)
      leases.module.open(leases, run.id, run.limit, now, n, charged_at, server)
    end
    charged = settler.charge(key.state, run.limit, now, n)
  elseif n ~= 0 and run.lease_effect ~= 'already_open' then
    charged = run.limit.module.charge(key.state, run.limit, now, n)
  end
  if charged then key.charged = run.limit end
  report_allowed(run)
end

local function charge_denied(key, run)
  if run.allowed or run.n <= 0 or not run.limit.counts_denied or penalty_left(run) > 0 then return end
  if run.limit.module.charge(key.state, run.limit, now, run.n) then key.charged = run.limit end
end

-- Counts an offense. The denied operations of a group on one key are one offense.
local function add_offense(key, run)
  if run.allowed or not run.limit.penalty or key.offended == run.group then return end
  key.offended = run.group
  local penalty_key, penalty, had_begun = run.penalty_key, run.limit.penalty, penalty_left(run) > 0
  if penalty.module.add_offense(penalty_key.state, penalty, now) then
    penalty_key.charged, penalty_key.reset = penalty, penalty.module.reset(penalty_key.state, penalty, now)
  end
  run.began = not had_begun and penalty_left(run) > 0
end

local function report_denied(key, run)
  if run.allowed then return report_allowed(run) end
  local retry, _
  if run.too_many then
    retry = run.leases.module.wait(run.leases, now, run.limit.ttl)
  else
    _, retry = run.limit.module.fits(key.state, run.limit, now, key.sum)
  end
  report(key, run.first, run.limit, false, retry)
  if run.too_many then set_result(run.first, $TOO_MANY_LEASES) end
  local left = penalty_left(run)
  if left > 0 then run.limit.penalty.module.add_to_denial(run.first, left, run.began) end
end

-- Moves the charge of an open reservation to the actual cost.
local function settle(run, actual)
  local key, leases, module = run.key, run.leases, run.leases.module
  if not module.find(leases, run.id) then return module.remember_end(leases, run.id, now, actual, server) end
  local estimate, charged_at = module.cost(leases, run.id)
  local corrections = { { charged_at = charged_at, delta = actual - estimate } }
  local changed = settler_of(run.limit).settle(key.state, run.limit, now, corrections)
  module.remove(leases, run.id)
  if changed then key.charged = run.limit end
end

-- Ends a lease, or settles a reservation. The end of an id that is not open is remembered, because the charge that
-- opens it may follow.
local function end_lease(run)
  if run.id ~= $NO_ID and run.limit.reserves then
    settle(run, math.max(0, run.n))
  elseif run.id ~= $NO_ID and run.leases then
    run.leases.module.end_lease(run.leases, run.id, now, server)
  end
  report(run.key, run.first, run.limit, true, 0)
end

-- Reports whether one more hit fits and, in a verdict of its own, the time left of the penalty.
local function inspect(key, run)
  local fits, retry = run.limit.module.fits(key.state, run.limit, now, 1)
  report(key, run.first, run.limit, fits, retry)
  if run.limit.penalty then set_verdict(run.first + 1, 0, 0, penalty_left(run), 0) end
end

local function each(group, f)
  for _, run in ipairs(group) do guarded(f, run.key, run) end
end

-- Decides a group. All its runs are checked before one is charged.
return function(group)
  for _, run in ipairs(group) do
    local key = key_at(run.key_index)
    run.key, run.group = key, group
    if key.group ~= group then key.group, key.sum, key.opens = group, 0, 0 end
  end
  each(group, load)
  if group[1].op_kind == $INSPECT then return each(group, inspect) end
  if group[1].op_kind == $END then
    local run = group[1]
    local ok, problem = true
    if not run.key.failed then ok, problem = pcall(end_lease, run) end
    if not ok then failures().fail(run.first, problem) end
    return
  end
  each(group, add)
  each(group, check)
  local allowed = true
  for _, run in ipairs(group) do allowed = allowed and run.allowed and not run.key.failed end
  if allowed then
    local ok, problem = pcall(open_leases, group)
    for _, run in ipairs(group) do
      if not ok then failures().fail(run.first, problem)
      elseif not run.limit.module.is_concurrency then guarded(charge, run.key, run) end
    end
    return
  end
  for _, f in ipairs({ charge_denied, add_offense, report_denied }) do each(group, f) end
end
