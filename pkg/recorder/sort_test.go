package recorder

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Lines are in the order of at and order, and equal lines in the order of their arrival, whatever the span of their times.
func TestLinesAreSortedByTimeAndOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var unused []heldLine
	for _, span := range []int64{1, 100, 1 << 9, 1 << 21, 1<<48 - 1, 1 << 48, 1 << 62} {
		for _, orders := range []int{1, 3, 1 << 16} {
			lines := make([]heldLine, random.IntN(3000))
			for i := range lines {
				lines[i] = heldLine{at: 1_800_000_000_000_000 + random.Int64N(span), order: uint16(random.IntN(orders)), start: uint32(i)}
			}
			want := slices.Clone(lines)
			slices.SortStableFunc(want, func(a, b heldLine) int {
				return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
			})
			if lines, unused = sortLines(lines, unused); !slices.Equal(lines, want) {
				t.Errorf("%d lines of a span of %d µs and %d orders are not sorted", len(lines), span, orders)
			}
		}
	}
}
