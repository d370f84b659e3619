package limiters

import (
	"fmt"
	"testing"
	"time"
)

// A denied group whose operations are all on one key needs the totals of the key for each of them.
func BenchmarkGroupOnOneKey(b *testing.B) {
	for _, ops := range []int{1, 2, 10, 100} {
		b.Run(fmt.Sprintf("ops=%d", ops), func(b *testing.B) {
			limit, err := NewLimit(Spec{Algorithm: "concurrency", Max: 0, Params: Params{LeaseTTL: time.Minute}})
			if err != nil {
				b.Fatal(err)
			}
			var s State
			group, states, out := make(Group, ops), make([]*State, ops), make([]Verdict, ops)
			for i := range group {
				group[i] = Op{Key: "k", Limit: limit, Hits: 1, Lease: LeaseID{byte(i), 1}}
				states[i] = &s
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(1, []Group{group}, states, out, nil)
			}
		})
	}
}
