-- Returns the usage of a key, in hits.
local s = "-- whoever"
