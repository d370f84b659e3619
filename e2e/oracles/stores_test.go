package oracles

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// stores lists Weir's stores, each opened empty.
var stores = []struct {
	name string
	open func(*testing.T) limiterstest.TimedStore
}{
	{"memory", func(*testing.T) limiterstest.TimedStore { return memstore.New(memstore.Options{}) }},
	{"redis", func(t *testing.T) limiterstest.TimedStore { return openRedis(t, redistest.Start(t)) }},
}

func openRedis(t *testing.T, server *redistest.Server) limiterstest.TimedStore {
	var clock limiterstest.Clock
	store := redisstore.New(connect.Options{Addr: server.Addr, Timeout: time.Minute}, redisstore.Options{Now: clock.Now})
	t.Cleanup(func() { _ = store.Close() })
	return clock.Timed(store)
}
