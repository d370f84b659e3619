// Package seeds holds Weir to the articles it began from. It has tests only.
//
// Each article shows a limiter (S1 to S11 below) and each has a flaw. Here the article's own commands run against a
// real Redis, and its classes in Go, as the oracle: the oracle and Weir judge the same trace and must give the same
// verdicts. Where they differ, the flaw has a test of its own that shows the two side by side; and that nothing else
// differs is shown by taking the flaw, and only it, out of the oracle: then the two agree on every try.
//
//	S1   EXISTS, GET, INCRBY, SETEX          fixed_window from the first hit
//	S2   a sorted set, pipelined             sliding_log
//	S3   a sorted set, in Lua                sliding_log
//	S4   a counter per minute                fixed_window
//	S5   class Funnel, in Python and Java    funnel
//	S6   the same in a Redis hash            funnel
//	S7   CL.THROTTLE                         funnel
//	S8   INCR on a key per second            fixed_window
//	S9   INCR on one key                     fixed_window from the first hit
//	S10  a list                              fixed_window from the first hit
//	S11  the leaky bucket                    funnel, capacity 1 for even spacing
//
// Four flaws are in the articles' code and not in what they say of it: S1's user is locked out when the key ends between
// GET and INCRBY; S2 in Java limits nothing when the period is a month; S3 counts before it removes; and S5's guard in
// Java never acts.
//
// Nothing sleeps: Weir is told the time, and so are the oracles (see oracle in harness_test.go).
package seeds
