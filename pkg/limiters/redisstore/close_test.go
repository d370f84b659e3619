package redisstore

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// Close waits for the Takes under way. A Take after it fails.
func TestCloseWaitsForTakes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for range 100 {
		s := open(t, server)
		var takes sync.WaitGroup
		for range 6 {
			takes.Go(func() {
				for {
					out, err := take(s, opsOf("k")...)
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
		for s.Stats().Ops < 60 {
			runtime.Gosched()
		}
		must.Succeed(t, s.Close())
		takes.Wait()
	}
}
