-- batch: the driver. It decides many hits at one now, in order, each key's state read once and written once. It is the
-- twin of limiters.Decide, and knows no algorithm: those before it have each given a function of their own name that
-- returns limit, load, judge, charge, usage and save.
--
-- KEYS[i]  the key of hit i; hits on one key share its text
-- ARGV[1]  now, in µs since 1970; '' = this server's TIME
-- ARGV[2]  how many limits follow
-- ARGV[3]  and on: the limits, "<algorithm> <number> ...", as the header of <algorithm>.lua names the numbers;
--          behind them three for each hit: the index of its limit from 1, n, and its group, 0 = none
-- units    times in µs since 1970, durations in µs
-- reply    four for each hit: allowed (0|1), used, retry (-1 = never), reset; or an error's text and three zeros
local now, soonest = ARGV[1], 0
if now == '' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  -- A clock of the caller's may stand still, or be far from this server's, which frees the keys.
  now, soonest = tonumber(now), 3600000
end

local modules, limits = {}, {}
for i = 1, tonumber(ARGV[2]) do
  local name, text = string.match(ARGV[2 + i], '^(%S+)(.*)$')
  local params = {}
  for number in string.gmatch(text, '%S+') do params[#params + 1] = tonumber(number) end
  modules[name] = modules[name] or algorithms[name]()
  local limit = modules[name].limit(params)
  limit.algorithm = modules[name]
  limits[i] = limit
end

local states, hits = {}, {}

local function text_of(problem) return type(problem) == 'table' and problem.err or tostring(problem) end

-- Runs f for a hit; an error in it fails the hit's key, and so every hit on it, and no other.
local function guarded(hit, f, ...)
  local ok, a, b = pcall(f, ...)
  if ok then return a, b end
  hit.state.failed = text_of(a)
end

for i, key in ipairs(KEYS) do
  local arg = 3 * i + #limits
  local hit = { limit = limits[tonumber(ARGV[arg])], n = tonumber(ARGV[arg + 1]), group = ARGV[arg + 2] }
  hit.state = states[key] or { key = key }
  if not states[key] then
    states[key] = hit.state
    hit.state.data = guarded(hit, hit.limit.algorithm.load, key, now)
  end
  hits[i] = hit
end

local function judge(hit, n)
  hit.allowed, hit.retry = true, 0
  if hit.n >= 0 and not hit.state.failed then
    hit.allowed, hit.retry = guarded(hit, hit.limit.algorithm.judge, hit.state.data, hit.limit, now, n)
  end
end

local function rejudge(hit, n)
  local state = hit.state
  if state.failed then return end
  local _, retry = guarded(hit, hit.limit.algorithm.judge, state.data, hit.limit, now, n)
  hit.retry = retry
end

local function charge(hit)
  local state, limit = hit.state, hit.limit
  if state.failed then return end
  if guarded(hit, limit.algorithm.charge, state.data, limit, now, hit.n) then state.charged = limit end
end

local function counts_denied(hit) return hit.limit.count_denied and hit.limit.max > 0 end

local function tell(hit)
  local state, limit = hit.state, hit.limit
  if state.failed then return end
  hit.used, hit.reset = guarded(hit, limit.algorithm.usage, state.data, limit, now)
end

local function decide_one(hit)
  judge(hit, hit.n)
  if hit.n < 0 or hit.n > 0 and hit.allowed then charge(hit)
  elseif hit.n > 0 and counts_denied(hit) then
    charge(hit)
    -- Who waits as long as told gets in, with what this hit took.
    rejudge(hit, hit.n)
  end
  tell(hit)
end

local function decide_group(group)
  local all, sums = true, {}
  for _, hit in ipairs(group) do
    sums[hit.state] = math.min((sums[hit.state] or 0) + math.max(hit.n, 0), MAX_HITS)
  end
  for _, hit in ipairs(group) do
    judge(hit, sums[hit.state])
    all = all and hit.allowed and not hit.state.failed
  end
  for _, hit in ipairs(group) do
    hit.state.tied = group
    if all and hit.n ~= 0 or hit.n > 0 and not hit.allowed and counts_denied(hit) then charge(hit) end
    if all then tell(hit) end
  end
  if all then return end
  for _, hit in ipairs(group) do
    if not hit.allowed and counts_denied(hit) then rejudge(hit, sums[hit.state]) end
    tell(hit)
  end
end

local groups = {}
for _, hit in ipairs(hits) do
  if hit.group ~= '0' then
    groups[hit.group] = groups[hit.group] or {}
    table.insert(groups[hit.group], hit)
  end
end
for _, hit in ipairs(hits) do
  if hit.group == '0' then
    decide_one(hit)
  elseif groups[hit.group] then
    decide_group(groups[hit.group])
    groups[hit.group] = nil
  end
end

local function save(state)
  local algorithm = state.charged.algorithm
  local _, reset = algorithm.usage(state.data, state.charged, now)
  -- A second more than is needed: the expiry frees memory and decides nothing.
  algorithm.save(state.key, state.data, math.max(math.ceil(reset / 1000) + 1000, soonest))
end

-- Saves what was charged, once. Where Redis refuses it (it is full, or a replica), what was to be charged is an error, and
-- so is the rest of its group, of which nothing has been written yet: only the first write of a script is refused.
local function save_charged(hit)
  local state = hit.state
  if not state.charged or state.failed or state.unsaved or state.saved then return end
  local tied = state.tied or {}
  if not tied.unsaved then
    local ok, problem = pcall(save, state)
    state.saved = ok
    if ok then return end
    tied.unsaved = text_of(problem)
  end
  state.unsaved = tied.unsaved
end

local reply = {}
for _, hit in ipairs(hits) do
  save_charged(hit)
  local state, at = hit.state, #reply
  -- A denial stands whether or not it could be counted.
  local problem = state.failed or hit.allowed and state.unsaved
  if problem then
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = problem, 0, 0, 0
  else
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = hit.allowed and 1 or 0, hit.used, hit.retry, hit.reset
  end
end
return reply
