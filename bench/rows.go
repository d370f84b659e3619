package main

import (
	"context"

	"github.com/weir-rls/weir/internal/loadclient"
)

// A row is one load on several servers.
type row struct {
	name, title string
	about       string // above the table: the load, and the meaning of a row
	first       string // the header of the first column; empty means a server
	subjects    []subject
	cases       []load  // one, or one for each x
	x           string  // the meaning of x, in a row of several cases
	alternates  bool    // the measurements of a subject and of its baseline, which comes first, alternate
	baseline    subject // of every subject; empty means the same subject without its further settings
	gobench     *gobench
	commands    func(context.Context, binaries) ([]*measurement, error)
}

// A load describes the requests sent to each subject.
type load struct {
	x        float64
	request  *loadclient.Request
	users    *loadclient.Users
	conns    int
	inflight int
	rate     float64 // requests/s, without waiting for answers; 0: as many as there are answers
	atBest   bool    // the rate is the one that envoyproxy/ratelimit reaches in row "one"
	fill     int     // users that send a request before the measurement
	times    int     // requests of each of them; 0 means 1
	open     int     // open leases of each user, for subjects with leases

	ruled int      // users with rules of their own
	proxy bool     // behind Envoy
	env   []string // Weir's environment
}

var (
	memory = []subject{"memory/fixed_window", "memory/sliding_log", "memory/funnel"}
	redis  = []subject{"redis/fixed_window", "redis/sliding_log", "redis/funnel"}
	both   = append(append([]subject{bare}, memory...), append(redis, ratelimit)...)
	few    = []subject{"memory/fixed_window", "redis/fixed_window", ratelimit}
	// pairs has each store with observedSettings and without.
	pairs = []subject{"memory/fixed_window", "memory/fixed_window/" + observed, "redis/fixed_window", "redis/fixed_window/" + observed}
	// shadowed has each store with a shadow file and without.
	shadowed = []subject{"memory/fixed_window", "memory/fixed_window/" + shadow, "redis/fixed_window", "redis/fixed_window/" + shadow}
	// recordings has each store with a recording of all keys, of a tenth of them, and without.
	recordings = []subject{
		"memory/fixed_window", "memory/fixed_window/" + recorded, "memory/fixed_window/" + sampled,
		"redis/fixed_window", "redis/fixed_window/" + recorded, "redis/fixed_window/" + sampled,
	}
)

const tenThousand = 10_000

// baseLoad returns the load of the first row: 4 connections with 16 requests in flight on each, one
// descriptor of two entries and 10,000 users with equal probability. Other rows change one thing.
func baseLoad(change func(l *load)) load {
	l := load{request: loadclient.NewRequest(domain, action(0)), users: loadclient.Uniform(tenThousand), conns: 4, inflight: 16}
	if change != nil {
		change(&l)
	}
	return l
}

// sweep returns a case for each x.
func sweep(values []float64, change func(l *load, x float64)) (cases []load) {
	for _, x := range values {
		cases = append(cases, baseLoad(func(l *load) {
			l.x = x
			change(l, x)
		}))
	}
	return cases
}

// openLeases is the number of open leases of all users. The row of the leases has fewer users if
// each has more leases.
const openLeases = 100_000

// of returns the load of a subject. If the subject has leases, half of its requests open a lease,
// and half end the oldest one. The cost that a reservation settles differs from its estimate.
func (l load) of(s subject) load {
	if l.open == 0 {
		return l
	}
	users := openLeases / l.open
	l.request, l.users = loadclient.NewRequest(domain, daily), loadclient.Uniform(users)
	switch s {
	case "redis/concurrency":
		l.request, l.users = loadclient.NewLeaseRequest(domain, daily, "release", 1, 1), loadclient.Leasing(users, openLeases)
	case "redis/reserve":
		l.request, l.users = loadclient.NewLeaseRequest(domain, daily, "settle", 10, 8), loadclient.Leasing(users, openLeases)
	}
	return l
}

func rows() []row {
	single := func(change func(l *load)) []load { return []load{baseLoad(change)} }
	return []row{
		{
			name: "one", title: "One descriptor",
			about:    "Every server decides requests with one descriptor.",
			subjects: both, cases: single(nil),
		}, {
			name: "five", title: "Five descriptors",
			about:    "Every server decides requests with five descriptors.",
			subjects: both,
			cases:    single(func(l *load) { l.request = loadclient.NewRequest(domain, firstActions(5)...) }),
		}, {
			name: "over", title: "All over limit",
			about:    "Every user has used up its limit before the measurement, so every request is denied.",
			subjects: both,
			cases: single(func(l *load) {
				// Each user has used its one hit and has received one denial.
				l.request, l.fill, l.times = loadclient.NewRequest(domain, once), tenThousand, 2
			}),
		}, {
			name: "hot", title: "One hot key",
			about:    "All requests have the same user, so they charge one key.",
			subjects: both,
			cases:    single(func(l *load) { l.users = loadclient.Uniform(1) }),
		}, {
			name: "zipf", title: "A Zipf mix: the exponent is 1",
			about:    "A few of the 10,000 users send most requests.",
			subjects: both,
			cases:    single(func(l *load) { l.users = loadclient.Zipf(tenThousand, 1) }),
		}, {
			name: "single", title: "One at a time",
			about:    "One connection sends one request at a time and waits for the answer.",
			subjects: both,
			cases:    single(func(l *load) { l.conns, l.inflight = 1, 1 }),
		}, {
			name: "paced", title: "At the highest rate of envoyproxy/ratelimit",
			about:    "Requests are sent at the highest rate that ratelimit reached with one descriptor, without waiting for answers.",
			subjects: append(redis, ratelimit),
			cases:    single(func(l *load) { l.atBest, l.inflight = true, 128 }),
		}, {
			name: "envoy", title: "Through a real Envoy with one worker",
			about:    "Clients send HTTP requests to Envoy, which asks the server about each.",
			subjects: append([]subject{bare}, few...),
			cases: single(func(l *load) {
				l.request, l.inflight, l.proxy = loadclient.Get(action(0)), 8, true
			}),
		}, {
			name: "observed", title: "With busiest keys, denial log, denied-by header and receipts",
			about:    "Each pair of rows is Weir without these settings and with them (`observed`). No request is denied.",
			subjects: pairs, alternates: true,
			cases: single(nil),
		}, {
			name: "observed-over", title: "The same, all over limit",
			about:    "Each pair of rows is Weir without these settings and with them (`observed`). Every request is denied.",
			subjects: pairs, alternates: true,
			cases: single(func(l *load) { l.request, l.fill, l.times = loadclient.NewRequest(domain, once), tenThousand, 2 }),
		}, {
			name: "shadow", title: "With a shadow file",
			about:    "Each pair of rows is Weir without a shadow file and with one (`shadow`).",
			subjects: shadowed, alternates: true, cases: single(nil),
		}, {
			name: "recorded", title: "With a recording of all keys, or of a tenth of them",
			about:    "Rows are Weir without a recording, with a recording of all keys (`recorded`), and of a tenth of them (`sampled`).",
			subjects: recordings, alternates: true, cases: single(nil),
		}, {
			name: "record", first: "key", title: "A line of a recording on the path of its request",
			about:   "The Go benchmark `BenchmarkRecord` measures the time that one request spends on its line. In row `all`, its key is in the sample, and in row `none`, it is not.",
			gobench: &gobench{pkg: "./pkg/recorder", pattern: "^BenchmarkRecord$", unit: "ns/op"},
		}, {
			name: "leases", title: "Leases and reservations, by the number of open ones of a user",
			about:    "Users open and end leases on Redis. A row is an algorithm with a number of open leases for each user.",
			x:        "open leases",
			subjects: []subject{"redis/funnel", "redis/concurrency", "redis/reserve"}, alternates: true, baseline: "redis/funnel",
			cases: sweep([]float64{10, 1000}, func(l *load, x float64) { l.open = int(x) }),
		},
	}
}

func scaleRows() []row {
	var settings []subject
	for _, known := range ratelimitSettings {
		settings = append(settings, known.name)
	}
	return []row{
		{
			name: "keys", title: "The number of keys",
			about: "The number of users grows, and each user has one key. A row is a server with a number of keys.",
			x:     "keys", subjects: few[:2],
			cases: sweep([]float64{1e3, 1e4, 1e5, 1e6, 1e7}, func(l *load, x float64) {
				l.request, l.fill, l.users = loadclient.NewRequest(domain, daily), int(x), loadclient.Uniform(int(x))
				// Raise Weir's own bounds above the number of keys, and bound the heap to the
				// machine.
				l.env = []string{"MEMORY_MAX_KEYS=20000000", "MEMORY_MAX_BYTES=17179869184", "GOMEMLIMIT=8GiB"}
			}),
		}, {
			name: "rules", title: "The number of rules",
			about: "The number of rules grows, and each user has a rule. A row is a server with a number of rules.",
			x:     "rules", subjects: few,
			cases: sweep([]float64{10, 1e2, 1e3, 1e4, 1e5}, func(l *load, x float64) {
				l.users, l.ruled = loadclient.Uniform(1e5), int(x)
			}),
		}, {
			name: "descriptors", title: "The number of descriptors",
			about: "The number of descriptors in each request grows. A row is a server with a number of descriptors.",
			x:     "descriptors", subjects: few,
			cases: sweep([]float64{1, 2, 5, 10, 20}, func(l *load, x float64) {
				l.request = loadclient.NewRequest(domain, firstActions(int(x))...)
			}),
		}, {
			name: "skew", title: "The skew of users: Zipf's exponent, from uniform (0) to nearly one user (10)",
			about: "A larger exponent gives more of the requests to fewer users. A row is a server with an exponent.",
			x:     "exponent", subjects: few,
			cases: sweep([]float64{0, 0.9, 1.2, 10}, func(l *load, x float64) { l.users = loadclient.Zipf(tenThousand, x) }),
		}, {
			name: "settings", title: "Settings of envoyproxy/ratelimit",
			about:    "Rows are envoyproxy/ratelimit with different settings.",
			subjects: settings, cases: []load{baseLoad(nil)},
		}, {
			name: "match", first: "rules matched", title: "A match, by the number of rules",
			about:   "The Go benchmark `BenchmarkMatch` matches one descriptor. `all` matches rules in random order, and `one` the same rule each time.",
			x:       "rules",
			gobench: &gobench{pkg: "./bench", pattern: "^BenchmarkMatch$", unit: "ns/op"},
		}, {
			name: "responses", first: "response", title: "A request from bytes to bytes, without a connection, by the parts of its response",
			about:   "The Go benchmark `BenchmarkResponse` decodes, decides and encodes one request. A row is a kind of response.",
			gobench: &gobench{pkg: "./pkg/rls", pattern: "^BenchmarkResponse$", unit: "ns/op"},
		}, {
			name: "replay", first: "command", title: "A command on a recording of 1,000,000 requests of 103,895 users",
			about:    "A row is one command of Weir that reads a recording.",
			commands: replayCommands,
		}, {
			name: "memory", first: "algorithm", title: "Memory for a key of 40 bytes",
			about:   "The Go benchmark `BenchmarkMemoryPerKey` measures the heap of the memory store. A row is an algorithm.",
			gobench: &gobench{pkg: "./pkg/limiters/memstore", pattern: "^BenchmarkMemoryPerKey$", unit: "bytes/key"},
		}, {
			name: "bytes-memory", first: "algorithm", title: "Weir's memory for a key of 40 bytes with one hit, with 17 and with 1000 hits",
			about:   "The Go benchmark `BenchmarkKeyBytes` measures the heap of the memory store. A row is an algorithm, or a fixed window with a penalty or with reservations. `_17` and `_1000` are the hits of a key.",
			x:       "keys",
			gobench: &gobench{pkg: "./pkg/limiters/memstore", pattern: "^BenchmarkKeyBytes$", unit: "bytes/key"},
		}, {
			name: "bytes-redis", first: "algorithm", title: "Redis' memory for a key of 40 bytes with one hit, with 17 and with 1000 hits",
			about:   "The Go benchmark `BenchmarkKeyBytes` measures the memory of Redis. A row is an algorithm, or a fixed window with a penalty or with reservations. `_17` and `_1000` are the hits of a key.",
			x:       "keys",
			gobench: &gobench{pkg: "./pkg/limiters/redisstore", pattern: "^BenchmarkKeyBytes$", unit: "bytes/key"},
		},
	}
}
