package failures

import (
	"sync"
	"testing"
	"time"
)

// A stallMeter measures how long this process could not run, because the machine was busy.
type stallMeter struct {
	mu   sync.Mutex
	last time.Time     // it ran
	sum  time.Duration // the total of all stalls so far
}

// watchStalls measures until the end of the test.
func watchStalls(t *testing.T) *stallMeter {
	t.Helper()
	m := &stallMeter{last: time.Now()}
	tick := time.NewTicker(5 * time.Millisecond)
	t.Cleanup(tick.Stop)
	go func() {
		for {
			select {
			case <-tick.C:
				m.stalls()
			case <-t.Context().Done():
				return
			}
		}
	}()
	return m
}

// stalls returns the sum of the stalls so far.
func (m *stallMeter) stalls() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(m.last); gap > 50*time.Millisecond {
		m.sum += gap
	}
	m.last = now
	return m.sum
}
