-- fixed_window: counts hits in consecutive windows. Twin of pkg/limiters/fixedwindow.go.
--
-- KEYS    one string of 16 bytes: the start of a window in µs since 1970, and the hits counted in it.
-- ARGV    the limit's arguments: max, window (µs), counts_denied (0|1), peek_over (0|1), start of windows (0 = by the clock,
--         1 = first hit, 2 = calendar). A calendar has four more: the starts of the window before the caller's time, of its
--         current one, of the next, and of the one after that.
-- units   times in µs since 1970, durations in µs
--
-- A state is the current window. With first_hit, a start of 0 means that no window is open.
local M = { name = 'fixed_window', limit = 0, load = 0, fits = 0, charge = 0, usage = 0, save = 0, quick = 0 }

-- A calendar has a function window_at. It returns the start and the end of the window at now. If the clock stepped back since the
-- key was charged, that is the window of the charge, which is at most one ahead.
function M.limit(text, from)
  local max, window, counts_denied, peek_over, start, after = struct_unpack('>I8I8I8I8I8', text, from)
  local limit = {
    algorithm = 0, max = max, window = window, counts_denied = counts_denied == 1, by_clock = start == 0,
    first_hit = start == 1, peek_over = peek_over == 1,
  }
  if start < 2 then return limit, after end
  local starts = { struct_unpack('>I8I8I8I8', text, after) }
  limit.starts = starts
  function limit.window_at(now, charged)
    for i = 1, 3 do
      if starts[i] <= now and now < starts[i + 1] then
        if charged == starts[i + 1] and charged > starts[i] then i = i + 1 end
        if i < 4 then return starts[i], starts[i + 1] end
      end
    end
    error('the clocks of Weir and Redis differ by more than a window of this limit', 0)
  end
  return limit, starts[5]
end

function M.load(key, limit, now, value, s)
  local start, count, stored = 0, 0
  if value == nil then value = call('GET', key) end
  if value then
    start, count = whole_numbers(value, 16, '>I8I8')
    stored = start
  end
  local stop
  if limit.window_at then
    local current
    current, stop = limit.window_at(now, start)
    if current ~= start then start, count = current, 0 end
  else
    if start - now > limit.window then start, count = 0, 0 end
    if start > now then now = start end
    if limit.first_hit then
      if now - start >= limit.window then start, count = 0, 0 end
    else
      local current = now - now % limit.window
      if current ~= start then start, count = current, 0 end
    end
    stop = start + limit.window
  end
  if not s then return { start = start, stop = stop, count = count, stored = stored } end
  s.start, s.stop, s.count, s.stored = start, stop, count, stored
  return s
end

function M.fits(s, limit, now, n)
  if n == 0 and not limit.peek_over then n = 1 end
  if n > limit.max or limit.max == 0 then return false, -1 end
  if s.count + n <= limit.max then return true, 0 end
  return false, s.stop - now
end

function M.charge(s, limit, now, n)
  local count = s.count
  if n < 0 and count == 0 then return false end
  if s.start == 0 and limit.first_hit then s.start, s.stop = now, now + limit.window end
  count = count + n
  if count < 0 then count = 0 elseif count > $MAX_HITS then count = $MAX_HITS end
  s.count = count
  return true
end

function M.usage(s, limit, now)
  if s.start == 0 and limit.first_hit then return 0, 0 end
  return s.count, s.stop - now
end

-- The key expires when its window has ended, so only a new window needs a new expiry. SETRANGE costs half as much as SET with
-- an expiry.
function M.save(key, s, _, reset)
  local value = struct_pack('>I8I8', s.start, s.count)
  if s.stored == s.start then call('SETRANGE', key, '0', value) else call('SET', key, value, 'PX', digits(expiry_ms(reset))) end
end

-- For hits that fit in the stored window, if that is the window at now.
function M.quick(key, limit, now, value, n)
  if n < 0 or not value or #value ~= 16 then return end
  local start, count = struct_unpack('>I8I8', value)
  local open, stop = false, start + limit.window
  if limit.by_clock then
    open = start == now - now % limit.window
  elseif limit.first_hit then
    open = start <= now and now < stop
  else
    stop = limit.starts[3]
    open = start == limit.starts[2] and start <= now and now < stop
  end
  count = count + n
  if not open or count > limit.max then return end
  call('SETRANGE', key, '0', struct_pack('>I8I8', start, count))
  return count, stop - now
end

return M
