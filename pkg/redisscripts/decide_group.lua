-- decide_group: decides GROUPED runs, see batch.lua. Each is a group of which no limit has extra state.
local now, limits, packed, keys = env.now, env.limits, env.packed, module_of('keys', env)

-- Reads the operations of a run.
local function read(run)
  local ops = { nil, nil }
  for i = 1, run.op_count do
    local key_index, limit_index, n = struct_unpack($GROUPED_LAYOUT, packed, run.ops_at + $GROUPED_SIZE * (i - 1))
    local verdict = run.first + i - 1
    ops[i] = { first = verdict, last = verdict, key = keys.at(key_index), limit = limits[limit_index], n = n, allowed = true, retry = 0 }
  end
  return ops
end

-- Checks an operation of a group together with the others of the group on its key.
local function check(key, op)
  local s = keys.state_of(key, op.limit)
  op.checked = key.sum
  if op.n >= 0 then op.allowed, op.retry = op.limit.algorithm.fits(s, op.limit, now, key.sum) end
end

local function charge(key, op)
  if op.limit.algorithm.charge(key.state, op.limit, now, op.n) then key.charged = op.limit end
end

local function report_decided(key, op) keys.report(key, op.first, op.limit, op.allowed, op.retry) end

-- Decides a run. Its operations are charged only if all of them are allowed.
return function(run)
  local group, allowed = read(run), true
  run.ops = group
  for _, op in ipairs(group) do
    local key = op.key
    if key.group ~= group then key.group, key.sum = group, 0 end
    key.sum = math.min(key.sum + math.max(op.n, 0), $MAX_HITS)
  end
  for _, op in ipairs(group) do
    keys.guarded(check, op)
    allowed = allowed and op.allowed and not op.key.failed
  end
  group.charging = allowed
  for _, op in ipairs(group) do
    local counts = op.n > 0 and not op.allowed and op.limit.counts_denied
    if allowed and op.n ~= 0 or counts then keys.guarded(charge, op) end
    if allowed then keys.guarded(report_decided, op) end
  end
  if allowed then return end
  for _, op in ipairs(group) do
    if not op.allowed then
      keys.guarded(check, op) -- again, because the wait includes the denied hits that were just counted
      op.allowed = false
    end
    keys.guarded(report_decided, op)
  end
end
