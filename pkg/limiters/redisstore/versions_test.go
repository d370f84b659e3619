package redisstore

import (
	"context"
	"os"
	"testing"

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// The other tests use redis-server of the system. These servers come from tools/ensure redis-versions.
func TestOtherServersPassTheSuite(t *testing.T) {
	for _, variable := range []string{"REDIS_6_2_SERVER", "VALKEY_SERVER"} {
		t.Run(variable, func(t *testing.T) {
			path := os.Getenv(variable)
			if path == "" {
				if os.Getenv("REDIS_VERSIONS_REQUIRED") == "1" {
					t.Fatalf("%s is not set: run tools/ensure redis-versions", variable)
				}
				t.Skipf("%s is not set: run tools/ensure redis-versions", variable)
			}
			t.Setenv("REDIS_SERVER", path)
			server := redistest.Start(t)
			limiterstest.Run(t, func(t *testing.T) limiters.Store {
				if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
					t.Fatal(err)
				}
				return open(t, server)
			})
			limiterstest.Races(t, []limiters.Store{open(t, server), open(t, server), open(t, server)})
		})
	}
}
