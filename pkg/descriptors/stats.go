package descriptors

import "slices"

// AppendStatLevels appends to dst the names of entries, which r matches, in metrics: one for each, as they are and not
// fit for any system of metrics yet. A name is
//
//	key_value     of a descriptor with a value
//	key           of one without, or with value_to_metric the key_value of the request
//	key_pattern*  of a wildcard, or with value_to_metric the key_value of the request
//
// With detailed_metric every name is the key_value of the request, but with share_threshold a wildcard's is the
// key_pattern* in any case. Those that say a value of the request are without bound. A nil r is that of an override:
// see [OverrideStatLevels].
func (r *Rule) AppendStatLevels(dst []string, entries []Entry) []string {
	if r == nil {
		return OverrideStatLevels(dst, entries)
	}
	for i, e := range entries {
		if i < len(r.path) {
			dst = append(dst, r.statLevel(&r.path[i], e))
		} else {
			dst = append(dst, e.Joined())
		}
	}
	return dst
}

// HasFixedStatLevels tells whether [Rule.AppendStatLevels] says the same of all entries that r matches.
func (r *Rule) HasFixedStatLevels() bool {
	return !r.DetailedMetric && len(r.path) > 0 && !slices.ContainsFunc(r.path, func(l level) bool {
		return l.how == wildcard || l.valueToMetric && l.how != exact
	})
}

func (r *Rule) statLevel(l *level, e Entry) string {
	switch {
	case l.share:
		return l.pattern(e.Key)
	case r.DetailedMetric && !r.shares:
		return e.Key + "_" + e.Value // an empty value too: so does the incumbent
	case r.DetailedMetric, l.valueToMetric && l.how != exact:
		return e.Joined()
	case l.how == wildcard:
		return l.pattern(e.Key)
	}
	return l.text
}

// pattern is the name of a wildcard: what is a pattern in the key stands behind the key of the request.
func (l *level) pattern(key string) string {
	if n := len(key); n < len(l.text) && l.text[:n] == key && l.text[n] == '_' {
		return l.text
	}
	return key + "_" + l.text
}

// Joined returns the key, or key_value if there is a value: the form in which envoyproxy/ratelimit compares entries.
func (e Entry) Joined() string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "_" + e.Value
}

// OverrideStatLevels appends to dst the names in metrics of entries that bring a limit of their own: the key_value of
// each, or the key where the value is empty. They are without bound.
func OverrideStatLevels(dst []string, entries []Entry) []string {
	for _, e := range entries {
		dst = append(dst, e.Joined())
	}
	return dst
}
