//go:build !linux

package loadclient

import "time"

type ticker struct{ *time.Ticker }

func newTicker(every time.Duration) (ticker, error) { return ticker{time.NewTicker(every)}, nil }

// wait returns at the next tick, or immediately if it is overdue.
func (t ticker) wait() error {
	<-t.C
	return nil
}

func (t ticker) stop() { t.Stop() }
