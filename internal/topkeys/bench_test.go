package topkeys

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// BenchmarkAdd measures what a Counter adds to a decided request, for users of a Zipf distribution.
func BenchmarkAdd(b *testing.B) {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 1_000_000)
	f := counting(b, 1000, "")
	results := make([]decide.Result, 1<<14)
	for i := range results {
		request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Hits: 1, Entries: []descriptors.Entry{
			{Key: "user_id", Value: fmt.Sprint("user-", 1_000_000+zipf.Uint64())},
		}}}}
		must.Succeed(b, f.decider.Decide(context.Background(), &request, &results[i]))
	}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for i := rand.IntN(len(results)); p.Next(); i++ {
			f.Add(&results[i%len(results)])
		}
	})
}
