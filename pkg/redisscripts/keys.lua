-- keys: the keys whose states are kept in memory, because several operations may use them. Each is loaded once, and saved once, after all
-- runs. The index of a key in loaded_keys is its index in KEYS. The fields of a key:
--   name      the key in Redis
--   state     its state, once it is loaded
--   charged   the limit under which the state has changed
--   reset     the reset under this limit
--   group     the last group with an operation on the key
--   sum       the hits that this group would charge to the key
--   opens     the leases that this group would open on the key, only in decide_extra.lua
--   new_ids   a set of the ids of these leases; nil if there are none
--   offended  the last group with an offense on the key
--   failed    the reason, if the key could not be decided
--   unsaved   the reason, if the key could not be saved
-- An operation has its key and its limit, and first and last, as a run has them. Its other fields are those of its layout in wire.go, and
-- the result of its check: allowed and the wait retry. In a group, checked is the hits that were checked. A SAME_KEY run acts as its
-- own operation, because all its operations are equal.
local now, server, loaded_keys = env.now, env.server, env.loaded_keys

-- Returns the key with an index in KEYS.
local function at(index)
  local key = loaded_keys[index]
  if not key then
    key = { name = KEYS[index] }
    loaded_keys[index] = key
  end
  return key
end

-- Returns the state of a key, and loads it before the first operation.
local function state_of(key, limit)
  if not key.state then key.state = limit.algorithm.load(key.name, limit, now) end
  return key.state
end

-- Sets verdict i, of a decided operation, from the usage of its key.
local function report(key, i, limit, allowed, retry)
  local used, reset = limit.algorithm.usage(key.state, limit, now)
  if key.charged == limit then key.reset = reset end
  set_verdict(i, allowed and $ALLOWED or $DENIED, used, retry, reset)
end

-- Runs f for an operation and its key. An error fails this key and the operations on it. If their group is being charged, none of its charged
-- keys is saved; otherwise nothing else fails.
local function guarded(f, op)
  local key = op.key
  if key.failed then return end
  local ok, problem = pcall(f, key, op)
  if ok then return end
  key.failed = module_of('failures').text_of(problem)
  if key.group and key.group.charging then key.group.unsaved = key.failed end
end

-- Saves the charged keys. It returns whether all keys were decided and saved. A replica rejects every write. A full Redis rejects those
-- that need memory, until a write of the script has succeeded. So nothing has been written before the first rejection, and no key of a
-- group is saved after it. The operations that charged such keys fail.
local function save()
  local complete, rejected = true, nil
  for _, key in pairs(loaded_keys) do
    local limit, unsaved = key.charged, key.group and (key.group.unsaved or rejected)
    if limit and not key.failed then
      if not unsaved then
        local ok, problem = pcall(limit.algorithm.save, key.name, key.state, limit, key.reset, now, server)
        if not ok then
          unsaved = module_of('failures').text_of(problem)
          rejected = rejected or unsaved
        end
      end
      key.unsaved = unsaved
    end
    complete = complete and not key.failed and not key.unsaved
  end
  return complete
end

return { at = at, state_of = state_of, report = report, guarded = guarded, save = save }
