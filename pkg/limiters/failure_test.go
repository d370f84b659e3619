package limiters_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

func TestIsUnchargedReadsTheWholeErrorChain(t *testing.T) {
	broken := errors.New("broken")
	busy := limiters.Uncharged(errors.New("busy"))
	wrapped := fmt.Errorf("a store: %w", busy)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{broken, false},
		{busy, true},
		{wrapped, true},
		{limiters.Uncharged(broken), true},
		{errors.Join(busy, wrapped), true},
		{errors.Join(busy, broken), false},
		{errors.Join(broken, busy), false},
		{fmt.Errorf("%w: %w", busy, broken), false},
		{limiters.Uncharged(fmt.Errorf("%w: %w", broken, broken)), true},
	} {
		if got := limiters.IsUncharged(c.err); got != c.want {
			t.Errorf("%v: uncharged: %t, want %t", c.err, got, c.want)
		}
	}
	if err := limiters.Uncharged(broken); !errors.Is(err, broken) || err.Error() != "nothing was charged: broken" {
		t.Errorf("%v hides its cause", err)
	}
}

func TestErrorOfAPanicHasTheStack(t *testing.T) {
	err := limiters.CatchPanic(func() error { panic("out of order") })
	if !errors.Is(err, limiters.ErrPanic) || !strings.Contains(err.Error(), "out of order") || !strings.Contains(err.Error(), "failure_test.go") {
		t.Errorf("%v, want ErrPanic, the value of the panic and the stack", err)
	}
}
