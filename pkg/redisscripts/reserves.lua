-- reserves: decides RESERVES runs, see batch.lua. It decides the most frequent hits itself, and leaves the others to parts.lua,
-- which is defined on demand, because creating its functions costs as much as several hits.
--
-- Most hits change the list of a key, see reservations.lua, in place: a take appends a record, and a settle overwrites an id.
-- So the list is the only long string that Lua creates, and hashes byte by byte.
local END, SETTLED = 1, 8

return function(now, server, all, verdicts, text, limits, sharing)
  local keys, find, try = all.keys, string.find, redis.pcall

  -- The offset in a list where the take of a new id, or the settle of an open reservation, writes. It is nil for other hits. It is also nil
  -- if the list needs another change: a record has expired, expires after latest, or has ended; or a take needs the key until least, in s.
  local function offset_of(list, op, id, latest, least)
    local size = #list
    if size <= HEAD or size % RECORD ~= HEAD or id == NO_ID then return nil end
    local kept, ended, _, _, first = unpacked('>I4I4I8I8I8', list)
    if ended > 0 or first <= now or unpacked('>I8', list, size - 23) > latest then return nil end
    local found = find(list, id, HEAD + 1, true)
    if op == END then
      -- The last record stays: a list without an open reservation is deleted.
      if found and found % RECORD == HEAD + 1 and found + RECORD <= size then return found - 1 end
    elseif not found and kept >= least and size < HEAD + FEW * RECORD then
      return size
    end
  end

  -- Adds a record to a list. The list is written again, without settled reservations, if the record of that number is one.
  local function add(reserve, name, list, record)
    if #list < HEAD + SETTLED * RECORD or string.byte(list, HEAD + (SETTLED - 1) * RECORD + 1) > 0 then
      call('APPEND', name, record)
    else
      call('SET', name, string.sub(list, 1, HEAD) .. reserve.algorithm.unsettled(string.sub(list, HEAD + 1)) .. record, 'KEEPTTL')
    end
  end

  -- Decides the hits of a run from run.at on, which is the hit that is decided now. The value of key i is values[i]. It is false if the key
  -- is absent or no string, and nil if the value is unknown.
  return function(run, values)
    local limit, reserve, algorithm, latest, least, at_once
    for at = run.at, run.times do
      run.at = at
      local op, id, index, l, n, other, r = unpacked('>I1c16I2I2i8I2I2', text, run.own + 33 * (at - 1))
      if limit ~= limits[l] or reserve ~= limits[r] then
        limit, reserve = limits[l], limits[r]
        algorithm, at_once = limit.algorithm, reserve.algorithm.at_once == limit.algorithm.name
        latest, least = now + reserve.ttl, (server / 1000 + expiry(reserve.ttl)) / 1000
      end
      local key, value, list, offset = keys[index], values[index], values[other]
      if list and n >= 0 and not keys[other] and not (key and key.failed) then offset = offset_of(list, op, id, latest, least) end
      local delta, charged_at, used, reset = n
      if offset and op == END then
        local estimate
        estimate, charged_at = unpacked('>I8I8', list, offset + 25)
        delta = n - estimate
        -- A full Redis rejects that.
        if type(try('SETRANGE', KEYS[other], digits(offset), NO_ID)) ~= 'number' then offset = nil end
      end
      if offset and value and delta ~= 0 and not key and at_once then
        used, reset = algorithm.quick(KEYS[index], limit, now, value, delta, server)
      end
      if used then
        local i = 4 * (run.first + at)
        verdicts[i - 7], verdicts[i - 6], verdicts[i - 5], verdicts[i - 4] = 1, used, 0, reset
        if op ~= END then add(reserve, KEYS[other], list, pack('>c16I8I8I8', id, latest, n, 0)) end
        values[index], values[other] = nil, nil
      else
        local shared = sharing(all)
        local changes = shared.reserver_of(limit)
        key = shared.key_at(index)
        if not key.state and not key.failed then key.state = algorithm.load(key.name, limit, now, value or nil) end
        local s, charged = key.state, false
        if offset and op == END then
          charged = delta ~= 0 and changes.settle(s, limit, now, { { at = charged_at, delta = delta } })
        elseif offset and algorithm.fits(s, limit, now, n) then
          add(reserve, KEYS[other], list, pack('>c16I8I8I8', id, latest, n, changes.at(s, limit, now)))
          charged = changes.charge(s, limit, now, n)
        else
          shared.key_at(other).list = list
          shared.parts_of().decide_group({ shared.hit_of(run, at) })
          offset = nil
        end
        if charged then key.charged = limit end
        if offset then
          values[other] = nil
          shared.report(key, run.first + at - 1, limit, true, 0)
        end
      end
    end
  end
end
