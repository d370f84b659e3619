-- shared_keys: decides SAME_KEY, GROUPED and EXTRA runs, see batch.lua. Several operations share the state of a key, which is saved once,
-- after all runs.
--
-- known_keys contains the keys of the runs so far by index, except those of ALONE runs. The fields of a key:
--   name      the key in Redis
--   state     its state, once it is loaded
--   charged   the limit under which the state has changed
--   reset     the reset under this limit
--   group     the last group with an operation on the key, and sum, the hits of this group on the key
--   failed    the reason, if the key could not be decided
--   unsaved   the reason, if the key could not be saved
return function(now, server, known_keys, runs, packed, limits, charge_checked, failures)

  local function key_at(i)
    local key = known_keys[i]
    if not key then
      key = { name = KEYS[i] }
      known_keys[i] = key
    end
    return key
  end

  local function state_of(key, limit)
    if not key.state then key.state = limit.module.load(key.name, limit, now) end
    return key.state
  end

  local function report(key, i, limit, allowed, retry)
    local used, reset = limit.module.usage(key.state, limit, now)
    if key.charged == limit then key.reset = reset end
    set_verdict(i, allowed and $ALLOWED or $DENIED, used, retry, reset)
  end

  -- Runs f for a run and its key. An error fails this key and the operations on it, and nothing else.
  local function guarded(f, key, run)
    if key.failed then return end
    local ok, problem = pcall(f, key, run)
    if not ok then key.failed = failures().text_of(problem) end
  end

  -- Decides the operations of a SAME_KEY run.
  local function decide_same_key(key, run)
    local limit, n, denied = run.limit, run.n, run.denied_n or run.n
    local s, fits = state_of(key, limit), limit.module.fits
    for i = run.first, run.last do
      local allowed, retry, charged = true, 0, false
      if n >= 0 then allowed, retry = fits(s, limit, now, n) end
      if n ~= 0 or not allowed then retry, charged = charge_checked(s, limit, n, denied, allowed, retry) end
      if charged then key.charged = limit end
      report(key, i, limit, allowed, retry)
    end
  end

  -- Checks an operation of a group together with the others of the group on its key.
  local function check_op(key, op)
    local s = state_of(key, op.limit)
    op.allowed, op.retry = true, 0
    if op.n >= 0 then op.allowed, op.retry = op.limit.module.fits(s, op.limit, now, key.sum) end
  end

  local function charge_op(key, op)
    if op.limit.module.charge(key.state, op.limit, now, op.n) then key.charged = op.limit end
  end

  local function report_op(key, op) report(key, op.first, op.limit, op.allowed, op.retry) end

  -- Decides a group, a list of operations. They are charged only if all of them are allowed.
  local function decide_group(group)
    local allowed, on = true, {}
    for i, op in ipairs(group) do
      local key = key_at(op.key_index)
      on[i] = key
      if key.group ~= group then key.group, key.sum = group, 0 end
      key.sum = math.min(key.sum + math.max(op.n, 0), $MAX_HITS)
    end
    for i, op in ipairs(group) do
      guarded(check_op, on[i], op)
      allowed = allowed and op.allowed and not on[i].failed
    end
    for i, op in ipairs(group) do
      local counts = op.n > 0 and not op.allowed and op.limit.counts_denied
      if allowed and op.n ~= 0 or counts then guarded(charge_op, on[i], op) end
      if allowed then guarded(report_op, on[i], op) end
    end
    if allowed then return end
    for i, op in ipairs(group) do
      if not op.allowed then
        guarded(check_op, on[i], op)
        op.allowed = false
      end
      guarded(report_op, on[i], op)
    end
  end

  -- Operation i of a RESERVATIONS run, as decide_extra.lua needs it.
  local function op_of(run, i)
    local at = run.ops_at + $RESERVATIONS_SIZE * (i - 1)
    local op_kind, id, key_index, limit_index, n, reservations_index = struct_unpack($RESERVATIONS_LAYOUT, packed, at)
    return {
      first = run.first + i - 1, op_kind = op_kind, id = id, key_index = key_index, limit = limits[limit_index], n = n, reservations_index = reservations_index,
    }
  end

  -- The functions by which the reservations of a limit change the state of its algorithm.
  local function settler_of(limit) return module_of('settle')[limit.module.name] end

  -- Decides a group with decide_extra.lua, whose functions are created once.
  local extra
  local function decide_extra(group)
    extra = extra or module_of('decide_extra')(now, server, {
      key_at = key_at, state_of = state_of, guarded = guarded, report = report, failures = failures, settler_of = settler_of,
    })
    extra(group)
  end

  -- The operations so far of a group that is not complete, and the function that decides it.
  local group, decide = {}, decide_group

  -- Decides a run. A group is decided when its last run is reached, the one before a run of another group or of none.
  local function decide_run(run, after)
    if run.kind == $EXTRA then
      decide = decide_extra
    elseif run.kind == $SAME_KEY then
      return guarded(decide_same_key, key_at(run.key_index), run)
    end
    group[#group + 1] = run
    if run.group_number == 0 or not after or after.group_number ~= run.group_number then
      decide(group)
      group, decide = {}, decide_group
    end
  end

  -- Saves the charged keys. Redis rejects that if it is full or a replica; then the operations that charged fail, and so does the
  -- rest of their group. Nothing of that group has been written, because Redis rejects the first write of a script or none. It returns whether
  -- all keys were decided and saved.
  local function save_keys()
    local complete = true
    for _, key in pairs(known_keys) do
      local limit, key_group = key.charged, key.group or {}
      if limit and not key.failed then
        if not key_group.unsaved then
          local ok, problem = pcall(limit.module.save, key.name, key.state, limit, key.reset, now, server)
          if not ok then key_group.unsaved = failures().text_of(problem) end
        end
        key.unsaved = key_group.unsaved
      end
      complete = complete and not key.failed and not key.unsaved
    end
    return complete
  end

  -- Reports operation i of a run as failed if its key or its penalty could not be decided or saved.
  local function report_failure(i, run)
    local key = known_keys[run.key_index]
    if not key then return end
    if key.failed then return failures().fail(i, key.failed) end
    local unsaved = key.unsaved or run.limit.penalty and known_keys[run.penalty_index].unsaved
    if not unsaved then return end
    if run.op_kind == $INSPECT then return failures().fail(i, unsaved) end
    failures().set_unsaved(i, key.name, run.limit, run.n, unsaved, run.penalty_index)
  end

  local function finish()
    if save_keys() then return end
    for _, run in ipairs(runs) do
      if run.kind == $RESERVATIONS then
        for i = 1, run.op_count do report_failure(run.first + i - 1, op_of(run, i)) end
      elseif run.kind == $SAME_KEY or run.kind == $GROUPED or run.kind == $EXTRA then
        for i = run.first, run.last do report_failure(i, run) end
      end
    end
  end

  return {
    key_at = key_at, report = report, settler_of = settler_of, decide_extra = decide_extra, op_of = op_of,
    decide_run = decide_run, finish = finish,
  }
end
