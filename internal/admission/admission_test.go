package admission

import (
	"errors"
	"testing"
)

// A request that frees what another request holds is shed only beyond twice the limit.
func TestEndsAreShedBeyondTwiceTheLimit(t *testing.T) {
	g := NewGate(1)
	ends, takes := func() bool { return true }, func() bool { return false }
	for i, c := range []struct {
		ends func() bool
		want error
	}{{takes, nil}, {nil, errOverloaded}, {takes, errOverloaded}, {ends, nil}, {ends, errOverloaded}} {
		if err := g.Enter(c.ends); !errors.Is(err, c.want) {
			t.Errorf("request %d: got %v, want %v", i, err, c.want)
		}
	}
}
