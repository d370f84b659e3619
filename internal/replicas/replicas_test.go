package replicas

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestReplicasAreCountedByDNS(t *testing.T) {
	lookups := []struct {
		addresses []string
		err       error
		want      int
		event     string
	}{
		{nil, errors.New("no such host"), 3, "3, failed: no such host"},
		{nil, errors.New("no such host"), 3, ""},
		// Each pod of a dual-stack service has an address of each family.
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "fd00::3"}, nil, 3, ""},
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.1", "::ffff:10.0.0.3", "fd00::1"}, nil, 3, ""},
		{[]string{"10.0.0.1", "10.0.0.2"}, nil, 2, "3 to 2"},
		{[]string{}, nil, 2, ""},
		{nil, errors.New("timeout"), 2, "2, failed: timeout"},
		{[]string{"10.0.0.1"}, nil, 1, "2 to 1"},
		{nil, context.DeadlineExceeded, 1, "1, failed: context deadline exceeded"}, // the server does not answer
	}
	synctest.Test(t, func(t *testing.T) {
		event, results := "", make(chan int)
		c := New(Options{
			Number: 3, Name: "weir.default.svc",
			Changed: func(before, now int) { event = fmt.Sprintf("%d to %d", before, now) },
			Failed:  func(number int, err error) { event = fmt.Sprintf("%d, failed: %v", number, err) },
			lookup: func(ctx context.Context, _ string) ([]string, error) {
				l := lookups[<-results]
				if errors.Is(l.err, context.DeadlineExceeded) {
					<-ctx.Done()
				}
				return l.addresses, l.err
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		for i, l := range lookups {
			event = ""
			results <- i
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := c.Number(); got != l.want || event != l.event {
				t.Errorf("%v, %v: %d replicas, want %d; event %q, want %q", l.addresses, l.err, got, l.want, event, l.event)
			}
		}
	})
}

func TestReplicasWithoutDNSNameKeepTheNumber(t *testing.T) {
	c := New(Options{Number: 3, lookup: func(context.Context, string) ([]string, error) { return []string{"::1"}, nil }})
	c.Run(t.Context())
	if got := c.Number(); got != 3 {
		t.Errorf("%d replicas, want 3", got)
	}
}
