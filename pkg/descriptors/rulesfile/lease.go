package rulesfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// concurrency is the algorithm that limits requests in flight instead of a rate.
const concurrency = "concurrency"

// readSlots reads the number of slots of a concurrency limit with the given settings.
func (p *parser) readSlots(own *limitSettings, f fields) int64 {
	for name, remedy := range map[string]string{
		"unit": "remove it", "unit_multiplier": "remove it", "requests_per_unit": "write 'concurrent_requests' instead",
	} {
		if f.has(name) {
			p.fault(f.key(name), fmt.Sprintf("'%s' has no meaning for the algorithm %s", name, concurrency), remedy)
		}
	}
	if slots := f.get("concurrent_requests"); !p.isUnset(slots) {
		return p.readNumber(slots, 0, limiters.MaxLeases, 0)
	}
	if !own.faulty && !f.has("requests_per_unit") {
		p.fault(f.at, fmt.Sprintf("a limit of %s has no 'concurrent_requests'", concurrency),
			"set 'concurrent_requests': how many requests may run at a time")
	}
	return 0
}

// checkLeases validates a descriptor whose rule has leases: its value is the id of a request.
func (p *parser) checkLeases(f fields, rule *descriptors.Rule, at *branch) {
	const id = "the value of '%s' is the id of a request"
	spec := &at.spec
	cause, from := "reserve", ""
	if rule.Limits[0].IsConcurrency() {
		cause = "algorithm"
	}
	if slices.Contains(at.fromOverlay, cause) {
		from = overlayNote(p.overlayAt(at), []string{cause})
	}
	fault := func(name, remedy string) {
		p.fault(f.key(name), fmt.Sprintf(id+", so its descriptor cannot have '%s'", excerpt(spec.Key), name), remedy+from)
	}
	for _, name := range []string{"value", "values", "cidr"} {
		if f.has(name) && (name != "value" || spec.Value != "") {
			fault(name, "remove it, because every request has another id")
		}
	}
	if strings.Contains(spec.Key, "*") {
		p.fault(f.value("key"), fmt.Sprintf(id+", so its key cannot have a '*'", excerpt(spec.Key)), "write the whole key"+from)
	}
	if spec.ShareThreshold {
		fault("share_threshold", "remove it, because all ids share the counter of the entries before")
	}
	if spec.ValueToMetric {
		fault("value_to_metric", "remove it, because each id would make a series")
	}
	if rule.DetailedMetric {
		fault("detailed_metric", "remove it, or set 'value_to_metric' at the other levels")
	}
	if !p.warnIfEmpty(f.get("descriptors")) {
		fault("descriptors", "move them to a descriptor without such a limit")
	}
	if strings.EqualFold(strings.ReplaceAll(spec.Key, "_", "-"), "x-request-id") {
		p.warn(forgeableID, f.value("key"), fmt.Sprintf(id+", and a client can choose its own x-request-id", excerpt(spec.Key)),
			"send an id that Envoy makes, such as %UNIQUE_ID% in a header of its own")
	} else if len(at.path) == 1 && !strings.Contains(strings.ToLower(spec.Key), "lease") {
		p.warn(sharedLease, f.value("key"), fmt.Sprintf(id+", and no entry is before it, so all requests share the limit", excerpt(spec.Key)),
			"write the limit below this descriptor, under a key of its own such as 'lease'"+from)
	}
}
