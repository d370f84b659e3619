package simulate

import (
	"testing"

	"github.com/weir-rls/weir/pkg/decide"
)

func TestNoRetryAfterWithoutDenial(t *testing.T) {
	if wait, ok := retryAfter(&decide.Result{Decisions: make([]decide.Decision, 1)}); ok {
		t.Errorf("a retry after %v, want none", wait)
	}
}
