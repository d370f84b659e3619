-- settle: applies reservations to the state of their algorithm. Twin of the methods reserve and settle of the algorithms in
-- pkg/limiters. The file returns a settler for each algorithm: charged_at returns the time by which settle finds a charge, charge
-- charges an estimate, and settle applies corrections. A correction is a charged_at and a delta, as in reserve.go.
--
-- In a sliding log, settle rewrites the entry of the charge and those after it, but only among the newest $MAX_MOVED_ENTRIES.
local min, max = math.min, math.max

-- A window is open even after an estimate of 0: its start identifies it for the settle.
local fixed_window = {}
function fixed_window.charged_at(s, limit, now) return s.start == 0 and limit.first_hit and now or s.start end
function fixed_window.charge(s, limit, now, n) return limit.algorithm.charge(s, limit, now, n) end
function fixed_window.settle(s, limit, now, corrections)
  local changed = false
  for _, c in ipairs(corrections) do
    if c.delta ~= 0 and c.charged_at == s.start then changed = limit.algorithm.charge(s, limit, now, c.delta) or changed end
  end
  return changed
end

local funnel = {}
function funnel.charged_at() return 0 end
function funnel.charge(s, limit, now, n) return n > 0 and limit.algorithm.charge(s, limit, now, n) end
function funnel.settle(s, limit, now, corrections)
  local changed = false
  for _, c in ipairs(corrections) do changed = c.delta ~= 0 and limit.algorithm.charge(s, limit, now, c.delta) or changed end
  return changed
end

local sliding_log = { charge = funnel.charge }
function sliding_log.charged_at(s, _, now) return max(now, s.newest) end

-- The entries from a time on: the time and the hits of each.
local function entries_from(s, log, from, now)
  local i, last, entries, before, _ = log.search(s, s.first, log.last(s), now, log.is_after, from - 1), log.last(s), {}, s.base
  if i > s.first then _, before = log.entry(s, i - 1, now) end
  if s.list and i <= s.tail then
    for j, text in ipairs(call('LRANGE', s.list.key, digits(i), digits(s.tail))) do s.list.entries[i + j - 1] = text end
  end
  for j = i, last do
    local time, sum = log.entry(s, j, now)
    entries[#entries + 1] = { time = time, hits = (sum - before) % $LOG_SUMS }
    before = sum
  end
  return entries
end

-- Corrects the hits of the charged entry, which may be absent. A delta is limited to what the entry has and the log may hold.
local function correct(entries, c, room)
  local i, high = 1, #entries
  while i <= high do
    local mid = math.floor((i + high) / 2)
    if entries[mid].time < c.charged_at then i = mid + 1 else high = mid - 1 end
  end
  if not entries[i] or entries[i].time ~= c.charged_at then
    if c.delta < 0 then return 0 end
    table.insert(entries, i, { time = c.charged_at, hits = 0 })
  end
  local delta = max(-entries[i].hits, min(c.delta, max(room, 0)))
  entries[i].hits = entries[i].hits + delta
  return delta
end

function sliding_log.settle(s, limit, now, corrections)
  if #corrections == 0 then return false end
  local log, newest, first, due = limit.algorithm, max(now, s.newest), math.huge, {}
  local edge, beyond = newest - limit.window, log.last(s) - $MAX_MOVED_ENTRIES
  if beyond >= s.first then edge = max(edge, (log.entry(s, beyond, now))) end
  for _, c in ipairs(corrections) do
    -- An entry that is later than a window from now would come from a wrong clock.
    if c.delta ~= 0 and c.charged_at > edge and c.charged_at - limit.window <= now then
      due[#due + 1], first = c, min(first, c.charged_at)
    end
  end
  if #due == 0 then return false end
  local entries = entries_from(s, log, first, now)
  local total, changed = 0, false
  for _, e in ipairs(entries) do total = total + e.hits end
  local room = 2 * limit.max - s.used
  for _, c in ipairs(due) do
    local delta = correct(entries, c, room)
    room, changed = room - delta, changed or delta ~= 0
  end
  if not changed then return false end
  -- The log may hold more than the maximum allows, if that was lowered, but not more than the largest maximum allows.
  local wide = { max = $MAX_LOG_LIMIT, window = limit.window }
  if total > 0 then log.charge(s, wide, now, -total) end
  for _, e in ipairs(entries) do
    if e.hits > 0 then log.charge(s, wide, e.time, e.hits) end
  end
  log.expire(s, limit, now)
  return true
end

return { fixed_window = fixed_window, funnel = funnel, sliding_log = sliding_log }
