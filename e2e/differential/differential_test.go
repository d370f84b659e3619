package differential

import (
	"flag"
	"slices"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/redistest"
)

// settings are the properties of a configuration that affect the comparison.
type settings struct {
	cached, globalShadow, globalQuota bool
	neverOver                         bool
	stops                             bool // a counter over its limit keeps the others from being charged
}

// A configuration is an environment for both sides. It gets rules of its own.
type configuration struct {
	name     string
	settings settings
	merged   bool // a domain is in two files
	second   bool // limits per second have a Redis of their own
	env      []string
}

var configurations = []configuration{
	{name: "plain"},
	{name: "plain again"},
	// By default Weir has a cache and envoyproxy/ratelimit none.
	{name: "local cache", settings: settings{cached: true},
		env: []string{"LOCAL_CACHE_SIZE_IN_BYTES=1048576"}},
	{name: "key prefix and jitter",
		env: []string{"CACHE_KEY_PREFIX=pre_{x}", "EXPIRATION_JITTER_MAX_SECONDS=0"}},
	{name: "headers", env: []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true"}},
	{name: "headers of other names", settings: settings{cached: true}, env: []string{
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LOCAL_CACHE_SIZE_IN_BYTES=1048576",
		"LIMIT_LIMIT_HEADER=x-limit", "LIMIT_REMAINING_HEADER=x-left", "LIMIT_RESET_HEADER=x-reset"}},
	{name: "shadow of all", settings: settings{globalShadow: true, neverOver: true},
		env: []string{"SHADOW_MODE=true"}},
	{name: "quota of all",
		settings: settings{globalQuota: true, neverOver: true},
		env:      []string{"QUOTA_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true"}},
	{name: "dynamic metadata", env: []string{"RESPONSE_DYNAMIC_METADATA=true"}},
	{name: "merged domains", merged: true, env: []string{"MERGE_DOMAIN_CONFIG=true"}},
	{name: "stop increment", settings: settings{stops: true},
		env: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"}},
	{name: "a Redis for seconds", second: true, env: []string{"REDIS_PERSECOND=true"}},
}

// Both sides must give the same answers to thousands of random requests under each configuration.
func TestRandomRequestsGetSameAnswers(t *testing.T) {
	harness.MustFindRatelimit(t)
	// Run returns after all parallel subtests.
	t.Run("of", func(t *testing.T) {
		for i, c := range configurations {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				sameAnswers(t, c, uint64(i))
			})
		}
	})
	for _, e := range exceptions {
		// An exception without a rewrite depends on the time of day. One that nothing needs must
		// leave the table.
		if e.rewrite != nil && counted.of[e.name] == 0 && flag.Lookup("test.run").Value.String() == "" {
			t.Errorf("the exception %q was never needed", e.name)
		}
	}
}

func sameAnswers(t *testing.T, c configuration, stream uint64) {
	g := newGenerator(stream)
	g.calm = c.settings.stops
	ds := g.domains(c.merged)
	files := filesOf(t, ds)
	env := func() []string {
		if !c.second {
			return c.env
		}
		return append(slices.Clone(c.env), "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+redistest.Start(t).Addr)
	}
	theirs := startRatelimit(t, files, env()...)
	ours := startWeir(t, files, env()...)
	compare := newComparison(theirs, ours, c.settings)
	random := &requestsFor{generator: g, ds: ds}
	// A busy machine discards more requests, because windows end meanwhile. They do not count.
	for compare.sent-compare.turned < *requests {
		compare.compare(t, random.next())
	}
	compare.sum(t)
	harness.MustStop(t, ours.Process)
	if t.Failed() {
		for _, f := range files {
			t.Logf("%s:\n%s", f.name, f.text)
		}
		t.Logf("to repeat: go test ./e2e/differential -run '%s$' -seed %d -requests %d", t.Name(), *seed, *requests)
	}
}
