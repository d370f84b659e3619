package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// If an ACL forbids MGET, each key is read by itself.
func TestMGETIsOptional(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.SetUser(t, "weir", slices.DeleteFunc(slices.Clone(aclRules), func(rule string) bool { return rule == "+mget" })...)
	s := openAt(t, connect.Options{Addr: server.Addr, Login: connect.Login{Username: "weir", Password: "secret"}}, Options{KeyPrefix: "weir:"})
	now := time.Unix(1_700_000_000, 0)
	for _, algorithm := range limiterstest.WindowedAlgorithms() {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: algorithm, Max: 3, Window: time.Hour})
		ops, verdicts := make([]limiters.Op, 1100), make([]limiters.Verdict, 1100) // more than are read at once
		for i := range ops {
			ops[i] = limiters.Op{Key: fmt.Sprint(algorithm, i), Limit: limit, Hits: 1}
		}
		for used := int64(1); used <= 4; used++ {
			must.Succeed(t, s.TakeAt(t.Context(), now, limiters.Singles(ops...), verdicts))
			for i, v := range verdicts {
				if v.Err != nil || v.Allowed != (used <= 3) || v.Used != min(used, 3) {
					t.Fatalf("%s, operation %d of key %d: %+v", algorithm, used, i, v)
				}
			}
		}
	}
}
