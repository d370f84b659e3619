package differential

import (
	"slices"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A step is a request with the answer of each side, as answer.brief tells it.
type step struct {
	ask          *request
	theirs, ours string
}

// A difference is one that is meant, with the rules and the requests that show it. Rules are the descriptors of a
// domain of its own, named domain. Units are long, so that no window turns in between. OPEN in a reason: it follows
// from how Weir is, and is not yet in the list of DESIGN.md, Settings.
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

// differences are those that random requests do not make. Together with exceptions they are the whole list.
var differences = []difference{
	{
		name: "wildcards anywhere", domain: "wild",
		reason: "July: a star may stand anywhere, any number of times (ratelimit.md 1.4); January: at the end alone",
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
		reason: "DESIGN.md, Settings: matching compares keys and values, never joined text",
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
		reason: "DESIGN.md, Settings: key text; theirs lets counters of other entries run together (ratelimit.md §8, 10)",
		rules: `[{key: a, rate_limit: {unit: year, requests_per_unit: 5},
			descriptors: [{key: b, rate_limit: {unit: year, requests_per_unit: 5}}]}]`,
		steps: []step{
			{ask("keys", desc("a", "1_b_2")), "OK: OK 5/YEAR left 4", "OK: OK 5/YEAR left 4"},
			{ask("keys", desc("a", "1", "b", "2")), "OK: OK 5/YEAR left 3", "OK: OK 5/YEAR left 4"},
		},
	},
	{
		name: "unit_multiplier", domain: "multiplier",
		reason: "DESIGN.md, Settings: unit_multiplier in an override is honoured",
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
		reason: "after July (#1140): is_negative_hits gives back; January charges (ratelimit.md 2.3)",
		rules:  `[{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("refund", withHits(desc("k", "v"), 4)), "OK: OK 5/YEAR left 1", "OK: OK 5/YEAR left 1"},
			{ask("refund", refund(desc("k", "v"), 3)), "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0", "OK: OK 5/YEAR left 4"},
			{ask("refund", refund(desc("k", "v"), 9)), "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0", "OK: OK 5/YEAR left 5"},
		},
	},
	{
		name: "a limit of 0 counts nothing", domain: "zero",
		reason: "DESIGN.md, The algorithms: max 0 denies every n > 0 and writes nothing; so a look is denied from the first on, which " +
			"theirs is once one was denied. OPEN: not in DESIGN.md, Settings",
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
		reason: "DESIGN.md, Settings: gRPC codes; ratelimit.md §9: safe to differ",
		rules:  `[]`,
		steps: []step{
			{ask("", desc("k", "v")), "Unknown", "InvalidArgument"},
			{ask("codes"), "Unknown", "InvalidArgument"},
		},
	},
	{
		name: "huge hits", domain: "huge",
		reason: "theirs turns negative above 2^63, and then the key is an error until its window ends (ratelimit.md 2.3); " +
			"DESIGN.md: above 2^52 is read as 2^52",
		rules: `[{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps: []step{
			{ask("huge", withHits(desc("k", "v"), 1<<63)), "Unknown", "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
			{ask("huge", withHits(desc("k", "v"), 1<<64-1)), "Unknown", "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
			{ask("huge", desc("k", "v")), "Unknown", "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
		},
	},
	{
		name: "empty key", domain: "empty",
		reason: "Envoy's own check of the message asks for a key of one character or more",
		rules:  `[{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]`,
		steps:  []step{{ask("empty", noKey()), "OK: OK", "InvalidArgument"}},
	},
	{
		name: "bad override in an unknown domain", domain: "known",
		reason: "in a domain that it knows, the incumbent dies of it (ratelimit.md §8, 1): INVALID_ARGUMENT in both",
		rules:  `[]`,
		steps: []step{
			{ask("unknown", withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_UNKNOWN)), "OK: OK", "InvalidArgument"},
		},
	},
	{
		name: "override per week", domain: "week",
		reason: "Envoy's unit of an override has no week; the incumbent takes the number of its own unit for it. OPEN",
		rules:  `[]`,
		steps: []step{
			{ask("week", withLimit(desc("k", "v"), 5, 7)), "OK: OK 5/WEEK left 4", "InvalidArgument"},
		},
	},
	{
		name: "override without entries", domain: "none",
		reason: "DESIGN.md, Rules: a descriptor without entries is OK without a limit",
		rules:  `[]`,
		steps: []step{
			{ask("none", withLimit(desc(), 5, typev3.RateLimitUnit_YEAR)), "OK: OK 5/YEAR left 4", "OK: OK"},
		},
	},
	{
		name: "quota of July", domain: "quota",
		reason: "July: overall is over when all quotas are, and each is told as it is (ratelimit.md 2.4)",
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
		name: "a rule on trial and a request that stops", env: stopOn, domain: "trial",
		reason: "what is over in shadow mode denies nothing; theirs charges nothing else while it is over, and so lets all pass. OPEN",
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
		name: "quotas and a request that stops", env: stopOn, domain: "quotas",
		reason: "a quota that is over denies nothing while another has room; theirs charges nothing else while it is over. OPEN",
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
		name: "a counter twice in one request that stops", env: stopOn, domain: "twice",
		reason: "theirs holds each to the count before the request, which is not atomic (ratelimit.md §8, 14). " +
			"OPEN: that Weir tells the first, which alone would fit, as over",
		rules: `[{key: k, rate_limit: {unit: year, requests_per_unit: 3}}]`,
		steps: []step{
			{ask("twice", withHits(desc("k", "v"), 2), withHits(desc("k", "v"), 2)),
				"OVER_LIMIT: OK 3/YEAR left 1 | OVER_LIMIT 3/YEAR left 0",
				"OVER_LIMIT: OVER_LIMIT 3/YEAR left 0 | OVER_LIMIT 3/YEAR left 0"},
		},
	},
	{
		name: "the local cache and a larger limit", env: cacheOn, domain: "cached",
		reason: "ratelimit.md §8, 13 (#1077): theirs denies any limit once one is over; Weir remembers which",
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

// unindent makes YAML's flow style of what is indented with tabs in here.
func unindent(s string) string { return strings.ReplaceAll(s, "\t", "  ") }

// TestDifferences holds both sides to the differences that are meant: one that is gone is to leave the table.
func TestDifferences(t *testing.T) {
	incumbentBinary(t)
	for _, env := range []string{"", cacheOn, stopOn} {
		files := filesOfDifferences(env)
		var settings []string
		if env != "" {
			settings = []string{env}
		}
		theirs := startIncumbent(t, files, settings...)
		ours := startWeir(t, files, settings...)
		for _, d := range differences {
			if d.env != env {
				continue
			}
			t.Run(d.name, func(t *testing.T) {
				differs := slices.ContainsFunc(d.steps, func(s step) bool { return s.theirs != s.ours })
				if !differs {
					t.Error("no difference is asked for")
				}
				for i, s := range d.steps {
					if got := theirs.ask(t.Context(), s.ask); got.brief() != s.theirs {
						t.Errorf("step %d %v\nincumbent: %s %s\nwant:      %s", i, s.ask, got.brief(), errorText(got), s.theirs)
					}
					if got := ours.ask(t.Context(), s.ask); got.brief() != s.ours {
						t.Errorf("step %d %v\nweir: %s %s\nwant: %s", i, s.ask, got.brief(), errorText(got), s.ours)
					}
				}
			})
		}
	}
}
