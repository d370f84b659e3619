-- runs: decides LEASES and RESERVES runs, see batch.lua. It decides the most frequent hits itself. parts.lua decides the others, and is
-- defined when one of them occurs, because its many functions cost Lua as much as several hits.
--
-- A RESERVES run reads all its keys at once. Most hits change the list of a key, see reservations.lua, where it is: a take appends a
-- record, and a settle overwrites an id. So Lua makes no other long string than the list, which it hashes byte by byte.
local END, SETTLED = 1, 8
local NO_ID = string.rep('\0', 16)

return function(now, server, driver)
  local key_at, report, keys, out, text, limits = driver.key_at, driver.report, driver.keys, driver.verdicts, driver.text, driver.limits

  -- The hit of the run that is decided now, from 1. After an error, the next one is decided.
  local at

  local function lease_some(run)
    while at <= run.times do
      local op, id, index, limit, n = unpacked('>I1c16I2I2i8', text, run.own + 29 * (at - 1))
      local key = key_at(index)
      limit = limits[limit]
      local set, s = limit.algorithm, key.state
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
      out[i - 7], out[i - 6], out[i - 5], out[i - 4] = allowed and 1 or 0, used, retry, reset
      at = at + 1
    end
  end

  -- Hit i of a RESERVES run, as a PARTS run.
  local function hit(run, i)
    local own, id, index, limit, n, other, reserve = { kind = 4, first = run.first + i - 1, times = 1, group = 0 }
    own.op, id, index, limit, n, other, reserve = unpacked('>I1c16I2I2i8I2I2', text, run.own + 33 * (i - 1))
    own.id, own.key, own.limit, own.n, own.reserve_key, own.reserve = id, index, limits[limit], n, other, limits[reserve]
    return own
  end

  -- Adds a record to a list. The list is written again, without settled reservations, if the record of that number is one.
  local function add(reserve, name, list, record)
    if #list < HEAD + SETTLED * RECORD or string.byte(list, HEAD + (SETTLED - 1) * RECORD + 1) > 0 then
      call('APPEND', name, record)
    else
      call('SET', name, string.sub(list, 1, HEAD) .. reserve.algorithm.unsettled(string.sub(list, HEAD + 1)) .. record, 'KEEPTTL')
    end
  end

  -- values[i] is the value of key low + i: false if it is absent or no string, nil if it is unknown.
  local function reserve_some(run, values, low)
    local find, limit, reserve, algorithm, changes, latest, least = string.find
    while at <= run.times do
      local op, id, index, l, n, other, r = unpacked('>I1c16I2I2i8I2I2', text, run.own + 33 * (at - 1))
      if limit ~= limits[l] or reserve ~= limits[r] then
        limit, reserve = limits[l], limits[r]
        algorithm, changes = limit.algorithm, reserve.algorithm[limit.algorithm.name]
        latest, least = now + reserve.ttl, (server / 1000 + expiry(reserve.ttl)) / 1000
      end
      local key, value, list, offset = keys[index], values[index - low], values[other - low]
      -- offset is where the hit writes in the list. It is nil if the list needs another change too. It is also nil if the hit is neither the
      -- take of a new id nor the settle of an open reservation.
      if list and #list > HEAD and #list % RECORD == HEAD and n >= 0 and id ~= NO_ID and not keys[other] and not (key and key.failed) then
        local size, found = #list, find(list, id, HEAD + 1, true)
        local kept, ended, first = unpacked('>I4I4xxxxxxxxxxxxxxxxI8', list)
        if ended > 0 or first <= now or unpacked('>I8', list, size - 23) > latest then
          offset = nil
        elseif op == END then
          -- The last record stays: a list without an open reservation is deleted.
          if found and found % RECORD == HEAD + 1 and found + RECORD <= size then offset = found - 1 end
        elseif not found and kept >= least and size < HEAD + FEW * RECORD then
          offset = size
        end
      end
      local delta, charged_at, used, reset = n
      if offset and op == END then
        local estimate
        estimate, charged_at = unpacked('>I8I8', list, offset + 25)
        delta = n - estimate
        -- A full Redis rejects that.
        if type(redis.pcall('SETRANGE', KEYS[other], digits(offset), NO_ID)) ~= 'number' then offset = nil end
      end
      if offset and value and delta ~= 0 and not key and changes.at_once then
        used, reset = algorithm.quick(KEYS[index], limit, now, value, delta, server)
      end
      if used then
        local i = 4 * (run.first + at)
        out[i - 7], out[i - 6], out[i - 5], out[i - 4] = 1, used, 0, reset
        if op ~= END then add(reserve, KEYS[other], list, pack('>c16I8I8I8', id, latest, n, 0)) end
        values[index - low], values[other - low] = nil, nil
      else
        key = key_at(index)
        if not key.state and not key.failed then key.state = algorithm.load(key.name, limit, now, value or nil) end
        local s, charged = key.state, false
        if offset and op == END then
          charged = delta ~= 0 and changes.settle(s, limit, now, { { at = charged_at, delta = delta } })
        elseif offset and algorithm.fits(s, limit, now, n) then
          add(reserve, KEYS[other], list, pack('>c16I8I8I8', id, latest, n, changes.at(s, limit, now)))
          charged = changes.charge(s, limit, now, n)
        else
          key_at(other).list = list
          driver.parts().decide_group({ hit(run, at) })
          offset = nil
        end
        if charged then key.charged = limit end
        if offset then
          values[other - low] = nil
          report(key, run.first + at - 1, limit, true, 0)
        end
      end
      at = at + 1
    end
  end

  -- Calls f for a run until it has decided all hits.
  local function decide_all(f, run, values, low)
    at = 1
    while at <= run.times do
      local ok, problem = pcall(f, run, values, low)
      if not ok then
        driver.failures().fail(run.first + at - 1, problem)
        at = at + 1
      end
    end
  end

  -- Reads all keys from the first to the last one of a RESERVES run, if few of them are of other runs. It returns the values, and the
  -- number of the key before the first one.
  local function read(run)
    local low, high = math.huge, 0
    for i = run.own, run.own + 33 * (run.times - 1), 33 do
      local index, other = unpacked('>I2xxxxxxxxxxI2', text, i + 17)
      if index < low then low = index end
      if other > high then high = other end
    end
    if high - low > 3 * run.times or high - low >= 1000 then return {}, low - 1 end
    return redis.pcall('MGET', unpack(KEYS, low, high)), low - 1
  end

  local function decide(run)
    if run.kind == LEASES then return decide_all(lease_some, run) end
    decide_all(reserve_some, run, read(run))
  end

  return { decide = decide, hit = hit }
end
