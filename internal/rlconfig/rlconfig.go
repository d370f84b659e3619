// Package rlconfig prints rules as the debug page /rlconfig of envoyproxy/ratelimit does.
package rlconfig

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Write writes one line for each limit, in the form of envoyproxy/ratelimit followed by Weir's own
// settings. Control characters in names become escapes, so that no name makes a line.
func Write(w io.Writer, rules *descriptors.Rules) {
	for r := range rules.All() {
		start := terminal.Printable(fmt.Sprintf("%s.%s: ", r.Domain, r.Name))
		modes := fmt.Sprintf("shadow_mode: %t, quota_mode: %t", r.ShadowMode, r.QuotaMode)
		lists := listSettings(r)
		if r.Unlimited {
			_, _ = fmt.Fprintf(w, "%sunit=UNKNOWN requests_per_unit=0, %s%s\n", start, modes, nameSetting(r.LimitName)+lists)
		}
		for _, l := range r.Limits {
			onStoreError := rules.Domain(r.Domain).OnStoreError(&l)
			_, _ = fmt.Fprintf(w, "%sunit=%s requests_per_unit=%d, %s, unit_multiplier: %d, algorithm: %s, capacity: %d, "+
				"count_denied: %t%s, on_store_error: %s%s%s\n",
				start, strings.ToUpper(l.Unit.String()), l.RequestsPerUnit, modes, l.UnitMultiplier, l.Algorithm(),
				l.Capacity(), l.Spec().CountDenied, parameterSettings(l.Spec()), onStoreError,
				onDenySetting(cmp.Or(l.OnDeny, rules.Domain(r.Domain).OnDeny())),
				nameSetting(l.Name)+lists)
		}
	}
}

// onDenySetting describes a response to a denied request, with the length of its body instead of
// the body.
func onDenySetting(o *descriptors.OnDeny) string {
	switch {
	case o == nil:
		return ""
	case o.Problem:
		return fmt.Sprintf(", on_deny: problem, %d headers", len(o.Headers))
	default:
		return fmt.Sprintf(", on_deny: %d bytes of %q, %d headers", len(o.Body), o.ContentType, len(o.Headers))
	}
}

// listSettings returns the values and prefixes of a rule in full, because its name is truncated.
func listSettings(r *descriptors.Rule) string {
	var b strings.Builder
	for _, n := range r.Path() {
		key := terminal.Printable(n.Key)
		if len(n.Values) > 0 {
			fmt.Fprintf(&b, ", values of %s: %q", key, n.Values)
		}
		if len(n.Prefixes) > 0 {
			fmt.Fprintf(&b, ", cidr of %s: %v", key, n.Prefixes)
		}
	}
	return b.String()
}

func nameSetting(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(", name: %q", name)
}

// parameterSettings returns the parameters of an algorithm except its capacity, which Write prints
// for every limit. It prints defaults, except that of a time zone, and omits objects that are not
// set.
func parameterSettings(spec limiters.Spec) string {
	var b strings.Builder
	params, given := spec.Params, spec.Params.String()
	for _, p := range limiters.Parameters(spec.Algorithm) {
		object, _, inObject := strings.Cut(p.Key, ".")
		if p.Type != limiters.Zone && (!inObject || strings.Contains(given, object+".")) {
			p.SetDefault(&params)
		}
		if value := p.Text(params); value != "" && !p.Derived && p.Key != "capacity" {
			fmt.Fprintf(&b, ", %s: %s", p.Key, value)
		}
	}
	return b.String()
}
