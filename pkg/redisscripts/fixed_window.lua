-- fixed_window: hits counted in windows that do not overlap. Twin of pkg/limiters/fixedwindow.go.
--
-- KEYS    one string: "<start> <count>", the start of a window in µs since 1970 and what was counted in it
-- ARGV    the limit's numbers: max, window (µs), count_denied (0|1), first_hit (0|1)
-- units   times in µs since 1970, durations in µs
-- reply   judge: fits (boolean), retry (-1 = never); usage: used, reset
local M = {}

function M.limit(p)
  return { max = p[1], window = p[2], count_denied = p[3] == 1, first_hit = p[4] == 1 }
end

function M.load(key)
  local v = redis.call('GET', key)
  if not v then return { start = 0, count = 0 } end
  local start, count = numbers(v, '^(%d+) (%d+)$')
  return { start = start, count = count }
end

local function at(s, l, now)
  local start, count = s.start, s.count
  if start - now > l.window then start, count = 0, 0 end
  if start > now then now = start end
  if l.first_hit then
    if now - start >= l.window then return 0, 0 end
    return start, count
  end
  local current = now - now % l.window
  if current ~= start then count = 0 end
  return current, count
end

function M.judge(s, l, now, n)
  local start, count = at(s, l, now)
  local fits
  if n > 0 then fits = count + n <= l.max
  elseif l.count_denied then fits = count <= l.max
  else fits = count < l.max end
  if fits then return true, 0 end
  if math.max(n, 1) > l.max then return false, -1 end
  return false, start + l.window - now
end

function M.charge(s, l, now, n)
  local start, count = at(s, l, now)
  if n < 0 and count == 0 then return false end
  if start == 0 and l.first_hit then start = now end
  s.start, s.count = start, math.max(0, math.min(count + n, MAX_HITS))
  return true
end

function M.usage(s, l, now)
  local start, count = at(s, l, now)
  if start == 0 and l.first_hit then return 0, 0 end
  return count, start + l.window - now
end

function M.save(key, s, px)
  redis.call('SET', key, string.format('%d %d', s.start, s.count), 'PX', px)
end

return M
