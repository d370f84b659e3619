package observe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// BenchmarkObserve measures what an Observer adds to a decided request, for users of a Zipf
// distribution. "off" is a process that only serves the admin API.
func BenchmarkObserve(b *testing.B) {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 1_000_000)
	f := observing(b, Options{})
	results := make([]decide.Result, 1<<14)
	for i := range results {
		request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Hits: 1, Entries: []descriptors.Entry{
			{Key: "user_id", Value: fmt.Sprint("user-", 1_000_000+zipf.Uint64())},
		}}}}
		must.Succeed(b, f.decider.Decide(context.Background(), &request, &results[i]))
	}
	for name, o := range map[string]*Observer{
		"nil": nil, "off": New(Options{}), "keys": New(Options{TopKeys: 1000}),
		"keys and denial log": New(Options{TopKeys: 1000, DenialShare: .01, DenialsPerSecond: 10, LogDenial: func(*Denial) {}}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for i := rand.IntN(len(results)); p.Next(); i++ {
					o.Observe(&results[i%len(results)])
				}
			})
		})
	}
}
