package decide_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// Two requests of one user, who may send one request a day.
func Example() {
	rules, err := rulesfile.Parse(rulesfile.File{Name: "rules.yaml", Data: []byte(`
domain: ugc
descriptors:
  - {key: user_id, rate_limit: {unit: day, requests_per_unit: 1}}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{Now: func() time.Time { return noon }})
	decider := decide.New(func() *descriptors.Rules { return rules }, store, decide.Options{})
	request := decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{
		{Entries: []descriptors.Entry{{Key: "user_id", Value: "alice"}}, Hits: 1},
	}}
	var result decide.Result // reused for each request
	for range 2 {
		if err := decider.Decide(context.Background(), &request, &result); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("denied:", result.Denied, "reason:", result.Decisions[0].Reason, "key:", result.Plans[0].Key)
	}
	// Output:
	// denied: false reason: within_limit key: 3:ugc|7:user_id*5:alice
	// denied: true reason: over_limit key: 3:ugc|7:user_id*5:alice
}
