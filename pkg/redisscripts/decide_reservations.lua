-- decide_reservations: decides RESERVATIONS runs, see wire.go. An operation costs a quarter as much as in decide_extra.lua. The file
-- decides frequent operations itself, and leaves the others to decide_extra.lua, which is defined on demand, because creating its
-- functions costs as much as several operations.
--
-- A frequent operation opens a reservation, or settles an open one. It reads and writes one record of the hash of its key, see
-- reservations.lua. It never reads the whole hash, because Lua hashes every byte of each string that it creates. A frequent operation of an
-- algorithm that settles at once needs no state of its key either.
--
-- The head has two counts of 2 bytes: records, and records of ended ids. They are read as one number of 4 bytes, counts, because
-- unpacking one number fewer is measurably cheaper. One record adds $ONE_RECORD to counts.

return function(now, server, batch, verdicts, text, limits, deciders_of)
  local keys, names, try = batch.keys, KEYS, redis.pcall

  -- The driver's functions, and a key with its state.
  local function loaded(index, limit, value)
    local driver = deciders_of(batch)
    local key = driver.key_at(index)
    if not key.state and not key.failed then key.state = limit.algorithm.load(key.name, limit, now, value or nil) end
    return driver, key
  end

  -- Writes the record of a new reservation.
  local function open(name, id, reservations_limit, n, charged_at, key_expiry, counts, first, least, ttl_end)
    local px
    if key_expiry < least then key_expiry, px = renew_expiry(reservations_limit.ttl, server) end
    local head = struct_pack('>I4I4I8I8', key_expiry, counts + $ONE_RECORD, first, ttl_end)
    call('HSET', name, $HEAD_FIELD, head, id, struct_pack('>I8I8I8', ttl_end, n, charged_at))
    if px then call('PEXPIRE', name, px) end
  end

  -- Reads the head and a record of a hash for a frequent operation, which settles an open reservation or opens a new one. The head is that
  -- of an absent hash, or of one whose records are all open and expire after now and not after ttl_end. For any other operation or hash, it
  -- returns nothing.
  local function read_hash(name, id, ends, ttl_end)
    local found = try('HMGET', name, $HEAD_FIELD, id)
    local head, record = found[1], found[2]
    if ends == not record then return end
    if head == false then return 0, 0, ttl_end, record end
    if not head or #head ~= 24 then return end
    local key_expiry, counts, first, last = struct_unpack('>I4I4I8I8', head)
    if counts % $ONE_RECORD > 0 or first <= now or last > ttl_end then return end
    if counts >= $MAX_HASH_RECORDS * $ONE_RECORD and not ends then
      counts = (call('HLEN', name) - 1) * $ONE_RECORD
      if counts >= $MAX_HASH_RECORDS * $ONE_RECORD then return end
    end
    return key_expiry, counts, first, record
  end

  -- Deletes the record of a settled reservation, and returns its estimate. The hash is deleted with its last record, if counts is exact.
  local function delete_record(name, id, record, counts)
    if #record ~= 24 then error('an unreadable value', 0) end
    if counts == $ONE_RECORD then call('DEL', name) else call('HDEL', name, id) end
    return struct_unpack('>I8', record, 9)
  end

  -- Decides operations of a run, see decide_each in batch.lua.
  return function(run, to, values, base)
    local limit, reservations_limit, algorithm, least, ttl_end
    for op = run.current_op, to do
      run.current_op = op
      local at = run.ops_at + $RESERVATIONS_SIZE * (op - 1)
      local op_kind, id, index, limit_index, n, reservations_index = struct_unpack($RESERVATIONS_LAYOUT, text, at)
      if limit ~= limits[limit_index] then
        limit, reservations_limit = limits[limit_index], limits[limit_index + 1]
        algorithm = limit.algorithm
        least, ttl_end = least_expiry(reservations_limit.ttl, server), now + reservations_limit.ttl
      end
      local key, value = keys[index], values[index - base]
      local name, ends = names[reservations_index], op_kind == $END
      local key_expiry, counts, first, record
      if n >= 0 and id ~= $NO_ID and not keys[reservations_index] and not (key and key.failed) then
        key_expiry, counts, first, record = read_hash(name, id, ends, ttl_end)
      end

      if not key_expiry then
        local driver = loaded(index, limit, value)
        driver.decide_extra({ driver.op_of(run, op) })
      else
        -- Read the usage. A value that cannot be read is an error before anything is written.
        local quick = algorithm.settles_at_once and value ~= nil and not key
        if not quick then
          loaded(index, limit, value)
        elseif not value then
          value = call('GET', names[index])
        elseif ends then
          algorithm.check(value)
        end

        local delta, used, reset = n
        if ends then delta = n - delete_record(name, id, record, counts) end
        if quick and delta ~= 0 then used, reset = algorithm.quick(names[index], limit, now, value, delta, server) end
        if used then
          if not ends then open(name, id, reservations_limit, n, 0, key_expiry, counts, first, least, ttl_end) end
          local i = 4 * (run.first + op - 1)
          verdicts[i - 3], verdicts[i - 2], verdicts[i - 1], verdicts[i] = $ALLOWED, used, 0, reset
          values[index - base] = nil
        else
          local driver, key = loaded(index, limit, value)
          local settler, s = driver.settler_of(limit), key.state
          local allowed, retry, charged = true, 0, false
          if ends then
            charged = delta ~= 0 and settler.settle(s, limit, now, { { charged_at = struct_unpack('>I8', record, 17), delta = delta } })
          else
            allowed, retry = algorithm.fits(s, limit, now, n)
            if allowed then
              open(name, id, reservations_limit, n, settler.charged_at(s, limit, now), key_expiry, counts, first, least, ttl_end)
              charged = settler.charge(s, limit, now, n)
            end
          end
          if charged then key.charged = limit end
          driver.report(key, run.first + op - 1, limit, allowed, retry)
        end
      end
    end
  end
end
