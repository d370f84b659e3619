-- leases: decides LEASES runs, see batch.lua. keys has the keys of the runs so far, see sharing there.
local END = 1

return function(now, server, keys, verdicts, text, limits)

  -- Decides the hits of a run from run.at on, which is the hit that is decided now.
  return function(run)
    for at = run.at, run.times do
      run.at = at
      local op, id, index, limit, n = unpacked('>I1c16I2I2i8', text, run.own + 29 * (at - 1))
      limit = limits[limit]
      local set, key = limit.algorithm, keys[index]
      if not key then
        key = { name = KEYS[index], state = false }
        keys[index] = key
      end
      local s = key.state
      if not s then
        s = set.load(key.name, id)
        key.state = s
      end
      if s.first <= now then set.lapse(s, now, id) end
      if s.latest > now + limit.ttl then set.cut(s, now + limit.ttl) end
      local allowed, retry = true, 0
      if op == END then
        if id ~= NO_ID then set.finish(s, id, now, 0, server) end
      else
        allowed, retry = set.take(s, id ~= NO_ID and id, limit, now, n, server)
      end
      local i, used, reset = 4 * (run.first + at), set.usage(s, limit, now)
      verdicts[i - 7], verdicts[i - 6], verdicts[i - 5], verdicts[i - 4] = allowed and 1 or 0, used, retry, reset
    end
  end
end
