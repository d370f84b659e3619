package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// leaseOps returns operations that open and end leases. So many stay open on each key.
type leaseOps struct {
	limit  *limiters.Limit
	keys   []string
	open   int
	opened int
	ended  int
}

// next returns an operation that opens a lease, or the end of the oldest open lease; a limit
// without leases gets a charge instead.
func (l *leaseOps) next(end bool) limiters.Op {
	number := l.opened
	if end && l.limit.UsesLeases() {
		number = l.ended
		l.ended++
	} else {
		end = false
		l.opened++
	}
	// The keys that a call opens leases on differ from those of its ends.
	shift := number / (l.open * len(l.keys)) * (len(l.keys) / 2)
	op := limiters.Op{Key: l.keys[(number+shift)%len(l.keys)], Limit: l.limit, Hits: 1, Kind: endOrCharge(end)}
	if l.limit.UsesLeases() {
		op.Lease = leaseID(number)
	}
	if !l.limit.IsConcurrency() {
		op.Hits = estimate
		if end {
			op.Hits = actual
		}
	}
	return op
}

// The operations that open a reservation and settle it, as in the row of bench that has a target.
const estimate, actual = 10, 8

// BenchmarkLeases measures the cost of an operation for Redis by the number of open leases of each
// key. Each call has 24 operations, half of which end a lease.
func BenchmarkLeases(b *testing.B) {
	const size = 24
	window := func(params limiters.Params) limiters.Spec {
		return limiters.Spec{Algorithm: "funnel", Max: 1_000_000, Window: 24 * time.Hour, Params: params}
	}
	for _, subject := range []struct {
		name string
		spec limiters.Spec
	}{
		{"funnel", window(limiters.Params{})},
		{"concurrency", limiters.Spec{Algorithm: "concurrency", Max: limiters.MaxLeases, Params: limiters.Params{LeaseTTL: time.Hour}}},
		{"reserve", window(limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Hour}})},
	} {
		for _, open := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%s/%d", subject.name, open), func(b *testing.B) {
				server := redistest.Start(b)
				s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, Options{})
				defer s.Close()
				l := &leaseOps{limit: limiterstest.MustLimit(subject.spec), open: open}
				for i := range 100 {
					l.keys = append(l.keys, fmt.Sprintf("3:ugc 7:user_id=12:user%08d 6:action=4:post", i))
				}
				ops, out := make([]limiters.Op, size), make([]limiters.Verdict, size)
				call := func(ends int) {
					for i := range ops {
						ops[i] = l.next(i < ends)
					}
					if err := s.Take(context.Background(), limiters.Singles(ops...), out); err != nil || out[0].Err != nil {
						b.Fatal(err, out[0].Err)
					}
				}
				for l.opened < open*len(l.keys) {
					call(0)
				}
				for range 2 * len(l.keys) { // then most operations find a key that lives long enough
					call(size / 2)
				}
				before, calls := cpu(b, s.client), 0
				for b.Loop() {
					call(size / 2)
					calls++
				}
				b.ReportMetric(float64(cpu(b, s.client)-before)/float64(calls*size), "redis-ns/hit")
			})
		}
	}
}
