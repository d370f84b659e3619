package main

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// After the save, a forced stop has forcedStopTimeout to close the rest, however long the save took.
func TestForcedStopClosesAfterItsSave(t *testing.T) {
	for _, c := range []struct {
		save, close time.Duration
		abandoned   bool
	}{
		{forcedStopTimeout * 9 / 10, forcedStopTimeout / 4, false},
		{forcedStopTimeout * 11 / 10, forcedStopTimeout / 4, false},
		{forcedStopTimeout * 11 / 10, forcedStopTimeout * 2, true},
		{saveTimeout * 2, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStopper(make(chan os.Signal))
			s.request()
			s.forceAfter(time.Nanosecond)
			time.Sleep(time.Millisecond)
			s.save(func() { time.Sleep(c.save) })
			time.Sleep(c.close)
			s.done()
			select {
			case <-s.abandoned:
				if !c.abandoned {
					t.Errorf("a save of %v and a close of %v were abandoned", c.save, c.close)
				}
			default:
				if c.abandoned {
					t.Errorf("a save of %v and a close of %v were not abandoned", c.save, c.close)
				}
			}
		})
	}
}
