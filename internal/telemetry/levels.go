package telemetry

import (
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

// appendLevels appends the names of the levels that a decision is counted under. A limit that came with the request has
// the request's own, whatever rule it takes the place of: the incumbent asks no rule then.
func appendLevels(dst []string, d *rls.Decision) []string {
	if d.Override {
		return descriptors.OverrideStatLevels(dst, d.Entries)
	}
	return d.Rule.AppendStatLevels(dst, d.Entries)
}

// sameTexts costs little where the texts are the very same, as they are for a rule without runtime values.
func sameTexts(a, b []string) bool { return slices.Equal(a, b) }

// cloned are texts that do not hold the memory of a request.
func cloned(texts []string) []string {
	own := make([]string, len(texts))
	for i, s := range texts {
		own[i] = strings.Clone(s)
	}
	return own
}
