-- decide_shared: decides SAME_KEY, GROUPED and EXTRA runs, see batch.lua. Several operations share the state of a key, which is saved once,
-- after all runs. The fields of a key:
--   name      the key in Redis
--   state     its state, once it is loaded
--   charged   the limit under which the state has changed
--   reset     the reset under this limit
--   group     the last group with an operation on the key
--   sum       the hits that this group would charge to the key
--   opens     the leases that this group would open on the key, only in decide_extra.lua
--   offended  the last group with an offense on the key
--   failed    the reason, if the key could not be decided
--   unsaved   the reason, if the key could not be saved
-- An operation has its key and its limit, and first and last, as a run has them. Its other fields are those of its layout in wire.go, and
-- the result of its check: allowed, the wait retry, and in a group, the hits that were checked. A SAME_KEY run is itself its only operation.
local now, server, limits, packed, known_keys = env.now, env.server, env.limits, env.packed, env.known_keys
local charge_checked = env.charge_checked

local function key_at(i)
  local key = known_keys[i]
  if not key then
    key = { name = KEYS[i] }
    known_keys[i] = key
  end
  return key
end

-- Reads the operations of a GROUPED run.
local function read_grouped(run)
  local ops = { nil, nil }
  for i = 1, run.op_count do
    local key_index, limit_index, n = struct_unpack($GROUPED_LAYOUT, packed, run.ops_at + $GROUPED_SIZE * (i - 1))
    local verdict = run.first + i - 1
    ops[i] = { first = verdict, last = verdict, key = key_at(key_index), limit = limits[limit_index], n = n, allowed = true, retry = 0 }
  end
  return ops
end

-- Reads operation i of an EXTRA or RESERVATIONS run. Its first verdict is the one after last. An inspection has a second one, of a penalty.
local function read_extra(run, i, last)
  local op_kind, id, key_index, limit_index, n, reservations_index, penalty_index =
    struct_unpack($EXTRA_LAYOUT, packed, run.ops_at + $EXTRA_SIZE * (i - 1))
  return {
    first = last + 1, last = last + (op_kind == $INSPECT and penalty_index > 0 and 2 or 1), key = key_at(key_index),
    limit = limits[limit_index], n = n, op_kind = op_kind, id = id, reservations_index = reservations_index, penalty_index = penalty_index,
  }
end

local function state_of(key, limit)
  if not key.state then key.state = limit.algorithm.load(key.name, limit, now) end
  return key.state
end

local function report(key, i, limit, allowed, retry)
  local used, reset = limit.algorithm.usage(key.state, limit, now)
  if key.charged == limit then key.reset = reset end
  set_verdict(i, allowed and $ALLOWED or $DENIED, used, retry, reset)
end

-- Runs f for an operation and its key. An error fails this key and the operations on it, and nothing else.
local function guarded(f, op)
  local key = op.key
  if key.failed then return end
  local ok, problem = pcall(f, key, op)
  if not ok then key.failed = module_of('failures').text_of(problem) end
end

-- Decides the operations of a SAME_KEY run.
local function decide_same_key(key, run)
  local limit, n, denied_n = run.limit, run.n, run.denied_n
  local s, fits = state_of(key, limit), limit.algorithm.fits
  for i = run.first, run.last do
    local allowed, retry, charged = true, 0, false
    if n >= 0 then allowed, retry = fits(s, limit, now, n) end
    if n ~= 0 or not allowed then retry, charged = charge_checked(s, limit, n, denied_n, allowed, retry) end
    if charged then key.charged = limit end
    report(key, i, limit, allowed, retry)
  end
end

-- Checks an operation of a group together with the others of the group on its key.
local function check(key, op)
  local s = state_of(key, op.limit)
  op.checked = key.sum
  if op.n >= 0 then op.allowed, op.retry = op.limit.algorithm.fits(s, op.limit, now, key.sum) end
end

local function charge(key, op)
  if op.limit.algorithm.charge(key.state, op.limit, now, op.n) then key.charged = op.limit end
end

local function report_decided(key, op) report(key, op.first, op.limit, op.allowed, op.retry) end

-- Decides a group. Its operations are charged only if all of them are allowed.
local function decide_group(group)
  local allowed = true
  for _, op in ipairs(group) do
    local key = op.key
    if key.group ~= group then key.group, key.sum = group, 0 end
    key.sum = math.min(key.sum + math.max(op.n, 0), $MAX_HITS)
  end
  for _, op in ipairs(group) do
    guarded(check, op)
    allowed = allowed and op.allowed and not op.key.failed
  end
  for _, op in ipairs(group) do
    local counts = op.n > 0 and not op.allowed and op.limit.counts_denied
    if allowed and op.n ~= 0 or counts then guarded(charge, op) end
    if allowed then guarded(report_decided, op) end
  end
  if allowed then return end
  for _, op in ipairs(group) do
    if not op.allowed then
      guarded(check, op) -- again, because the wait includes the denied hits that were just counted
      op.allowed = false
    end
    guarded(report_decided, op)
  end
end

-- The functions by which the reservations of a limit change the state of its algorithm.
local function settler_of(limit) return module_of('settle')[limit.algorithm.name] end

-- Decides a run, and returns the index of its last verdict.
local function decide(run)
  if run.kind == $SAME_KEY then
    run.key = key_at(run.key_index)
    guarded(decide_same_key, run)
    return run.last
  end
  if run.kind == $GROUPED then
    run.ops = read_grouped(run)
    decide_group(run.ops)
    return run.first - 1 + run.op_count
  end
  local group, last = { nil }, run.first - 1
  for i = 1, run.op_count do
    group[i] = read_extra(run, i, last)
    last = group[i].last
  end
  run.ops = group
  module_of('decide_extra', env)(group)
  return last
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
        local ok, problem = pcall(limit.algorithm.save, key.name, key.state, limit, key.reset, now, server)
        if not ok then key_group.unsaved = module_of('failures').text_of(problem) end
      end
      key.unsaved = key_group.unsaved
    end
    complete = complete and not key.failed and not key.unsaved
  end
  return complete
end

-- Corrects verdict i of an operation if its key or its penalty could not be decided or saved.
local function report_failure(i, op)
  local key = op.key
  if key.failed then return module_of('failures').fail(i, key.failed) end
  local unsaved = key.unsaved or op.limit.penalty and known_keys[op.penalty_index].unsaved
  if not unsaved then return end
  if op.op_kind == $INSPECT then return module_of('failures').fail(i, unsaved) end
  module_of('failures').report_unsaved(i, key.name, op.limit, now, op.checked or op.n, unsaved, op.penalty_index)
end

local function finish()
  if save_keys() then return end
  for _, run in ipairs(env.runs) do
    local ops = run.ops or {}
    if run.kind == $SAME_KEY then
      ops[1] = run
    elseif run.kind == $RESERVATIONS then
      for i = 1, run.op_count do ops[i] = read_extra(run, i, run.first + i - 2) end
    end
    for _, op in ipairs(ops) do
      for i = op.first, op.last do report_failure(i, op) end
    end
  end
end

return {
  key_at = key_at, state_of = state_of, guarded = guarded, report = report, settler_of = settler_of, read_extra = read_extra,
  decide = decide, finish = finish,
}
