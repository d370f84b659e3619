-- For it is a truth: KEYS[1] is what a key holds.
local s = 'anew' -- in vain
