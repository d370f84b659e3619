package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/redistest"
)

// The deny cache denies keys over their limits without a call to Redis, until the rules change. The
// server counts the remaining denied hits in Redis when it stops.
func TestDenyCacheAnswersBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	// With an hour, no denial expires during the test.
	s := startServer(t, "CONFIG_PATH="+path, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "DENY_CACHE_MAX=1h")
	_, seen := s.log.await(t, 0, "rules loaded")
	for i := range 7 {
		if got, want := s.remaining("alice"), uint32(max(0, 2-i)); got != want {
			t.Errorf("request %d: %d left, want %d", i, got, want)
		}
	}
	held := func(want uint64) {
		t.Helper()
		client, ctx := redis.Client(t), context.Background()
		keys := client.Keys(ctx, "*").Val()
		if len(keys) != 1 {
			t.Fatalf("redis has the keys %q, want one", keys)
		}
		// The start of the window, and its count.
		if got := client.Get(ctx, keys[0]).Val(); len(got) != 16 || binary.BigEndian.Uint64([]byte(got[8:])) != want {
			t.Errorf("redis holds %q, want a count of %d", got, want)
		}
	}
	held(3)
	for name, want := range map[string]string{
		"weir_deny_cache_asked_total": "7", "weir_deny_cache_answered_total": "4", "weir_deny_cache_entries": "1",
		"weir_store_duration_seconds_count":                                                     "3",
		`ratelimit_service_rate_limit_over_limit_with_local_cache{domain="ugc",key1="user_id"}`: "4",
		`ratelimit_service_rate_limit_over_limit{domain="ugc",key1="user_id"}`:                  "5",
	} {
		if got := s.metricOrNone(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}

	write(t, path, strings.Replace(rules, "{unit", "{name: again, unit", 1))
	s.log.await(t, seen, "rules loaded")
	s.remaining("alice") // writes the denied hits too
	held(8)
	s.remaining("alice")
	held(8)
	s.stop()
	held(9)
}

func TestDenyCacheCanBeDisabled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, with := range []string{"LOCAL_CACHE_SIZE_IN_BYTES=0", "BACKEND_TYPE=memory"} {
		s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, with)
		for range 5 {
			s.remaining("alice")
		}
		if got := s.metricOrNone("weir_deny_cache_asked_total") + s.metricOrNone("weir_store_duration_seconds_count"); got != fmt.Sprint("none", 5) {
			t.Errorf("%s: %s, want none and 5", with, got)
		}
	}
}
