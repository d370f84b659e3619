-- decide_same_key: decides SAME_KEY runs, see batch.lua.
local now, keys, charge_checked = env.now, module_of('keys', env), env.charge_checked

local function decide(key, run)
  local limit, n, denied_n = run.limit, run.n, run.denied_n
  local s, fits = keys.state_of(key, limit), limit.algorithm.fits
  for i = run.first, run.last do
    local allowed, retry, charged = true, 0, false
    if n >= 0 then allowed, retry = fits(s, limit, now, n) end
    if n ~= 0 or not allowed then retry, charged = charge_checked(s, limit, n, denied_n, allowed, retry) end
    if charged then key.charged = limit end
    keys.report(key, i, limit, allowed, retry)
  end
end

return function(run)
  run.key = keys.at(run.key_index)
  keys.guarded(decide, run)
end
