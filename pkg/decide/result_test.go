package decide

import (
	"context"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
)

const observedRules = `
domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: burst, unit: minute, requests_per_unit: 1}
      - {name: daily, unit: day, requests_per_unit: 1}
  - {key: shadowed, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`

// Observers get the key and the limit that denies with the decision, so that they need not compute
// them again.
func TestResultNamesKeyAndDenyingLimit(t *testing.T) {
	for _, allOrNothing := range []bool{false, true} {
		d := newDecider(t, observedRules, Options{AllOrNothing: allOrNothing})
		r := Request{Domain: "d"}
		for _, e := range []descriptors.Entry{{Key: "free", Value: "x"}, {Key: "user", Value: "a"}, {Key: "none", Value: "x"}, {Key: "shadowed", Value: "b"}} {
			r.Descriptors = append(r.Descriptors, Descriptor{Entries: []descriptors.Entry{e}, Hits: 1})
		}
		var result Result
		for call, denying := range [][]int{{-1, -1, -1, -1}, {-1, 1, -1, 0}} {
			must.Succeed(t, d.Decide(context.Background(), &r, &result))
			for i, key := range []string{"", "1:d|4:user*1:a", "", "1:d|8:shadowed*1:b"} {
				if got := result.Decisions[i].Key; got != key {
					t.Errorf("all or nothing %v, call %d: the key of descriptor %d is %q, want %q", allOrNothing, call, i, got, key)
				}
				if got := result.Decisions[i].DenyingLimitIndex(); got != denying[i] {
					t.Errorf("all or nothing %v, call %d: limit %d denies descriptor %d, want %d", allOrNothing, call, got, i, denying[i])
				}
			}
		}
	}
}
