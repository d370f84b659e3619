package redisstore

import (
	"errors"
	"sync"
	"testing"

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Close waits for the Takes under way. A Take after it fails.
func TestCloseUnderTakes(t *testing.T) {
	server := redistest.Start(t)
	for range 200 {
		s := open(t, server)
		var takes sync.WaitGroup
		for range 8 {
			takes.Go(func() {
				for {
					out, err := take(t, s, hitsOf("k")...)
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil || out[0].Err != nil {
						t.Errorf("before Close: %v, %v", err, out[0].Err)
						return
					}
				}
			})
		}
		if _, err := take(t, s, limiters.Hit{Key: "k", Limit: hourly}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		takes.Wait()
	}
}
