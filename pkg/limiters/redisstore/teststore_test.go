package redisstore

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A testStore is a Store whose time a test can set.
type testStore struct {
	*Store
	clock limiterstest.Clock
}

func newTestStore(c connect.Options, o Options) *testStore {
	s := &testStore{}
	o.Now = s.clock.Now
	s.Store = New(c, o)
	return s
}

// TakeAt implements [limiterstest.TimedStore].
func (s *testStore) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	return s.clock.Timed(s.Store).TakeAt(ctx, now, groups, out)
}
