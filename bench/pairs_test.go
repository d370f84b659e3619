package main

import (
	"math"
	"testing"
)

func TestRatioOfPairsHasAnInterval(t *testing.T) {
	same := ratioOf([]pair{{10, 10}, {20, 20}, {15, 15}})
	if same.mean != 1 || same.low != 1 || same.high != 1 {
		t.Errorf("equal pairs: %v, want 1 (1 to 1)", same)
	}
	// ln 2, 0 and -ln 2: the mean is 0, the deviation ln 2, and t at 2 degrees of freedom 4.303.
	wide := ratioOf([]pair{{1, 2}, {3, 3}, {2, 1}})
	if half := math.Exp(4.303 * math.Ln2 / math.Sqrt(3)); math.Abs(wide.mean-1) > 1e-9 || math.Abs(wide.high-half) > 1e-9 {
		t.Errorf("%+v, want an upper end of %v", wide, half)
	}
	if missing := ratioOf([]pair{{0, 1}, {1, 1}}); missing != (ratio{}) {
		t.Errorf("a missing figure gives %v", missing)
	}
}
