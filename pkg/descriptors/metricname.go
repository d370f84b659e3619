package descriptors

import (
	"slices"
	"strings"
)

// AppendMetricNames appends to dst the name of each entry in metrics, unescaped. The entries must
// be those that r matched. A name is
//
//	key_value     for a node with a value
//	key           for a node without a value; with value_to_metric the key_value of the request
//	key_wildcard  for a wildcard; with value_to_metric the key_value of the request
//	key_a,b       for a list of values or prefixes; with value_to_metric the key_value of the request
//
// With detailed_metric every name is the key_value of the request. With share_threshold the name of
// a wildcard is always key_wildcard, and the name of a list key_a,b. A list of more than 64 bytes
// is cut and ends with ",...". Names never contain the lease id of a request. Names that contain a
// value of the request are unbounded.
func (r *Rule) AppendMetricNames(dst []string, entries []Entry) []string {
	withValues := r.DetailedMetric && !slices.ContainsFunc(r.path, func(n pathNode) bool { return n.isShared })
	for i, e := range entries {
		switch {
		case r.isLeaseID(i, entries):
			dst = append(dst, e.Key)
		case i >= len(r.path):
			dst = append(dst, e.Joined())
		case withValues:
			dst = append(dst, e.Key+"_"+e.Value) // with an empty value too, as in envoyproxy/ratelimit
		default:
			dst = append(dst, r.metricName(&r.path[i], e))
		}
	}
	return dst
}

// HasFixedMetricNames reports whether [Rule.AppendMetricNames] does not depend on the entries.
func (r *Rule) HasFixedMetricNames() bool {
	return !r.DetailedMetric && len(r.path) > 0 && !slices.ContainsFunc(r.path, func(n pathNode) bool {
		return n.kind == Wildcard && strings.Contains(n.key, "*") || n.valueToMetric && n.kind != Exact
	})
}

func (r *Rule) metricName(n *pathNode, e Entry) string {
	if !n.isShared && (r.DetailedMetric || n.valueToMetric && n.kind != Exact) {
		return e.Joined()
	}
	rest, hasKey := strings.CutPrefix(n.metricName, e.Key)
	if n.kind != Wildcard || hasKey && strings.HasPrefix(rest, "_") {
		return n.metricName
	}
	return e.Key + "_" + n.metricName // the key of n is a wildcard
}

// Joined returns key_value, or the key if the value is empty. envoyproxy/ratelimit compares entries
// in this form.
func (e Entry) Joined() string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "_" + e.Value
}

// AppendOverrideMetricNames appends to dst the metric names of entries under a limit in the
// request: [Entry.Joined] of each, but the key alone of a lease id. The names are unbounded. A nil
// rule has no leases.
func AppendOverrideMetricNames(dst []string, rule *Rule, entries []Entry) []string {
	for i, e := range entries {
		if rule.isLeaseID(i, entries) {
			dst = append(dst, e.Key)
		} else {
			dst = append(dst, e.Joined())
		}
	}
	return dst
}
