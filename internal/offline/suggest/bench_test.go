package suggest_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/suggest"
)

// 1,000,000 requests of 100,000 users in an hour. weir suggest may take 20 s, with the reading of
// the lines.
func BenchmarkSuggest(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	rules := rulesWith(b, "unit: minute", 5)
	for b.Loop() {
		c, err := suggest.New(suggest.Options{Rules: rules})
		must.Succeed(b, err)
		for i := range 1_000_000 {
			user := int(100_000 * math.Pow(random.Float64(), 1.3))
			l := line(time.Duration(i)*3600*time.Microsecond, fmt.Sprint("user-", user), 1)
			must.Succeed(b, c.Add(&l))
		}
		if _, err := c.Report(context.Background(), 1); err != nil {
			b.Fatal(err)
		}
	}
}
