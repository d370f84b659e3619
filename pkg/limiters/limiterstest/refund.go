package limiterstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// testReservationsAfterRefund checks a reservation in a group whose first operation refunds the
// newest hits of its key, while the clock is behind these hits. A settle must find the time that
// the reservation charged.
func testReservationsAfterRefund(t *testing.T, store TimedStore) {
	for _, name := range WindowedAlgorithms() {
		params := FirstHitParams(name)
		params.Reserve.TTL = time.Hour
		limit := MustLimit(limiters.Spec{Algorithm: name, Max: 100, Window: limiters.MaxWindow, Params: params})
		for _, older := range []int64{0, 2} {
			p := newPair(t, store, fmt.Sprintf("%s after a refund %d ", name, older))
			op := limiters.Op{Limit: limit, Hits: 5}
			reserved := limiters.Op{Limit: limit, Hits: 3, Lease: limiters.NewLeaseID(nil, "id")}
			settled, refund, old := reserved, op, op
			settled.Kind, settled.Hits, refund.Hits, old.Hits = limiters.OpEnd, 1, -5, older
			p.takeGroup(traceStart, old)
			p.takeGroup(traceStart.Add(time.Minute), op)
			p.takeGroup(traceStart.Add(30*time.Second), refund, reserved)
			p.takeGroup(traceStart.Add(31*time.Second), settled)
			if v := p.takeGroup(traceStart.Add(31*time.Second), limiters.Op{Limit: limit}); name != "funnel" && v.Used != older+1 {
				t.Errorf("%s: %s, want %d used", p.prefix, Format(v), older+1)
			}
		}
	}
}
