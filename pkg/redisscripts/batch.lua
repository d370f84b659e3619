-- batch: the driver. It decides many hits at one now, in order, each key's state read once and written once. It is the
-- twin of limiters.Decide, and knows no algorithm: algorithm_of, which stands before it, makes what one does by its name:
-- limit, load, judge, charge, usage and save. Besides, for what happens nearly always, quick: hits of which there is one at
-- least, on a key that holds something, are allowed, charged and saved, and it returns used and reset; or it does nothing.
--
-- KEYS    the keys, each once
-- ARGV[1] 16 bytes: now, 0 = this server's TIME; and not_after, by this server's TIME, 0 = none: a call that comes to run
--         later charges nothing
-- ARGV[2] and on: the limits, "<algorithm>\0" and its numbers, as the header of <algorithm>.lua names them
-- ARGV[#] the hits, in runs of 17 bytes: how many; the key of the first, from 1; 0 if all are of this key, 1 if each is of
--         the next, 2 if also these have no other hits, and no group, 3 if besides each has a limit and an n of its own;
--         their limit, from 1; their group, 0 = none; and n, with its sign, or past MAX_HITS: a look, and by how much, so many
--         hits were denied elsewhere, to be counted if it is denied too. After a run of 3: limit and n of each, 10 bytes
-- units   times in µs since 1970, durations in µs
-- reply   1: this server's time, 8 bytes, and 25 for each hit: 0 = denied, 1 = allowed, 2 = failed; used, or of a failed
--         one which of the texts that follow says why; retry (-1 = never); reset. No hits: it was too late
--         2 and on: the texts
local now, not_after = unpacked('>I8I8', ARGV[1])
local time = call('TIME')
local server = time[1] * 1000000 + time[2]
if not_after > 0 and server > not_after then return { pack('>I8', server) } end
-- A clock of the caller's may stand still, or be far from this server's, which frees the keys.
if now == 0 then now = server else soonest = 3600000 end

local modules, limits = {}, {}
for i = 2, #ARGV - 1 do
  local name, at = unpacked('s', ARGV[i])
  local algorithm = modules[name] or algorithm_of(name)
  local limit = algorithm.limit(ARGV[i], at)
  limit.algorithm, limit.counts_denied = algorithm, limit.count_denied and limit.max > 0
  modules[name], limits[i - 1] = algorithm, limit
end

-- The runs of hits, and by the number of its group each hit that has one.
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
      local those = groups[group] or {}
      groups[group] = those
      for t = 0, times - 1 do those[#those + 1] = { i = first + t, key = key + t * step, limit = limit, n = n } end
    end
    if kind == 3 then run.each, at = at, at + 10 * times end
    count = count + times
  end
end

-- Whether this is a replica: then nothing was written, and nothing will be.
local is_replica = false

local function text_of(problem)
  local text = type(problem) == 'table' and problem.err or tostring(problem)
  is_replica = is_replica or string.find(text, 'READONLY', 1, true) ~= nil
  return text
end

-- The answers, four numbers for each hit; and the reply, which has why hits failed after the first.
local told, reply = {}, { '' }

local function answer(i, what, used, retry, reset)
  i = 4 * i
  told[i - 3], told[i - 2], told[i - 1], told[i] = what, used, retry, reset
end

local function fail(i, problem)
  reply[#reply + 1] = text_of(problem)
  answer(i, 2, #reply - 1, 0, 0)
end

-- Which hit of a run decide_alone is at, from 1: those before it are decided.
local at

-- Decides hits of a run that are the only ones on their keys, from at to another, and saves each key at once. values are what
-- the keys after from hold, where that is known, or why it is not to be known; values.absent is false if those that are not
-- there are known, too.
local function decide_alone(run, to, values, from)
  local its, n, each = run.limit, run.n, run.each
  local limit, algorithm, load, judge, charge, usage, save, quick
  local first, place, keys, answers, s = run.first, run.key - 1, KEYS, told
  while at <= to do
    if each then
      its, n = unpacked('>I2i8', text, each + 10 * (at - 1))
      its = limits[its]
    end
    if its ~= limit then
      limit = its
      if limit.algorithm ~= algorithm then
        algorithm, s = limit.algorithm, nil
        load, judge, charge, usage, save = algorithm.load, algorithm.judge, algorithm.charge, algorithm.usage, algorithm.save
        quick = algorithm.quick
      end
    end
    local key, value, what, retry, used, reset = keys[place + at], values[at - from], 1, 0
    if not value then value = values.absent end
    if value and n > 0 then used, reset = quick(key, limit, now, value, n, server) end
    if not used then
      local hits, counted = n, n
      if n > MAX_HITS then hits, counted = 0, n - MAX_HITS end
      s = load(key, limit, now, value, s)
      local allowed, charges = true, false
      if hits >= 0 then allowed, retry = judge(s, limit, now, hits) end
      if allowed then
        if hits ~= 0 then charges = charge(s, limit, now, hits) end
      elseif counted > 0 and limit.counts_denied then
        charges = charge(s, limit, now, counted)
        local _
        _, retry = judge(s, limit, now, hits)
      end
      used, reset = usage(s, limit, now)
      if not allowed then what = 0 end
      if charges then
        if allowed then
          save(key, s, limit, reset, now, server)
        else
          -- A denial stands whether or not it could be counted. If not, the answer is what the key holds without it: a client's
          -- deny cache takes it for what Redis holds.
          local ok, problem = pcall(save, key, s, limit, reset, now, server)
          if not ok then
            text_of(problem)
            s = load(key, limit, now, value)
            local _
            _, retry = judge(s, limit, now, hits)
            used, reset = usage(s, limit, now)
          end
        end
      end
    end
    local i = 4 * (first + at)
    answers[i - 7], answers[i - 6], answers[i - 5], answers[i - 4] = what, used, retry, reset
    at = at + 1
  end
end

-- sharing makes what decides the hits that share a key or are of a group, run by run, and what saves their keys in the end. It
-- is made where there are such: in Lua a function costs something by being there.
local function sharing()
  -- What is known of each key: its state, the limit it was charged under and when it is as good as new, why it failed, and the
  -- group it is charged with.
  local states, charged, resets, failed, ties = {}, {}, {}, {}, {}

  local function state_of(key, limit)
    local s = states[key]
    if not s then
      s = limit.algorithm.load(KEYS[key], limit, now)
      states[key] = s
    end
    return s
  end

  local function judge_and_charge(s, limit, n)
    local algorithm, allowed, retry, charges, counted = limit.algorithm, true, 0, false, n
    if n > MAX_HITS then n, counted = 0, n - MAX_HITS end
    if n >= 0 then allowed, retry = algorithm.judge(s, limit, now, n) end
    if allowed then
      if n ~= 0 then charges = algorithm.charge(s, limit, now, n) end
    elseif counted > 0 and limit.counts_denied then
      charges = algorithm.charge(s, limit, now, counted)
      -- Who waits as long as told gets in, with what the hit took.
      local _
      _, retry = algorithm.judge(s, limit, now, n)
    end
    return allowed, retry, charges
  end

  local function tell(i, key, s, limit, allowed, retry)
    local used, reset = limit.algorithm.usage(s, limit, now)
    if charged[key] == limit then resets[key] = reset end
    answer(i, allowed and 1 or 0, used, retry, reset)
  end

  local function decide(key, i, limit, n)
    local s = state_of(key, limit)
    local allowed, retry, charges = judge_and_charge(s, limit, n)
    if charges then charged[key] = limit end
    tell(i, key, s, limit, allowed, retry)
  end

  -- Runs f; an error in it fails the key, and so every hit on it, and no other.
  local function guarded(key, f, ...)
    if failed[key] then return end
    local ok, problem = pcall(f, key, ...)
    if not ok then failed[key] = text_of(problem) end
  end

  -- Decides hits that are charged only if all of them are allowed.
  local function decide_group(group)
    local function judge(key, hit, sum)
      local s = state_of(key, hit.limit)
      hit.allowed, hit.retry = true, 0
      if hit.n >= 0 then hit.allowed, hit.retry = hit.limit.algorithm.judge(s, hit.limit, now, sum) end
    end
    local function charge(key, hit)
      if hit.limit.algorithm.charge(states[key], hit.limit, now, hit.n) then charged[key] = hit.limit end
    end
    local function tell_of(key, hit) tell(hit.i, key, states[key], hit.limit, hit.allowed, hit.retry) end
    local function counts(hit) return hit.n > 0 and not hit.allowed and hit.limit.counts_denied end

    local all, sums = true, {}
    for _, hit in ipairs(group) do
      sums[hit.key] = math.min((sums[hit.key] or 0) + math.max(hit.n, 0), MAX_HITS)
      ties[hit.key] = group
    end
    for _, hit in ipairs(group) do
      guarded(hit.key, judge, hit, sums[hit.key])
      all = all and hit.allowed and not failed[hit.key]
    end
    for _, hit in ipairs(group) do
      if all and hit.n ~= 0 or counts(hit) then guarded(hit.key, charge, hit) end
      if all then guarded(hit.key, tell_of, hit) end
    end
    if all then return end
    for _, hit in ipairs(group) do
      if not hit.allowed and hit.limit.counts_denied then
        guarded(hit.key, judge, hit, sums[hit.key])
        hit.allowed = false
      end
      guarded(hit.key, tell_of, hit)
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

  -- Answers a denied hit on a key that could not be saved by what Redis holds. If the hit would fit there, it was denied
  -- because of hits that were not charged: that is an error.
  local function deny_unsaved(key, i, limit, n, unsaved)
    local s = limit.algorithm.load(KEYS[key], limit, now)
    if n > MAX_HITS then n = 0 end
    local allowed, retry = limit.algorithm.judge(s, limit, now, n)
    if allowed then error(unsaved, 0) end
    local used, reset = limit.algorithm.usage(s, limit, now)
    answer(i, 0, used, retry, reset)
  end

  -- Saves what was charged. Where Redis refuses it (it is full, or a replica), what was to be charged is an error, and so is
  -- the rest of its group, of which nothing has been written yet: only the first write of a script is refused.
  local function finish()
    local unsaved = {}
    for key, limit in pairs(charged) do
      local tie = ties[key]
      if failed[key] then
        -- is left as it is
      elseif tie and tie.unsaved then
        unsaved[key] = tie.unsaved
      else
        local ok, problem = pcall(limit.algorithm.save, KEYS[key], states[key], limit, resets[key], now, server)
        if not ok then
          unsaved[key] = text_of(problem)
          if tie then tie.unsaved = unsaved[key] end
        end
      end
    end
    if not next(failed) and not next(unsaved) then return end
    for _, run in ipairs(runs) do
      for t = 0, run.times - 1 do
        local key, i = run.key + t * run.step, run.first + t
        local problem = failed[key] or unsaved[key]
        if unsaved[key] and not failed[key] and told[4 * i - 3] == 0 then
          -- A denial stands whether or not it could be counted.
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
    -- Many are read at once, which costs a third of a GET for each. What that does not give, for it is not there, is no string,
    -- or the user may not use MGET, is asked for by itself.
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

-- A client leaves its connection to what is no master any more if the call itself says so.
if is_replica then return redis.error_reply('READONLY a read only replica') end

-- Packed many at a time: a string for each would cost more than the numbers.
local most, numbers = 4 * PACKED, 4 * count
local to = math.min(numbers, most)
reply[1] = pack(string.sub(FORMAT, 1, 3 + 2 * to), server, unpack(told, 1, to))
if numbers > most then
  local parts = { reply[1] }
  for from = most + 1, numbers, most do
    to = math.min(from + most - 1, numbers)
    parts[#parts + 1] = pack('>' .. string.sub(FORMAT, 4, 3 + 2 * (to - from + 1)), unpack(told, from, to))
  end
  reply[1] = table.concat(parts)
end
return reply
