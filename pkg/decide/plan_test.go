package decide

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/randomrules"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A plan contains the rules and the limits of a decision, and charges nothing.
func TestPlanFindsTheLimitsOfDecide(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		made := randomrules.New(random)
		rules, err := rulesfile.Parse(rulesfile.File{Name: "r.yaml", Data: []byte(made.Text)})
		must.Succeed(t, err)
		inForce, options := func() *descriptors.Rules { return rules }, Options{QuotaMode: random.IntN(5) == 0}
		planner, decider := NewPlanner(inForce, options), New(inForce, memstore.New(memstore.Options{}), options)
		var planned PlannedRequest // reused for each request
		for range 20 {
			request := &Request{Domain: "d"}
			for range 1 + random.IntN(3) {
				request.Descriptors = append(request.Descriptors, Descriptor{Entries: made.Entries(), Hits: 1})
			}
			var decided Result
			must.Succeed(t, planner.Plan(request, &planned))
			must.Succeed(t, decider.Decide(t.Context(), request, &decided))
			for i := range planned.Plans {
				p, d := &planned.Plans[i], &decided.Decisions[i]
				if p.Rule != d.Rule || !slices.Equal(p.Limits, d.Limits) || p.Key != d.Key || p.Kind != d.Kind || p.QuotaMode != d.QuotaMode {
					t.Fatalf("%v: planned %+v, decided %+v, of\n%s", request.Descriptors[i].Entries, p, d, made.Text)
				}
			}
		}
	}
}

func TestPlanRejectsAnEmptyDomain(t *testing.T) {
	var planned PlannedRequest
	planner := NewPlanner(func() *descriptors.Rules { return nil }, Options{})
	if err := planner.Plan(&Request{}, &planned); err == nil || err.Error() != "rate limit domain must not be empty" {
		t.Errorf("got error %v, want: rate limit domain must not be empty", err)
	}
}
