// Package seeds holds Weir to the articles it began from. It has tests only.
//
// Each article shows a limiter (S1 to S11 below), and each limiter has a flaw. The tests run the article's own commands
// against a real Redis, or its classes in Go, as an oracle. Oracle and Weir judge the same trace and must give the same
// verdicts. Each flaw has a test that shows both sides. A further test removes only the flaw from the oracle and checks
// that both then agree on every try.
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
// Four flaws are in the articles' code but not in their text. S1 locks a user out if the key expires between GET and
// INCRBY. S2 in Java limits nothing if the period is a month. S3 counts before it removes. S5's guard in Java never acts.
//
// No test sleeps: Weir and the oracles take the time as an argument (see oracle in harness_test.go).
package seeds
