package guard

import (
	"context"
	"sync/atomic"
	"time"
)

// An Outage is the time from a failure of the store to its recovery.
type Outage struct {
	Duration time.Duration
	Ops      int64 // operations that the store failed to decide, including those under OnStoreErrorFail
}

// An outageDetector notices the start and the end of outages from the results of store calls, and
// counts their operations.
type outageDetector struct {
	reportFailure  func(reason error)
	reportRecovery func(Outage)

	began       atomic.Pointer[time.Time] // the start of the outage; nil while the store works
	lastFailure atomic.Pointer[time.Time]
	ops         atomic.Int64 // undecided operations that no Outage has reported yet
}

func (d *outageDetector) isDown() bool { return d.began.Load() != nil }

// noteFailure notes a store call that failed. Call it before countOp, so that the [Outage] counts
// all its operations.
func (d *outageDetector) noteFailure(reason error) {
	now := time.Now()
	d.lastFailure.Store(&now)
	if d.began.CompareAndSwap(nil, &now) {
		d.reportFailure(reason)
	}
}

// countOp counts an operation that the store failed to decide.
func (d *outageDetector) countOp() {
	if d.isDown() {
		d.ops.Add(1)
	}
}

// recoveryTime is how long a failed store must work without errors to count as recovered. Without
// it, the state would flap while one node of a cluster is down.
const recoveryTime = time.Second

// noteSuccess notes, while the store is down, a call that decided all its operations. It ends the
// outage unless the store has failed within recoveryTime.
func (d *outageDetector) noteSuccess() {
	if time.Since(*d.lastFailure.Load()) >= recoveryTime {
		d.endOutage()
	}
}

func (d *outageDetector) endOutage() {
	if began := d.began.Swap(nil); began != nil {
		d.reportRecovery(Outage{time.Since(*began), d.ops.Swap(0)})
	}
}

// idleTime is the time since the last failure after which checkIdle calls check. If there are
// requests, Take notices the recovery earlier. If the store fails only some of them, each failure
// starts this time again, so the store stays down.
const idleTime = 10 * time.Second

// checkIdle ends an outage without requests if check returns nil and no call fails meanwhile.
func (d *outageDetector) checkIdle(ctx context.Context, check func(context.Context) error) {
	if !d.isDown() {
		return // perhaps nothing has failed yet
	}
	failure := d.lastFailure.Load()
	if time.Since(*failure) < idleTime || check(ctx) != nil {
		return
	}
	if d.lastFailure.Load() == failure {
		d.endOutage()
	}
}
