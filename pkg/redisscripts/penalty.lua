-- penalty: the offenses and penalties of a key, which are a part of a state. Twin of pkg/limiters/penalty.go.
--
-- KEYS    one string of 28 bytes: start of the window of offenses, end of the last penalty, offenses, penalties begun, expiry. The key
--         expires at expiry, in s since 1970 by this server's clock.
-- ARGV    the penalty: after, within, for, factor, max, forget
-- units   times in µs since 1970, durations in µs
--
-- Lua reserves two words of the twin: For is duration here, and until is penalty_end.
local M = { limit = 0, load = 0, time_left = 0, add_offense = 0, add_to_denial = 0, reset = 0, save = 0 }
local min, max = math.min, math.max

function M.limit(text, from)
  local after, within, duration, factor, longest, forget = struct_unpack('>I8I8I8I8I8I8', text, from)
  return { algorithm = 0, after = after, within = within, duration = duration, factor = factor, max = longest, forget = forget }
end

function M.load(key)
  local value, since, penalty_end, offenses, begun, expiry = call('GET', key), 0, 0, 0, 0, 0
  if value then since, penalty_end, offenses, begun, expiry = whole_numbers(value, 28, '>I8I8I4I4I4') end
  return { since = since, penalty_end = penalty_end, offenses = offenses, begun = begun, expiry = expiry }
end

-- A penalty that would end later than its max from now is from before a clock stepped back, or from before max was lowered.
function M.time_left(s, penalty, now) return max(0, min(s.penalty_end - now, penalty.max)) end

-- Counts a denial as an offense, unless a penalty denied the request. It returns whether s has changed.
function M.add_offense(s, penalty, now)
  local time_left = M.time_left(s, penalty, now)
  if time_left > 0 then
    local changed = s.penalty_end ~= now + time_left
    s.penalty_end = now + time_left
    return changed
  end
  if s.offenses == 0 or now - s.since >= penalty.within or s.since - now > penalty.within then s.offenses, s.since = 0, now end
  s.offenses = s.offenses + 1
  if s.offenses >= penalty.after then
    if now >= s.penalty_end + penalty.forget then s.begun = 0 end
    local duration, begun = penalty.duration, s.begun
    while begun > 0 and penalty.factor > 1 and duration < penalty.max do
      duration, begun = duration * penalty.factor, begun - 1
    end
    s.offenses, s.since, s.penalty_end, s.begun = 0, 0, now + min(duration, penalty.max), min(s.begun + 1, $MAX_PENALTIES_BEGUN)
  end
  return true
end

-- Adds a penalty that ends after time_left > 0 to the denial of operation i by the limit alone, as Verdict.WithPenalty. began is whether
-- the penalty began with this operation.
function M.add_to_denial(i, time_left, began)
  local result, used, retry, reset = verdict_of(i)
  if retry >= 0 and time_left >= retry then
    result, retry = began and $PENALTY_BEGAN or $PENALIZED, time_left
  else
    result = result + $DURING_PENALTY
  end
  set_verdict(i, result, used, retry, max(reset, time_left))
end

-- The time until s has fully reset, in µs.
function M.reset(s, penalty, now)
  local reset = now
  if s.offenses > 0 then reset = s.since + penalty.within end
  if s.begun > 0 then reset = max(reset, s.penalty_end + penalty.forget) end
  return max(0, reset - now)
end

function M.save(key, s, _, reset, _, server)
  local expiry, px = s.expiry
  if expiry < least_expiry(reset, server) then expiry, px = renew_expiry(reset, server) end
  local value = struct_pack('>I8I8I4I4I4', s.since, s.penalty_end, s.offenses, s.begun, expiry)
  if px then call('SET', key, value, 'PX', px) else call('SETRANGE', key, '0', value) end
end

return M
