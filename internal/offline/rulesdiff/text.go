package rulesdiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

const (
	maxLimits    = 50  // rows for limits in a text
	maxListed    = 20  // rules that cannot be matched
	maxTextBytes = 120 // bound on a text from a recording or from rules
)

// bounded returns a text of a recording or of rules, bounded and with every control character as an
// escape.
func bounded(text string) string {
	return terminal.Printable(descriptors.TruncateWithHash(text, maxTextBytes))
}

// headline returns the verdict in one line.
func (r *Report) headline() string {
	switch {
	case r.NewlyDeniedRequests+r.NewlyAllowedRequests > 0:
		return fmt.Sprintf("newly denied: %s, %s; newly allowed: %s, %s", count(r.NewlyDeniedKeys, "key"),
			count(r.NewlyDeniedRequests, "request"),
			count(r.NewlyAllowedKeys, "key"), count(r.NewlyAllowedRequests, "request"))
	case r.Old.Invalid != r.New.Invalid:
		return "requests are invalid under one of the sets of rules"
	case len(r.CannotMatch) > 0:
		return "no verdict changes, but new rules could not be compared"
	case r.Rules == (Changes{}):
		return "no change"
	}
	return fmt.Sprintf("no verdict changes; rules: %d added, %d removed, %d modified", r.Rules.Added, r.Rules.Removed, r.Rules.Modified)
}

func count(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// notes returns the sentences that qualify the figures.
func (r *Report) notes() []string {
	var all []string
	if !r.KeysExact {
		all = append(all, "There were more keys than --max-keys. The counts of keys are lower bounds.")
	}
	if n := r.Old.EvictedKeys + r.New.EvictedKeys; n > 0 {
		all = append(all, fmt.Sprintf("%s did not fit into memory. The counts are not exact.", count(n, "counter")))
	}
	if r.Old.Invalid+r.New.Invalid > 0 {
		all = append(all, fmt.Sprintf("Requests without a verdict: %d under the old rules, %d under the new rules. They match too "+
			"many limits.", r.Old.Invalid, r.New.Invalid))
	}
	if n := r.skippedLines(); n > 0 {
		note := fmt.Sprintf("%s of the recording could not be compared.", count(n, "line"))
		if slices.ContainsFunc(r.Skipped, func(s recording.FileSkipCount) bool { return s.Reason == recording.Unreadable }) {
			note = "The recording cannot be read to its end. " + note
		}
		all = append(all, note)
	}
	if r.New.Unmatched > r.Old.Unmatched {
		all = append(all, fmt.Sprintf("%s more than before match no rule, and have no limit.", count(r.New.Unmatched-r.Old.Unmatched, "request")))
	}
	return all
}

// summary returns the numbers of requests and keys, and the times of the recording.
func (r *Report) summary() string {
	if r.From == nil {
		return "no requests"
	}
	return fmt.Sprintf("%s of %s from %s to %s", count(r.Requests, "request"), count(r.Keys, "key"), r.From.UTC().Format(time.RFC3339),
		r.To.UTC().Format(time.RFC3339))
}

// Text returns the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n\n", r.headline(), r.summary())
	b.WriteString(terminal.Table(
		"RULES\tVERSION\tALLOWED\tDENIED\tNO_RULE",
		terminal.Row("old", cmp.Or(r.Old.Version, "-"), r.Old.Allowed, r.Old.Denied, r.Old.Unmatched),
		terminal.Row("new", cmp.Or(r.New.Version, "-"), r.New.Allowed, r.New.Denied, r.New.Unmatched),
	))
	if len(r.Limits) > 0 {
		rows := []string{"DOMAIN\tRULE\tLIMIT\tSTATUS\tNEWLY_DENIED_KEYS\tREQUESTS\tNEWLY_ALLOWED_KEYS\tREQUESTS\tOLD\tNEW"}
		for _, l := range r.Limits[:min(len(r.Limits), maxLimits)] {
			rows = append(rows, terminal.Row(bounded(l.Domain), bounded(l.Path), bounded(cmp.Or(l.Name, "-")), l.status(), l.NewlyDeniedKeys,
				l.NewlyDeniedRequests, l.NewlyAllowedKeys, l.NewlyAllowedRequests, bounded(cmp.Or(l.Old, "-")), bounded(cmp.Or(l.New, "-"))))
		}
		b.WriteString("\n" + terminal.Table(rows...))
		if more := len(r.Limits) - maxLimits; more > 0 {
			fmt.Fprintf(&b, "and %d more limits: -o json has all\n", more)
		}
	}
	r.textKeys(&b)
	if n := len(r.CannotMatch); n > 0 {
		b.WriteString("\nThe recording has the values of these new rules only as hashes, so their effect is unknown:\n")
		for _, c := range r.CannotMatch[:min(n, maxListed)] {
			fmt.Fprintf(&b, "  %s (%s): the values of %s are hashes\n", bounded(c.Path), bounded(c.Source), bounded(c.Key))
		}
		if n > maxListed {
			fmt.Fprintf(&b, "  and %d more: -o json has all\n", n-maxListed)
		}
	}
	for _, note := range r.notes() {
		b.WriteString("\n" + note + "\n")
	}
	return b.String()
}

func (r *Report) textKeys(b *strings.Builder) {
	rows := []string{"RULE\tLIMIT\tCHANGE\tCHANGED\tREQUESTS\tKEY"}
	r.eachKey(func(l *Limit, change string, k *Key) {
		rows = append(rows, terminal.Row(bounded(l.Path), bounded(cmp.Or(l.Name, "-")), change, k.Changed, k.Requests, bounded(k.Key)))
	})
	if len(rows) > 1 {
		b.WriteString("\nWorst keys:\n" + terminal.Table(rows...))
	}
}

// eachKey calls f for each key that is listed.
func (r *Report) eachKey(f func(l *Limit, change string, k *Key)) {
	for _, l := range r.Limits[:min(len(r.Limits), maxLimits)] {
		for j := range l.WorstDenied {
			f(l, "newly denied", &l.WorstDenied[j])
		}
		for j := range l.WorstAllowed {
			f(l, "newly allowed", &l.WorstAllowed[j])
		}
	}
}

// status returns the status for people: an added limit that no request reached is marked.
func (l *Limit) status() string {
	if l.Requests == 0 && l.New != "" {
		return l.Status + ", no request"
	}
	return l.Status
}
