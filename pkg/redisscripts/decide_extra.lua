-- decide_extra: decides groups in which a limit has extra state, which is a penalty, leases or reservations. Twin of groupDecision in
-- pkg/limiters. The driver calls it and passes its own functions.
--
-- A run of a group gets these fields in addition to those that batch.lua reads from ARGV:
--   target          the key of its operation
--   group           its group, a list of runs
--   penalty_target  the key of its penalty
--   leases          the state of its leases; the field module has the functions for it, of leaseset.lua or reservations.lua
--   lease_effect    the effect of an allowed operation on its lease: none, opens, already_open or ended, as leaseEffect in pkg/limiters
--   charged_at      of a reservation that the operation opens: the time by which settle finds its charge
--   actual          the actual cost of an id that ended before it was opened
--   allowed         whether the operation is allowed
--   too_many        whether it is denied because its key has too many reservations
--   began           whether a penalty began with it
--
-- A key gets these in addition to those that driver_of in batch.lua lists:
--   counted     the last group whose hits were added to sum, and opens, the leases that this group would open on the key
--   offended    the last group with an offence on the key

return function(now, server, driver)
  local key_at, state_of, guarded, report, settler_of = driver.key_at, driver.state_of, driver.guarded, driver.report, driver.settler_of

  local function fail(i, problem) driver.failures().fail(i, problem) end

  -- The effect of an operation on its lease, if the operation is allowed.
  local function lease_effect_of(run)
    local leases = run.leases
    if not leases or run.id == $NO_ID or run.n < 0 or run.n == 0 and not run.reservations_limit then return 'none' end
    if leases.module.find(leases, run.id) then return 'already_open' end
    if leases.module.has_ended(leases, run.id, now) then return 'ended' end
    return 'opens'
  end

  -- Removes expired leases, and shortens expiries beyond now plus the TTL. It returns the corrections of removed reservations.
  local function expire_leases(run, ttl)
    local leases = run.leases
    local expired = leases.module.expire(leases, now, run.id)
    leases.module.shorten(leases, now + ttl)
    return expired
  end

  local reservations

  -- Removes expired reservations, and settles them to 0 if the limit refunds them.
  local function load_reservations(key, run)
    local target = key_at(run.reservations_key)
    if not target.state then
      reservations = reservations or module_of('reservations')
      target.state = reservations.load(target.name)
    end
    run.leases = target.state
    local expired = expire_leases(run, run.reservations_limit.ttl)
    if #expired > 0 and run.reservations_limit.refunds_expired and settler_of(run.limit).settle(key.state, run.limit, now, expired) then
      local _
      _, key.reset = run.limit.algorithm.usage(key.state, run.limit, now)
      key.charged = run.limit
    end
  end

  local function load(key, run)
    local algorithm = run.limit.algorithm
    if algorithm.is_concurrency then
      key.state = key.state or algorithm.leases.load(key.name, run.id)
      run.leases = key.state
      expire_leases(run, run.limit.ttl)
      return
    end
    state_of(key, run.limit)
    if run.reservations_limit then load_reservations(key, run) end
    if run.penalty_limit then
      local target = key_at(run.penalty_key)
      target.group = run.group
      target.state = target.state or run.penalty_limit.algorithm.load(target.name)
      run.penalty_target = target
    end
  end

  -- The time left of the penalty of a key, which denies every request.
  local function penalty_left(run)
    if not run.penalty_limit then return 0 end
    return run.penalty_limit.algorithm.left(run.penalty_target.state, run.penalty_limit, now)
  end

  -- Adds an operation to the hits that its group would charge to its key, and to the leases that the group would open there.
  local function add(key, run)
    if key.counted ~= run.group then key.counted, key.sum, key.opens = run.group, 0, 0 end
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
    run.allowed = run.limit.algorithm.fits(key.state, run.limit, now, key.sum)
    if run.allowed and run.lease_effect == 'opens' and run.leases.count + key.opens > $MAX_LEASES then
      run.allowed, run.too_many = false, true
    end
  end

  -- Opens the leases of an allowed group. They are written together: if the first write fails, nothing is written, and Redis
  -- rejects only the first write of a script.
  local function open_leases(group)
    for _, run in ipairs(group) do
      local effect, leases = lease_effect_of(run), run.leases
      run.lease_effect = effect
      if effect == 'ended' then
        local _
        _, run.actual = leases.module.has_ended(leases, run.id, now)
        leases.module.forget_end(leases, run.id)
      elseif effect == 'opens' then
        run.charged_at = run.reservations_limit and settler_of(run.limit).charged_at(run.target.state, run.limit, now)
        leases.module.open(leases, run.id, run.reservations_limit or run.limit, now, run.n, run.charged_at, server)
      end
      if run.limit.algorithm.is_concurrency then report(run.target, run.first, run.limit, true, 0) end
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
        leases.module.open(leases, run.id, run.reservations_limit, now, n, charged_at, server)
      end
      charged = settler.charge(key.state, run.limit, now, n)
    elseif n ~= 0 and run.lease_effect ~= 'already_open' then
      charged = run.limit.algorithm.charge(key.state, run.limit, now, n)
    end
    if charged then key.charged = run.limit end
    report(key, run.first, run.limit, true, 0)
  end

  local function deny(key, run)
    if run.allowed or run.n <= 0 or not run.limit.counts_denied or penalty_left(run) > 0 then return end
    if run.limit.algorithm.charge(key.state, run.limit, now, run.n) then key.charged = run.limit end
  end

  -- Counts an offence. The denied operations of a group on one key are one offence.
  local function add_offence(key, run)
    if run.allowed or not run.penalty_limit or key.offended == run.group then return end
    key.offended = run.group
    local target, penalty, had_begun = run.penalty_target, run.penalty_limit, penalty_left(run) > 0
    if penalty.algorithm.add_offence(target.state, penalty, now) then
      target.charged, target.reset = penalty, penalty.algorithm.reset(target.state, penalty, now)
    end
    run.began = not had_begun and penalty_left(run) > 0
  end

  local function report_denied(key, run)
    local retry, _ = 0
    if run.too_many then
      retry = run.leases.module.wait(run.leases, now, run.reservations_limit.ttl)
    elseif not run.allowed then
      _, retry = run.limit.algorithm.fits(key.state, run.limit, now, key.sum)
    end
    report(key, run.first, run.limit, run.allowed, retry)
    if run.too_many then driver.verdicts[4 * run.first - 3] = $TOO_MANY_LEASES end
    local left = penalty_left(run)
    if not run.allowed and left > 0 then run.penalty_limit.algorithm.add_to_denial(driver.verdicts, run.first, left, run.began) end
  end

  -- Moves the charge of an open reservation to the actual cost.
  local function settle(run, actual)
    local key, leases, module = run.target, run.leases, run.leases.module
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
    if run.id ~= $NO_ID and run.reservations_limit then
      settle(run, math.max(0, run.n))
    elseif run.id ~= $NO_ID and run.leases then
      run.leases.module.end_lease(run.leases, run.id, now, server)
    end
    report(run.target, run.first, run.limit, true, 0)
  end

  -- Reports whether one more hit fits and, in a verdict of its own, the time left of the penalty.
  local function inspect(key, run)
    local fits, retry = run.limit.algorithm.fits(key.state, run.limit, now, 1)
    report(key, run.first, run.limit, fits, retry)
    if not run.penalty_limit then return end
    local i = 4 * run.first
    driver.verdicts[i + 1], driver.verdicts[i + 2], driver.verdicts[i + 3], driver.verdicts[i + 4] = 0, 0, penalty_left(run), 0
  end

  local function each(group, f)
    for _, run in ipairs(group) do guarded(f, run.target, run) end
  end

  -- Decides a group, a list of runs of one operation. All its operations are checked before one is charged.
  return function(group)
    for _, run in ipairs(group) do
      run.target, run.group = key_at(run.key), group
      run.target.group = group
    end
    each(group, load)
    if group[1].op_kind == $INSPECT then return each(group, inspect) end
    if group[1].op_kind == $END then
      local run = group[1]
      local ok, problem = true
      if not run.target.failed then ok, problem = pcall(end_lease, run) end
      if not ok then fail(run.first, problem) end
      return
    end
    each(group, add)
    each(group, check)
    local allowed = true
    for _, run in ipairs(group) do allowed = allowed and run.allowed and not run.target.failed end
    if allowed then
      local ok, problem = pcall(open_leases, group)
      for _, run in ipairs(group) do
        if not ok then fail(run.first, problem)
        elseif not run.limit.algorithm.is_concurrency then guarded(charge, run.target, run) end
      end
      return
    end
    for _, f in ipairs({ deny, add_offence, report_denied }) do each(group, f) end
  end
end
