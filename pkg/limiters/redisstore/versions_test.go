package redisstore

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// The other tests use redis-server of the system. These servers come from tools/ensure
// redis-versions. With make stores, they pass all tests of this package.
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
			// The versions read the rules of ACLs differently.
			server.SetUser(t, "weir", slices.Concat(aclRules, clusterRules, adminRules)...)
			open := func(t *testing.T, server *redistest.Server) *testStore {
				t.Helper()
				return openAt(t, connect.Options{Addr: server.Addr, Login: connect.Login{Username: "weir", Password: "secret"}}, Options{KeyPrefix: "weir:"})
			}
			limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
				must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
				return open(t, server)
			})
			limiterstest.RunRaces(t, []limiters.Store{open(t, server), open(t, server), open(t, server)})
		})
	}
}
