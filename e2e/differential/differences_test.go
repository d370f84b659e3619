package differential

import (
	"slices"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/e2e/harness"
)

// A step is a request with the answers of both sides, as texts of answer.brief.
type step struct {
	ask          *request
	theirs, ours string
}

// A difference is intentional. Its rules are the descriptors of a domain of its own; its steps show
// the difference. The units are long, so that no window turns between two steps. "January" and
// "July" are versions of envoyproxy/ratelimit in 2026: the tests run January's, and Weir follows
// July's.
type difference struct {
	name, reason string
	env          string
	domain       string
	rules        string
	steps        []step
}

const (
	cacheOn = "LOCAL_CACHE_SIZE_IN_BYTES=1048576"
	stopOn  = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"
)

func refund(d *descriptor, n uint64) *descriptor {
	d.IsNegativeHits = true
	return withHits(d, n)
}

func withMultiplier(d *descriptor, n uint32) *descriptor {
	d.Limit.UnitMultiplier = wrapperspb.UInt32(n)
	return d
}

func noKey() *descriptor {
	return &descriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Value: "v"}}}
}

// differences are the intentional differences that random requests do not meet. Together with
// exceptions the list is complete.
var differences = []difference{
	{
		name: "wildcards anywhere", domain: "wild",
		reason: "July allows any number of stars at any position, January one star at the end",
		rules: `[{key: mid, value: a*c, rate_limit: {unit: year, requests_per_unit: 5}},
			{key: lead, value: '*z', rate_limit: {unit: year, requests_per_unit: 5}},
			{key: two, value: '*m*', rate_limit: {unit: year, requests_per_unit: 5}},
			{key: 'i*x', value: v, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("wild", desc("mid", "abc")), "OK: OK", "OK: OK 5/YEAR left 4"},
			{ask("wild", desc("mid", "ac")), "OK: OK", "OK: OK 5/YEAR left 4"},
			{ask("wild", desc("mid", "a*c")), "OK: OK 5/YEAR left 4", "OK: OK 5/YEAR left 4"},
			{ask("wild", desc("mid", "acb")), "OK: OK", "OK: OK"},
			{ask("wild", desc("lead", "xyz")), "OK: OK", "OK: OK 5/YEAR left 4"},
			{ask("wild", desc("two", "m")), "OK: OK", "OK: OK 5/YEAR left 4"},
			{ask("wild", desc("ifx", "v")), "OK: OK", "OK: OK 5/YEAR left 4"},
		},
	},
	{
		name: "matching by pairs", domain: "pairs",
		reason: "Weir compares keys and values, never joined text",
		rules: `[{key: a, value: b_c, rate_limit: {unit: year, requests_per_unit: 5}},
			{key: x_y, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("pairs", desc("a", "b_c")), "OK: OK 5/YEAR left 4", "OK: OK 5/YEAR left 4"},
			{ask("pairs", desc("a_b", "c")), "OK: OK 5/YEAR left 3", "OK: OK"},
			{ask("pairs", desc("x", "y")), "OK: OK 5/YEAR left 4", "OK: OK"},
			{ask("pairs", desc("x_y", "z")), "OK: OK 5/YEAR left 4", "OK: OK 5/YEAR left 4"},
		},
	},
	{
		name: "keys by pairs", domain: "keys",
		reason: "entries with the same joined text share a counter of envoyproxy/ratelimit, but not of Weir",
		rules: `[{key: a, rate_limit: {unit: year, requests_per_unit: 5},
			descriptors: [{key: b, rate_limit: {unit: year, requests_per_unit: 5}}]}]`,
		steps: []step{
			{ask("keys", desc("a", "1_b_2")), "OK: OK 5/YEAR left 4", "OK: OK 5/YEAR left 4"},
			{ask("keys", desc("a", "1", "b", "2")), "OK: OK 5/YEAR left 3", "OK: OK 5/YEAR left 4"},
		},
	},
	{
		name: "unit_multiplier", domain: "multiplier",
		reason: "Weir applies unit_multiplier in an override",
		rules:  `[]`,
		steps: []step{
			{
				ask("multiplier", withMultiplier(withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_YEAR), 3)),
				"OK: OK 5/YEAR left 4", "OK: OK 5/YEAR*3 left 4",
			},
		},
	},
	{
		name: "refund", domain: "refund",
		reason: "is_negative_hits refunds since envoyproxy/ratelimit#1140; January charges",
		rules:  `[{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("refund", withHits(desc("k", "v"), 4)), "OK: OK 5/YEAR left 1", "OK: OK 5/YEAR left 1"},
			{ask("refund", refund(desc("k", "v"), 3)), "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0", "OK: OK 5/YEAR left 4"},
			{ask("refund", refund(desc("k", "v"), 9)), "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0", "OK: OK 5/YEAR left 5"},
		},
	},
	{
		name: "a limit of 0 counts nothing", domain: "zero",
		reason: "a limit of 0 denies every hit and writes nothing, so Weir denies the first peek; envoyproxy/ratelimit denies peeks " +
			"only after a denied hit",
		rules: `[{key: z, rate_limit: {unit: year, requests_per_unit: 0}}]`,
		steps: []step{
			{ask("zero", withHits(desc("z", "v"), 0)), "OK: OK 0/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0"},
			{ask("zero", desc("z", "v")), "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0"},
			{ask("zero", withHits(desc("z", "v"), 0)), "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0"},
			{ask("zero", withLimit(desc("z", "v"), 5, typev3.RateLimitUnit_YEAR)),
				"OK: OK 5/YEAR left 3", "OK: OK 5/YEAR left 4"},
		},
	},
	{
		name: "gRPC codes", domain: "codes",
		reason: "Weir returns INVALID_ARGUMENT for invalid requests; to Envoy every error is the same",
		rules:  `[]`,
		steps: []step{
			{ask("", desc("k", "v")), "Unknown", "InvalidArgument"},
			{ask("codes"), "Unknown", "InvalidArgument"},
		},
	},
	{
		name: "huge hits", domain: "huge",
		reason: "a counter of envoyproxy/ratelimit overflows at 2^63, and then every request is an error until the window ends; " +
			"Weir caps hits at 2^52",
		rules: `[{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("huge", withHits(desc("k", "v"), 1<<63)), "Unknown", "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
			{ask("huge", withHits(desc("k", "v"), 1<<64-1)), "Unknown", "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
			{ask("huge", desc("k", "v")), "Unknown", "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
		},
	},
	{
		name: "empty key", domain: "empty",
		reason: "Envoy's validation of the message requires a key of at least one character",
		rules:  `[{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps:  []step{{ask("empty", noKey()), "OK: OK", "InvalidArgument"}},
	},
	{
		name: "bad override in an unknown domain", domain: "known",
		reason: "in a known domain envoyproxy/ratelimit crashes on it; Weir returns INVALID_ARGUMENT in both cases",
		rules:  `[]`,
		steps: []step{
			{ask("unknown", withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_UNKNOWN)), "OK: OK", "InvalidArgument"},
		},
	},
	{
		name: "override per week", domain: "week",
		reason: "Envoy has no week as the unit of an override; envoyproxy/ratelimit reads the number as its own unit",
		rules:  `[]`,
		steps: []step{
			{ask("week", withLimit(desc("k", "v"), 5, 7)), "OK: OK 5/WEEK left 4", "InvalidArgument"},
		},
	},
	{
		name: "override without entries", domain: "none",
		reason: "Weir answers a descriptor without entries with OK and no limit",
		rules:  `[]`,
		steps: []step{
			{ask("none", withLimit(desc(), 5, typev3.RateLimitUnit_YEAR)), "OK: OK 5/YEAR left 4", "OK: OK"},
		},
	},
	{
		name: "quota of July", domain: "quota",
		reason: "July denies the request if all quotas are over, and reports the code of each",
		rules: `[{key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}},
			{key: p, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("quota", withHits(desc("q", "v"), 2), desc("p", "v")),
				"OK: OK 1/YEAR left 0 | OK 5/YEAR left 4", "OK: OVER_LIMIT 1/YEAR left 0 | OK 5/YEAR left 4"},
			{ask("quota", desc("q", "v")), "OK: OK 1/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"},
			{ask("quota", desc("q", "v"), withHits(desc("p", "v"), 9)), "OK: OK 1/YEAR left 0 | OK 5/YEAR left 0",
				"OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 5/YEAR left 0"},
		},
	},
	{
		name: "a rule in shadow mode with all-or-nothing", env: stopOn, domain: "trial",
		reason: "a rule in shadow mode denies nothing; while it is over, envoyproxy/ratelimit charges no other limit and lets all requests pass",
		rules: `[{key: trial, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}},
			{key: real, rate_limit: {unit: year, requests_per_unit: 2}}]`,
		steps: []step{
			{ask("trial", desc("trial", "v"), desc("real", "v")), "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1", "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1"},
			{ask("trial", desc("trial", "v"), desc("real", "v")), "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1", "OK: OK 1/YEAR left 0 | OK 2/YEAR left 0"},
			{ask("trial", desc("trial", "v"), desc("real", "v")), "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1",
				"OVER_LIMIT: OK 1/YEAR left 0 | OVER_LIMIT 2/YEAR left 0"},
		},
	},
	{
		name: "quotas with all-or-nothing", env: stopOn, domain: "quotas",
		reason: "a quota denies nothing while another has room; while one is over, envoyproxy/ratelimit charges no other limit",
		rules: `[{key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}},
			{key: p, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}]`,
		steps: []step{
			{ask("quotas", desc("q", "v"), desc("p", "v")), "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1", "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1"},
			{ask("quotas", desc("q", "v"), desc("p", "v")), "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1", "OK: OVER_LIMIT 1/YEAR left 0 | OK 2/YEAR left 0"},
			{ask("quotas", desc("q", "v"), desc("p", "v")), "OK: OK 1/YEAR left 0 | OK 2/YEAR left 1",
				"OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 2/YEAR left 0"},
		},
	},
	{
		name: "one counter twice in a request with all-or-nothing", env: stopOn, domain: "twice",
		reason: "envoyproxy/ratelimit checks each hit against the count before the request, which is not atomic; Weir checks the sum, " +
			"and denies both",
		rules: `[{key: k, rate_limit: {unit: year, requests_per_unit: 3}}]`,
		steps: []step{
			{ask("twice", withHits(desc("k", "v"), 2), withHits(desc("k", "v"), 2)),
				"OVER_LIMIT: OK 3/YEAR left 1 | OVER_LIMIT 3/YEAR left 0",
				"OVER_LIMIT: OVER_LIMIT 3/YEAR left 0 | OVER_LIMIT 3/YEAR left 0"},
		},
	},
	{
		name: "the local cache and a larger limit", env: cacheOn, domain: "cached",
		reason: "once a counter is over one limit, their cache denies it under every limit (envoyproxy/ratelimit#1077); Weir's caches the limit, too",
		rules:  `[]`,
		steps: []step{
			{ask("cached", withHits(withLimit(desc("k", "v"), 1, typev3.RateLimitUnit_YEAR), 2)),
				"OVER_LIMIT: OVER_LIMIT 1/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"},
			{ask("cached", withLimit(desc("k", "v"), 9, typev3.RateLimitUnit_YEAR)),
				"OVER_LIMIT: OVER_LIMIT 9/YEAR left 0", "OK: OK 9/YEAR left 6"},
		},
	},
}

func filesOfDifferences(env string) (files []file) {
	for _, d := range differences {
		if d.env == env {
			files = append(files, file{d.domain + ".yaml", "domain: " + d.domain + "\ndescriptors: " + unindent(d.rules) + "\n"})
		}
	}
	return files
}

// unindent turns the tabs of a Go raw string into spaces, which YAML requires.
func unindent(s string) string { return strings.ReplaceAll(s, "\t", "  ") }

// Both sides must give the answers in the table, so that an obsolete difference fails.
func TestIntentionalDifferencesAreCurrent(t *testing.T) {
	harness.MustFindRatelimit(t)
	for _, env := range []string{"", cacheOn, stopOn} {
		files := filesOfDifferences(env)
		var settings []string
		if env != "" {
			settings = []string{env}
		}
		theirs := startRatelimit(t, files, settings...)
		ours := startWeir(t, files, settings...)
		for _, d := range differences {
			if d.env != env {
				continue
			}
			t.Run(d.name, func(t *testing.T) {
				differs := slices.ContainsFunc(d.steps, func(s step) bool { return s.theirs != s.ours })
				if !differs {
					t.Error("the steps show no difference")
				}
				for i, s := range d.steps {
					if got := theirs.ask(t.Context(), s.ask); got.brief() != s.theirs {
						t.Errorf("step %d %v\nenvoyproxy/ratelimit: %s %s\nwant: %s", i, s.ask, got.brief(), errorText(got), s.theirs)
					}
					if got := ours.ask(t.Context(), s.ask); got.brief() != s.ours {
						t.Errorf("step %d %v\nweir: %s %s\nwant: %s", i, s.ask, got.brief(), errorText(got), s.ours)
					}
				}
			})
		}
	}
}
