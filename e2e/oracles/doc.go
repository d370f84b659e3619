// Package oracles compares Weir with the limiters of the articles that inspired it. It has only
// tests.
//
// Each test runs an article's commands against a real Redis, or its classes in Go, as an oracle.
// Oracle and Weir decide the same trace and must agree. Each article's limiter has a flaw: a test
// shows the flaw beside Weir's behavior, and another test removes only the flaw from the oracle and
// checks that both then agree.
//
//	oracle                article                              Weir's algorithm
//	countdown             EXISTS, GET, INCRBY, SETEX           fixed_window from the first hit
//	zset                  a sorted set, pipelined              sliding_log
//	zsetLua               a sorted set, in Lua                 sliding_log
//	perMinute             a counter per minute                 fixed_window
//	pyFunnel, javaFunnel  class Funnel, in Python and Java     funnel
//	hash                  class Funnel, in a Redis hash        funnel
//	cell                  CL.THROTTLE                          funnel
//	perSecond             INCR on a key per second             fixed_window
//	oneCounter            INCR on one key                      fixed_window from the first hit
//	list                  a list                               fixed_window from the first hit
//	bucket                the leaky bucket                     funnel, capacity 1 for even spacing
//
// Four flaws are in the articles' code but not in their text. In countdown, a user is locked out if
// the key expires between GET and INCRBY. In Java, zset limits nothing if the period is a month.
// The script zsetLua counts before it removes. The guard of javaFunnel never acts.
//
// No test sleeps: Weir and the oracles take the time as an argument (see oracle in
// harness_test.go).
package oracles
