package rulestest

import (
	"fmt"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

func sourceOf(r *descriptors.Rule) string { return r.Source() }

// explain says for each descriptor which rule it matches.
func explain(_ *descriptors.Rules, request *decide.Request, r *decide.Result) string {
	var b strings.Builder
	for i := range r.Decisions {
		d := &r.Decisions[i]
		fmt.Fprintf(&b, "%s: ", formatEntries(request.Descriptors[i].Entries))
		name, _ := limitOf(d)
		switch {
		case d.Rule == nil:
			fmt.Fprintf(&b, "NO LIMIT (%s)\n", d.Reason)
		default:
			fmt.Fprintf(&b, "rule %s at %s, limit %s: %s\n", d.RuleName(), sourceOf(d.Rule), name, d.Reason)
		}
	}
	return b.String()
}
