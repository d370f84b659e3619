-- What every algorithm may use. MAX_HITS and MOST_HELD are those of pkg/limiters.
local MAX_HITS, MOST_HELD = 2 ^ 52, 2 ^ 33

-- numbers reads a value that consists of whole numbers as the pattern finds them. A value that does not is an error.
local function numbers(value, pattern)
  local found = { string.match(value, pattern) }
  if #found == 0 then error('an unreadable value', 0) end
  for i, digits in ipairs(found) do
    found[i] = tonumber(digits)
    if found[i] > 2 ^ 53 then error('an unreadable value', 0) end
  end
  return unpack(found)
end
