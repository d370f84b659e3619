package explain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/randomrules"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A server decides on a memory store.
type server struct {
	rules   *descriptors.Rules
	options decide.Options
	decider *decide.Decider
}

func newServer(rules *descriptors.Rules, o decide.Options) *server {
	return &server{rules, o, decide.New(func() *descriptors.Rules { return rules }, memstore.New(memstore.Options{}), o)}
}

// difference decides a request and returns the first difference between the decision and the
// explanation, "" if there is none. seen counts the results.
func difference(t *testing.T, s *server, request *decide.Request, seen map[string]int) string {
	t.Helper()
	explanation := explain.ForRequest(explain.Options{Decide: s.options}, s.rules, request)
	var result decide.Result
	if err := s.decider.Decide(t.Context(), request, &result); err != nil || explanation.Error != "" {
		if err == nil || err.Error() != explanation.Error {
			return fmt.Sprintf("error %v, explained %q", err, explanation.Error)
		}
		return ""
	}
	if explanation.DomainKnown == result.UnknownDomain || len(explanation.Descriptors) != len(result.Decisions) {
		return fmt.Sprintf("unknown domain %t, %d decisions", result.UnknownDomain, len(result.Decisions))
	}
	explanation.Text(true) // must not panic
	for i := range result.Decisions {
		d, e := &result.Decisions[i], &explanation.Descriptors[i]
		seen[e.Result]++
		if text := decisionDifference(&result, i, s.options.ShadowMode, e); text != "" {
			return fmt.Sprintf("descriptor %d: %s: decided %+v, explained %+v", i, text, d, e)
		}
	}
	return ""
}

func decisionDifference(result *decide.Result, i int, shadowed bool, e *explain.Descriptor) string {
	d := &result.Decisions[i]
	want := d.Reason.String()
	if slices.Contains([]decide.Reason{decide.WithinLimit, decide.OverLimit, decide.NeverFits}, d.Reason) {
		want = "limited"
	}
	switch {
	case e.Result != want:
		return "the result is " + want
	case e.Matched != (d.Rule != nil) || e.Rule != d.RuleName() || e.Source != d.Rule.Source():
		return "another rule"
	case e.Unlimited != (d.Reason == decide.Unlimited) || e.Hits != d.Hits || len(e.Limits) != len(d.Limits):
		return "other limits"
	case e.Reason == "" || e.Summary == "":
		return "no reason"
	case slices.ContainsFunc(e.Walk, func(s explain.Step) bool { return s.Reason == "" || strings.Contains(s.Reason, "%!") }):
		return "a step without a reason"
	}
	for j := range d.Limits {
		l, explained := &d.Limits[j], &e.Limits[j]
		if explained.Key != result.Decisions[i].Key || explained.Algorithm != l.Algorithm() || explained.RequestsPerUnit != l.RequestsPerUnit ||
			explained.Window != l.Window().String() || explained.Name != l.Name {
			return fmt.Sprintf("limit %d differs", j)
		}
		mode := "enforced"
		if d.ShadowMode || shadowed {
			mode = "shadow"
		} else if d.QuotaMode {
			mode = "quota"
		}
		if explained.Mode != mode {
			return fmt.Sprintf("limit %d: the mode is %s", j, mode)
		}
		if d.HasOverride {
			continue
		}
		index := slices.IndexFunc(d.Rule.Limits, func(other descriptors.RateLimit) bool { return other.Limit == l.Limit && other.Name == l.Name })
		if explained.Hash != fmt.Sprintf("%016x", d.Rule.LimitHash(index)) || explained.Source != d.Rule.Source() {
			return fmt.Sprintf("limit %d has another hash", j)
		}
	}
	return ""
}

// For random requests under random rules, the explanation equals the decision of a server.
func TestExplainEqualsServer(t *testing.T) {
	t.Parallel()
	random, seen := rand.New(rand.NewPCG(3, 4)), map[string]int{}
	for range 150 {
		made := randomrules.New(random)
		overlay, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o.yaml", Data: []byte(made.Overlay)})
		must.Succeed(t, err)
		o := rulesfile.Options{Overlay: overlay, CalendarMonths: random.IntN(4) == 0}
		rules, _, err := rulesfile.ParseWith(o, rulesfile.File{Name: "r.yaml", Data: []byte(made.Text)})
		must.Succeed(t, err)
		options := decide.Options{
			ShadowMode: random.IntN(8) == 0, QuotaMode: random.IntN(8) == 0, AllOrNothing: random.IntN(2) == 0, CalendarMonths: o.CalendarMonths,
		}
		s := newServer(rules, options)
		for range 40 {
			request := &decide.Request{Domain: []string{"d", "d", "d", "d", "d", "d", "d", "e"}[random.IntN(8)]}
			for range 1 + random.IntN(3) {
				d := decide.Descriptor{Entries: made.Entries(), Hits: int64(random.IntN(4) - 1)}
				switch random.IntN(12) {
				case 0:
					d.Override = &decide.Override{RequestsPerUnit: uint32(random.IntN(9)), Unit: descriptors.Unit(random.IntN(9))}
				case 1:
					d.Entries = nil
				case 2:
					d.Refund, d.Hits = true, -1
				}
				request.Descriptors = append(request.Descriptors, d)
			}
			if text := difference(t, s, request, seen); text != "" {
				t.Fatalf("%+v: %s, of\n%s", request, text, made.Text)
			}
		}
	}
	t.Log(seen)
	for _, result := range []string{
		"limited", "unlimited", "replaced", "no_rule", "no_entries", "unknown_domain", "bad_lease_id", "released", "settled",
	} {
		if seen[result] < 10 {
			t.Errorf("%s occurs %d times", result, seen[result])
		}
	}
}
