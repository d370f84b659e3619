-- decide_shared: decides SAME_KEY, GROUPED and EXTRA runs, see batch.lua. Several operations share the state of a key, which is saved once,
-- after all runs. batch.lua lists the fields of runs and keys.
local now, server, known_keys, failures, charge_checked = batch.now, batch.server, batch.known_keys, batch.failures, batch.charge_checked

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
  local limit, n, denied_n = run.limit, run.n, run.denied_n
  local s, fits = state_of(key, limit), limit.module.fits
  for i = run.first, run.last do
    local allowed, retry, charged = true, 0, false
    if n >= 0 then allowed, retry = fits(s, limit, now, n) end
    if n ~= 0 or not allowed then retry, charged = charge_checked(s, limit, n, denied_n, allowed, retry) end
    if charged then key.charged = limit end
    report(key, i, limit, allowed, retry)
  end
end

-- Checks a run of a group together with the others of the group on its key.
local function check(key, run)
  local s = state_of(key, run.limit)
  run.allowed, run.retry = true, 0
  if run.n >= 0 then run.allowed, run.retry = run.limit.module.fits(s, run.limit, now, key.sum) end
end

local function charge(key, run)
  if run.limit.module.charge(key.state, run.limit, now, run.n) then key.charged = run.limit end
end

local function report_decided(key, run) report(key, run.first, run.limit, run.allowed, run.retry) end

-- Decides a group. Its runs are charged only if all of them are allowed.
local function decide_group(group)
  local allowed, keys = true, {}
  for i, run in ipairs(group) do
    local key = key_at(run.key_index)
    keys[i] = key
    if key.group ~= group then key.group, key.sum = group, 0 end
    key.sum = math.min(key.sum + math.max(run.n, 0), $MAX_HITS)
  end
  for i, run in ipairs(group) do
    guarded(check, keys[i], run)
    allowed = allowed and run.allowed and not keys[i].failed
  end
  for i, run in ipairs(group) do
    local counts = run.n > 0 and not run.allowed and run.limit.counts_denied
    if allowed and run.n ~= 0 or counts then guarded(charge, keys[i], run) end
    if allowed then guarded(report_decided, keys[i], run) end
  end
  if allowed then return end
  for i, run in ipairs(group) do
    if not run.allowed then
      guarded(check, keys[i], run) -- again, because the wait includes the denied hits that were just counted
      run.allowed = false
    end
    guarded(report_decided, keys[i], run)
  end
end

-- An operation of a RESERVATIONS run as an EXTRA run.
local function as_extra_run(run, op_index)
  local from = run.ops_at + $RESERVATIONS_SIZE * (op_index - 1)
  local op_kind, id, key_index, limit_index, n, reservations_index = struct_unpack($RESERVATIONS_LAYOUT, batch.packed, from)
  return {
    first = run.first + op_index - 1, key_index = key_index, limit = batch.limits[limit_index], n = n,
    op_kind = op_kind, id = id, reservations_index = reservations_index,
  }
end

-- The functions by which the reservations of a limit change the state of its algorithm.
local function settler_of(limit) return module_of('settle')[limit.module.name] end

-- The runs so far of a group that is not complete, and whether one of them is an EXTRA run.
local group, has_extra = {}, false

-- Decides a run. next_run is the run after it, or nil. A group is decided at its last run.
local function decide_run(run, next_run)
  if run.kind == $SAME_KEY then return guarded(decide_same_key, key_at(run.key_index), run) end
  group[#group + 1], has_extra = run, has_extra or run.kind == $EXTRA
  if run.group_number == 0 or not next_run or next_run.group_number ~= run.group_number then
    local decide = has_extra and module_of('decide_extra', batch) or decide_group
    decide(group)
    group, has_extra = {}, false
  end
end

-- Saves the charged keys. It returns whether all keys were decided and saved. A full Redis or a replica rejects the writes. Then the
-- operations that charged fail, and so does the rest of their group. Nothing of that group has been written, because Redis rejects the
-- first write of a script or none.
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

-- Corrects verdict i of a run if the key of the run or its penalty could not be decided or saved.
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
  for _, run in ipairs(batch.runs) do
    if run.kind == $RESERVATIONS then
      for op_index = 1, run.op_count do report_failure(run.first + op_index - 1, as_extra_run(run, op_index)) end
    elseif run.kind == $SAME_KEY or run.kind == $GROUPED or run.kind == $EXTRA then
      for i = run.first, run.last do report_failure(i, run) end
    end
  end
end

return {
  key_at = key_at, state_of = state_of, guarded = guarded, report = report, settler_of = settler_of, as_extra_run = as_extra_run,
  decide_run = decide_run, finish = finish,
}
