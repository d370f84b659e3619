-- failures: reports operations that failed, and those whose key could not be saved.
local M = { texts = 0, is_replica = false, text_of = 0, fail = 0, report_unsaved = 0, report_keys = 0 }

-- The reasons of failed operations.
M.texts = { nil }

-- Returns the text of an error. It notes whether this is a replica, which rejects all writes.
function M.text_of(problem)
  local text = type(problem) == 'table' and problem.err or tostring(problem)
  M.is_replica = M.is_replica or string.find(text, 'READONLY', 1, true) ~= nil
  return text
end

-- Makes verdict i the failure of its operation.
function M.fail(i, problem)
  local texts = M.texts
  texts[#texts + 1] = M.text_of(problem)
  set_verdict(i, $FAILED, #texts, 0, 0)
end

-- Denies n hits again, using the usage in Redis, and sets verdict i. It raises problem if the hits fit this usage.
local function deny(i, key, limit, now, n, problem, penalty_index)
  local s, time_left, penalty = limit.algorithm.load(key, limit, now), 0, limit.penalty
  local allowed, retry = limit.algorithm.fits(s, limit, now, n)
  if penalty then time_left = penalty.algorithm.time_left(penalty.algorithm.load(KEYS[penalty_index]), penalty, now) end
  if allowed and time_left == 0 then error(problem, 0) end
  local used, reset = limit.algorithm.usage(s, limit, now)
  set_verdict(i, $DENIED, used, retry, reset)
  if time_left > 0 then penalty.algorithm.add_to_denial(i, time_left) end
end

-- Corrects verdict i of an operation whose key could not be saved. n is the hits that were checked: in a group, the sum on the key. A
-- denial stays a denial even if it could not be counted. The verdict then reports the usage that Redis still has, because the caller's
-- deny cache stores the reported usage. But if the hits fit this usage, they were denied only because of charges that are now lost, so
-- the operation fails.
function M.report_unsaved(i, key, limit, now, n, problem, penalty_index)
  local result = verdict_of(i) % $DURING_PENALTY
  if result == $TOO_MANY_LEASES then return end
  problem = M.text_of(problem)
  local denied = result == $DENIED or result == $PENALIZED or result == $PENALTY_BEGAN
  if denied then denied, problem = pcall(deny, i, key, limit, now, n, problem, penalty_index) end
  if not denied then M.fail(i, problem) end
end

-- Corrects verdict i of an operation if its key or its penalty could not be decided or saved.
local function report_key(env, i, op)
  local key = op.key
  if key.failed then return M.fail(i, key.failed) end
  local unsaved = key.unsaved or op.limit.penalty and env.loaded_keys[op.penalty_index].unsaved
  if not unsaved then return end
  if op.op_kind == $INSPECT then return M.fail(i, unsaved) end
  M.report_unsaved(i, key.name, op.limit, env.now, op.checked or op.n, unsaved, op.penalty_index)
end

-- Corrects the verdicts of the operations whose keys or penalties could not be decided or saved. env is that of the deciders.
function M.report_keys(env)
  for _, run in ipairs(env.runs) do
    local ops = run.ops or {}
    if run.kind == $SAME_KEY then
      ops[1] = run
    elseif run.kind == $RESERVATIONS then
      for i = 1, run.op_count do ops[i] = module_of('decide_extra', env).read_op(run, i, run.first + i - 2) end
    end
    for _, op in ipairs(ops) do
      for i = op.first, op.last do report_key(env, i, op) end
    end
  end
end

return M
