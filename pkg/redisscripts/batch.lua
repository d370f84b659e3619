-- batch: the driver. It decides a batch of hits in order, all at one now. Each key is read once and written once. It is the
-- twin of limiters.Decide.
--
-- The driver knows no algorithm. algorithm_of, which is defined before it, returns the functions of an algorithm by name:
-- limit, load, fits, charge, usage, save and quick.
--
-- quick handles the most frequent case in one function: hits that fit in a state that
-- exists. It charges and saves them and returns used and reset; in any other case it does nothing.
--
-- KEYS    the keys, each once
-- ARGV[1] 16 bytes: now, 0 = this server's TIME; not_after in this server's TIME, 0 = none. A call after not_after charges
--         nothing.
-- ARGV[2] and on: the limits. Each is "<algorithm>\0" and numbers, see the header of <algorithm>.lua.
-- ARGV[#] the hits, in runs of 17 bytes. The fields of a run:
--           number of hits, 2 bytes
--           index of the first key, from 1, 2 bytes
--           kind, 1 byte: 0 all hits are on this key; 1 each hit is on the next key; 2 as 1, and each hit is alone on its
--           key and in no group; 3 as 2, and each hit has its own limit and n
--           index of the limit, from 1, 2 bytes
--           number of the group, 2 bytes; 0 = none
--           n, signed, 8 bytes; above MAX_HITS it is a peek: n - MAX_HITS hits were denied elsewhere, and are counted if
--           the peek is denied too
--         A run of kind 3 is followed by limit and n of each hit, 10 bytes.
-- units   times in µs since 1970, durations in µs
-- reply   1: this server's time, 8 bytes, then 25 bytes for each hit: result (0 = denied, 1 = allowed, 2 = failed), used,
--         retry (-1 = never), reset. Of a failed hit, used is the index of its reason. No hits: the call ran after not_after.
--         2 and on: the reasons
local now, not_after = unpacked('>I8I8', ARGV[1])
local time = call('TIME')
local server = time[1] * 1000000 + time[2]
if not_after > 0 and server > not_after then return { pack('>I8', server) } end
-- The caller's clock may stand still or differ from this server's, which expires the keys: keep them for an hour at least.
if now == 0 then now = server else soonest = 3600000 end

local modules, limits = {}, {}
for i = 2, #ARGV - 1 do
  local name, at = unpacked('s', ARGV[i])
  local algorithm = modules[name] or algorithm_of(name)
  local limit = algorithm.limit(ARGV[i], at)
  limit.algorithm, limit.counts_denied = algorithm, limit.count_denied and limit.max > 0
  modules[name], limits[i - 1] = algorithm, limit
end

-- The runs of hits, and the hits of each group by its number.
local runs, groups, count = {}, nil, 0
local text = ARGV[#ARGV]
do
  local at = 1
  while at <= #text do
    local times, key, kind, limit, group, n
    times, key, kind, limit, group, n, at = unpacked('>I2I2I1I2I2i8', text, at)
    local first, step = count + 1, math.min(kind, 1)
    limit = limits[limit]
    local run = { first = first, times = times, key = key, step = step, kind = kind, limit = limit, group = group, n = n }
    runs[#runs + 1] = run
    if group > 0 then
      groups = groups or {}
      local members = groups[group] or {}
      groups[group] = members
      for t = 0, times - 1 do members[#members + 1] = { i = first + t, key = key + t * step, limit = limit, n = n } end
    end
    if kind == 3 then run.each, at = at, at + 10 * times end
    count = count + times
  end
end

-- Whether this is a replica, which rejects all writes.
local is_replica = false

local function text_of(problem)
  local text = type(problem) == 'table' and problem.err or tostring(problem)
  is_replica = is_replica or string.find(text, 'READONLY', 1, true) ~= nil
  return text
end

-- verdicts has four numbers for each hit. reply has the reasons of failed hits from its second element on.
local verdicts, reply = {}, { '' }

local function set_verdict(i, result, used, retry, reset)
  i = 4 * i
  verdicts[i - 3], verdicts[i - 2], verdicts[i - 1], verdicts[i] = result, used, retry, reset
end

local function fail(i, problem)
  reply[#reply + 1] = text_of(problem)
  set_verdict(i, 2, #reply - 1, 0, 0)
end

-- The hit of a run that decide_alone decides now, from 1. If it raises an error, the caller continues after this hit.
local at

-- Decides the hits of a run from at to a last one. Each hit is alone on its key, which is saved at once. values[i] is the
-- value of the key of hit from + i, or an error. A false value means that the key is absent if values.absent
-- is false, and otherwise that the value is unknown.
local function decide_alone(run, to, values, from)
  local next_limit, n, each = run.limit, run.n, run.each
  local limit, algorithm, load, fits, charge, usage, save, quick
  local first, offset, keys, out, s = run.first, run.key - 1, KEYS, verdicts
  while at <= to do
    if each then
      next_limit, n = unpacked('>I2i8', text, each + 10 * (at - 1))
      next_limit = limits[next_limit]
    end
    if next_limit ~= limit then
      limit = next_limit
      if limit.algorithm ~= algorithm then
        algorithm, s = limit.algorithm, nil
        load, fits, charge, usage, save = algorithm.load, algorithm.fits, algorithm.charge, algorithm.usage, algorithm.save
        quick = algorithm.quick
      end
    end
    local key, value, result, retry, used, reset = keys[offset + at], values[at - from], 1, 0
    if not value then value = values.absent end
    if value and n > 0 then used, reset = quick(key, limit, now, value, n, server) end
    if not used then
      local hits, counted = n, n
      if n > MAX_HITS then hits, counted = 0, n - MAX_HITS end
      s = load(key, limit, now, value, s)
      local allowed, charges = true, false
      if hits >= 0 then allowed, retry = fits(s, limit, now, hits) end
      if allowed then
        if hits ~= 0 then charges = charge(s, limit, now, hits) end
      elseif counted > 0 and limit.counts_denied then
        charges = charge(s, limit, now, counted)
        local _
        _, retry = fits(s, limit, now, hits)
      end
      used, reset = usage(s, limit, now)
      if not allowed then result = 0 end
      if charges then
        if allowed then
          save(key, s, limit, reset, now, server)
        else
          -- A denial is valid even if it could not be counted. Then the verdict reports the key's usage without it, because
          -- the caller's deny cache takes it for the usage in Redis.
          local ok, problem = pcall(save, key, s, limit, reset, now, server)
          if not ok then
            text_of(problem)
            s = load(key, limit, now, value)
            local _
            _, retry = fits(s, limit, now, hits)
            used, reset = usage(s, limit, now)
          end
        end
      end
    end
    local i = 4 * (first + at)
    out[i - 7], out[i - 6], out[i - 5], out[i - 4] = result, used, retry, reset
    at = at + 1
  end
end

-- sharing returns two functions for hits that share a key or are in a group: one decides a run, the other saves all keys at
-- the end. It is called only if there are such hits, because creating a closure costs time in Lua.
local function sharing()
  -- By key: its state, the limit that it was charged under, its reset, the reason why it failed, and the last group with a
  -- hit on it.
  local states, charged, resets, failed, group_of = {}, {}, {}, {}, {}

  local function state_of(key, limit)
    local s = states[key]
    if not s then
      s = limit.algorithm.load(KEYS[key], limit, now)
      states[key] = s
    end
    return s
  end

  local function check_and_charge(s, limit, n)
    local algorithm, allowed, retry, charges, counted = limit.algorithm, true, 0, false, n
    if n > MAX_HITS then n, counted = 0, n - MAX_HITS end
    if n >= 0 then allowed, retry = algorithm.fits(s, limit, now, n) end
    if allowed then
      if n ~= 0 then charges = algorithm.charge(s, limit, now, n) end
    elseif counted > 0 and limit.counts_denied then
      charges = algorithm.charge(s, limit, now, counted)
      -- The wait includes the hits that were just counted.
      local _
      _, retry = algorithm.fits(s, limit, now, n)
    end
    return allowed, retry, charges
  end

  local function report(i, key, s, limit, allowed, retry)
    local used, reset = limit.algorithm.usage(s, limit, now)
    if charged[key] == limit then resets[key] = reset end
    set_verdict(i, allowed and 1 or 0, used, retry, reset)
  end

  local function decide(key, i, limit, n)
    local s = state_of(key, limit)
    local allowed, retry, charges = check_and_charge(s, limit, n)
    if charges then charged[key] = limit end
    report(i, key, s, limit, allowed, retry)
  end

  -- Runs f for a key. An error fails this key and the hits on it, and nothing else.
  local function guarded(key, f, ...)
    if failed[key] then return end
    local ok, problem = pcall(f, key, ...)
    if not ok then failed[key] = text_of(problem) end
  end

  -- Decides a group: its hits are charged only if all of them are allowed.
  local function decide_group(group)
    local function check(key, hit, sum)
      local s = state_of(key, hit.limit)
      hit.allowed, hit.retry = true, 0
      if hit.n >= 0 then hit.allowed, hit.retry = hit.limit.algorithm.fits(s, hit.limit, now, sum) end
    end
    local function charge(key, hit)
      if hit.limit.algorithm.charge(states[key], hit.limit, now, hit.n) then charged[key] = hit.limit end
    end
    local function report_hit(key, hit) report(hit.i, key, states[key], hit.limit, hit.allowed, hit.retry) end
    local function counts(hit) return hit.n > 0 and not hit.allowed and hit.limit.counts_denied end

    local all, sums = true, {}
    for _, hit in ipairs(group) do
      sums[hit.key] = math.min((sums[hit.key] or 0) + math.max(hit.n, 0), MAX_HITS)
      group_of[hit.key] = group
    end
    for _, hit in ipairs(group) do
      guarded(hit.key, check, hit, sums[hit.key])
      all = all and hit.allowed and not failed[hit.key]
    end
    for _, hit in ipairs(group) do
      if all and hit.n ~= 0 or counts(hit) then guarded(hit.key, charge, hit) end
      if all then guarded(hit.key, report_hit, hit) end
    end
    if all then return end
    for _, hit in ipairs(group) do
      if not hit.allowed then
        guarded(hit.key, check, hit, sums[hit.key])
        hit.allowed = false
      end
      guarded(hit.key, report_hit, hit)
    end
  end

  local function decide_run(run)
    local key = run.key
    if run.group == 0 then
      for i = run.first, run.first + run.times - 1 do
        guarded(key, decide, i, run.limit, run.n)
        key = key + run.step
      end
    elseif groups[run.group] then
      decide_group(groups[run.group])
      groups[run.group] = nil
    end
  end

  -- Sets the verdict of a denied hit on a key that could not be saved, from the key's usage in Redis. If the hit fits there, it
  -- was denied because of hits that were not charged, which is an error.
  local function deny_unsaved(key, i, limit, n, unsaved)
    local s = limit.algorithm.load(KEYS[key], limit, now)
    if n > MAX_HITS then n = 0 end
    local allowed, retry = limit.algorithm.fits(s, limit, now, n)
    if allowed then error(unsaved, 0) end
    local used, reset = limit.algorithm.usage(s, limit, now)
    set_verdict(i, 0, used, retry, reset)
  end

  -- Saves the charged keys. Redis rejects that if it is full or a replica; then the charged hits fail, and so does the rest of
  -- their group. Nothing of that group has been written, because Redis rejects only the first write of a script.
  local function finish()
    local unsaved = {}
    for key, limit in pairs(charged) do
      local group = group_of[key]
      if failed[key] then
        -- the key keeps its value
      elseif group and group.unsaved then
        unsaved[key] = group.unsaved
      else
        local ok, problem = pcall(limit.algorithm.save, KEYS[key], states[key], limit, resets[key], now, server)
        if not ok then
          unsaved[key] = text_of(problem)
          if group then group.unsaved = unsaved[key] end
        end
      end
    end
    if not next(failed) and not next(unsaved) then return end
    for _, run in ipairs(runs) do
      for t = 0, run.times - 1 do
        local key, i = run.key + t * run.step, run.first + t
        local problem = failed[key] or unsaved[key]
        if unsaved[key] and not failed[key] and verdicts[4 * i - 3] == 0 then
          -- A denial is valid even if it could not be counted.
          local ok
          ok, problem = pcall(deny_unsaved, key, i, run.limit, run.n, problem)
          if ok then problem = nil end
        end
        if problem then fail(i, problem) end
      end
    end
  end

  return decide_run, finish
end

local decide_run, finish
for _, run in ipairs(runs) do
  if run.kind >= 2 then
    local key = run.key
    -- MGET costs a third of a GET for each key. It returns nothing for keys that are absent or no strings, and an error if an
    -- ACL forbids it; load reads such keys with GET.
    for from = 0, run.times - 1, 256 do
      local to, values = math.min(from + 256, run.times), {}
      if to - from > 1 then
        values = redis.pcall('MGET', unpack(KEYS, key + from, key + to - 1))
      else
        values = { redis.pcall('GET', KEYS[key + from]), absent = false }
      end
      at = from + 1
      while at <= to do
        local ok, problem = pcall(decide_alone, run, to, values, from)
        if not ok then
          fail(run.first + at - 1, problem)
          at = at + 1
        end
      end
    end
  else
    if not finish then decide_run, finish = sharing() end
    decide_run(run)
  end
end
if finish then finish() end

-- Clients leave a server that is no longer the master if the reply is an error.
if is_replica then return redis.error_reply('READONLY a read only replica') end

-- Many verdicts are packed at a time. A string for each would cost more than its numbers.
local most, numbers = 4 * PACKED, 4 * count
local to = math.min(numbers, most)
reply[1] = pack(string.sub(FORMAT, 1, 3 + 2 * to), server, unpack(verdicts, 1, to))
if numbers > most then
  local parts = { reply[1] }
  for from = most + 1, numbers, most do
    to = math.min(from + most - 1, numbers)
    parts[#parts + 1] = pack('>' .. string.sub(FORMAT, 4, 3 + 2 * (to - from + 1)), unpack(verdicts, from, to))
  end
  reply[1] = table.concat(parts)
end
return reply
