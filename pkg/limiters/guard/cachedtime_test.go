package guard

import (
	"context"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A Take may look into the cache after another Take has put a denial there, and with an earlier
// time. Its denial is not dated before that one: a replay would allow the operation at such a time.
func TestCachedDenialIsDatedAfterItsDenial(t *testing.T) {
	l := limiterstest.MustLimit(limiters.Spec{Algorithm: limiters.DefaultAlgorithm, Max: 1, Window: time.Hour})
	c := NewDenyCache(memstore.New(memstore.Options{}), DenyCacheOptions{})
	defer c.Close(context.Background())
	began := c.clock()
	var denial [1]limiters.Verdict
	for range 2 {
		must.Succeed(t, c.Take(t.Context(), limiters.Singles(limiters.Op{Key: "k", Limit: l, Hits: 1}), denial[:]))
	}
	groups := limiters.Singles(limiters.Op{Key: "k", Limit: l, Hits: 1})
	var cached [1]limiters.Verdict
	if n, _ := c.denyOrForwardOps(began, groups, make([]opPath, 1), cached[:]); n != 0 {
		t.Fatal("the denial is not cached")
	}
	if cached[0].At < denial[0].At {
		t.Errorf("the cached denial is dated %d µs before the denial", denial[0].At-cached[0].At)
	}
}
