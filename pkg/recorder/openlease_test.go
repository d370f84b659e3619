package recorder

import (
	"context"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A canceled request gives up only the lease that it opened, not that of an earlier request.
func TestReplayKeepsTheLeaseOfAnEarlierRequest(t *testing.T) {
	rules := rulesfiletest.Parse(t, `
domain: shop
descriptors:
  - {key: user, descriptors: [{key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1, lease_ttl: 1h}}]}
  - {key: team, descriptors: [{key: lease, rate_limit: {unit: day, requests_per_unit: 1, reserve: {ttl: 1h, unsettled: charge}}}]}
`)
	dir := t.TempDir()
	r := New(Options{Path: dir, Sample: 1, Secret: []byte("0123456789abcdef")})
	now := time.UnixMicro(1_795_373_037_431_903)
	canceled := func() {}
	store := firstStore{memstore.New(memstore.Options{Now: func() time.Time { return now }}), 0, func() { canceled() }}
	d := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
	lease := func(key, id string) decide.Descriptor {
		return decide.Descriptor{Hits: 1, Entries: []descriptors.Entry{{Key: key, Value: "u"}, {Key: "lease", Value: id}}}
	}
	step := func(cancels bool, ds ...decide.Descriptor) {
		var result decide.Result
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		canceled = func() {}
		if cancels {
			canceled = cancel
		}
		_ = d.Decide(ctx, &decide.Request{Domain: "shop", Descriptors: ds}, &result)
		r.Record(&result)
		now = now.Add(time.Millisecond)
	}
	step(false, lease("user", "a"))
	step(true, lease("user", "a"), lease("team", "a"))
	step(false, lease("user", "b"))
	must.Succeed(t, r.Close(context.Background()))
	all, _ := lines(t, dir)
	expectOutcomes(t, rules, all)
}
