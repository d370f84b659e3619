-- reserve_runs: decides RESERVES runs, see batch.lua. It decides frequent hits itself, and leaves the others to extra_state.lua,
-- which is defined on demand, because creating its functions costs as much as several hits.
--
-- A frequent hit reads and writes one record of the hash of its key, see reservations.lua. It never reads the whole hash, because
-- Lua hashes every byte of each string that it creates. A frequent hit of an at_once algorithm needs no state of its key either.
local HEAD = 'h' -- of reservations.lua

return function(now, server, batch, verdicts, text, limits, functions_of)
  local keys, try = batch.keys, redis.pcall

  -- The driver's functions, and a key with its state.
  local function loaded(index, limit, value)
    local driver = functions_of(batch)
    local key = driver.key_at(index)
    if not key.state and not key.failed then key.state = limit.algorithm.load(key.name, limit, now, value or nil) end
    return driver, key
  end

  -- Reads a hash that is absent, or whose records are all open and expire after now and not after latest. It returns the expiry of
  -- its key, its size, a lower bound of the first expiry, and the record of an id. For any other hash it returns nothing.
  local function read(name, id, latest)
    local found = try('HMGET', name, HEAD, id)
    local head = found[1]
    if head == false then return 0, 0, latest, found[2] end
    if not head or #head ~= 24 then return end
    local kept, size, ended, first, last = unpacked('>I4I2I2I8I8', head)
    if ended == 0 and first > now and last <= latest then return kept, size, first, found[2] end
  end

  -- Writes the record of a take.
  local function open(name, id, ttl, n, charged_at, kept, size, first, least)
    local latest, px = now + ttl
    if kept < least then kept, px = renewed(ttl, server) end
    call('HSET', name, HEAD, pack('>I4I2I2I8I8', kept, size + 1, 0, first, latest), id, pack('>I8I8I8', latest, n, charged_at))
    if px then call('PEXPIRE', name, px) end
  end

  -- Deletes a record. It returns the estimate and the time charged. The hash is deleted with its last record, if size is exact.
  local function close(name, id, record, size)
    if #record ~= 24 then error('an unreadable value', 0) end
    if size == 1 then call('DEL', name) else call('HDEL', name, id) end
    return unpacked('>I8I8', record, 9)
  end

  -- Decides the hits of a run from run.at on, which is the hit that is decided now. values[i] is the value of key base + i. It is
  -- false if the key is absent or no string, and nil if the value is unknown.
  return function(run, values, base)
    local END, FEW, NO_ID = 1, 64, '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' -- FEW is that of reservations.lua
    local limit, reserve, algorithm, ttl, least, at_once
    for at = run.at, run.times do
      run.at = at
      local op, id, index, l, n, other, r = unpacked('>I1c16I2I2i8I2I2', text, run.own + 33 * (at - 1))
      if limit ~= limits[l] or reserve ~= limits[r] then
        limit, reserve = limits[l], limits[r]
        algorithm, at_once = limit.algorithm, reserve.algorithm.at_once == limit.algorithm.name
        ttl, least = reserve.ttl, least_kept(reserve.ttl, server)
      end
      local key, name, value, ends = keys[index], KEYS[other], values[index - base], op == END

      -- A frequent hit ends a reservation, or takes one that is new.
      local kept, size, first, record
      if n >= 0 and id ~= NO_ID and not keys[other] and not (key and key.failed) then
        kept, size, first, record = read(name, id, now + ttl)
        if size and size >= FEW and not ends then size = call('HLEN', name) - 1 end
      end
      local frequent = kept and (ends and record or not ends and not record and size < FEW)

      if not frequent then
        local driver = loaded(index, limit, value)
        driver.extra_state_of().decide_group({ driver.hit_of(run, at) })
      else
        -- A value that cannot be read is an error before anything is written.
        local quick = at_once and value ~= nil and not key
        if not quick then
          loaded(index, limit, value)
        elseif not value then
          value = call('GET', KEYS[index])
        elseif ends then
          algorithm.check(value)
        end
        local estimate, charged_at, used, reset = 0, 0
        if ends then estimate, charged_at = close(name, id, record, size) end
        local delta = n - estimate
        if quick and delta ~= 0 then used, reset = algorithm.quick(KEYS[index], limit, now, value, delta, server) end
        if used then
          if not ends then open(name, id, ttl, n, 0, kept, size, first, least) end
          local i = 4 * (run.first + at)
          verdicts[i - 7], verdicts[i - 6], verdicts[i - 5], verdicts[i - 4] = 1, used, 0, reset
          values[index - base] = nil
        else
          local driver, changed = loaded(index, limit, value)
          local changes, s, allowed, retry, charged = driver.reserver_of(limit), changed.state, true, 0, false
          if ends then
            charged = delta ~= 0 and changes.settle(s, limit, now, { { at = charged_at, delta = delta } })
          else
            allowed, retry = algorithm.fits(s, limit, now, n)
            if allowed then
              open(name, id, ttl, n, changes.at(s, limit, now), kept, size, first, least)
              charged = changes.charge(s, limit, now, n)
            end
          end
          if charged then changed.charged = limit end
          driver.report(changed, run.first + at - 1, limit, allowed, retry)
        end
      end
    end
  end
end
