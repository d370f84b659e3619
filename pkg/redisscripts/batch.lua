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

-- Runs f for a hit; an error in it fails the hit's key, and so every hit on it, and no other.
local function guarded(hit, f, ...)
  local ok, a, b = pcall(f, ...)
  if ok then return a, b end
  hit.state.failed = type(a) == 'table' and a.err or tostring(a)
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

local function charge(hit)
  local state, limit = hit.state, hit.limit
  if state.failed then return end
  if guarded(hit, limit.algorithm.charge, state.data, limit, now, hit.n) then state.charged = limit end
end

-- Records denied hits, if their limit counts such: who waits as long as told gets in, with what they took.
local function charge_denied(hit, n)
  if not hit.limit.count_denied or hit.limit.max == 0 or hit.state.failed then return end
  charge(hit)
  if hit.state.failed then return end
  local _, retry = guarded(hit, hit.limit.algorithm.judge, hit.state.data, hit.limit, now, n)
  hit.retry = retry
end

local function tell(hit)
  local state, limit = hit.state, hit.limit
  if state.failed then return end
  hit.used, hit.reset = guarded(hit, limit.algorithm.usage, state.data, limit, now)
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
    if hit.n ~= 0 and all then charge(hit)
    elseif hit.n > 0 and not hit.allowed then charge_denied(hit, sums[hit.state]) end
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
    judge(hit, hit.n)
    if hit.n < 0 or hit.n > 0 and hit.allowed then charge(hit)
    elseif hit.n > 0 then charge_denied(hit, hit.n) end
    tell(hit)
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

local reply = {}
for _, hit in ipairs(hits) do
  local state = hit.state
  if state.charged and not state.failed and not state.saved then
    state.saved = true
    guarded(hit, save, state)
  end
  local at = #reply
  if state.failed then
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = state.failed, 0, 0, 0
  else
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = hit.allowed and 1 or 0, hit.used, hit.retry, hit.reset
  end
end
return reply
