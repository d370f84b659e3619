package rulesfile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
)

const leaseRules = `
domain: d
descriptors:
  - key: user_id
    descriptors:
      - key: lease
        rate_limits:
          - {algorithm: concurrency, concurrent_requests: 10, lease_ttl: 90s, name: slots}
          - {unit: day, requests_per_unit: 1000, reserve: {ttl: 120s, unsettled: release}}
`

func leaseEntries(id string) []descriptors.Entry {
	return []descriptors.Entry{{Key: "user_id", Value: "alice"}, {Key: "lease", Value: id}}
}

func TestLeaseRulesAreParsed(t *testing.T) {
	rules, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "f", Data: []byte(leaseRules)})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	rule := rules.Match("d", leaseEntries("1"))
	if rule == nil || !rule.UsesLeases() || len(rule.Limits) != 2 {
		t.Fatalf("%+v, want a rule with leases and two limits", rule)
	}
	slots, budget := rule.Limits[0], rule.Limits[1]
	if s := slots.Spec(); s.Max != 10 || s.Window != 0 || s.Params != (limiters.Params{LeaseTTL: 90 * time.Second}) || slots.Unit != descriptors.UnitUnknown {
		t.Errorf("%+v, want 10 slots with a TTL of 90 s", slots)
	}
	if s := budget.Spec(); s.CountDenied || s.Params.String() != "reserve.ttl=2m0s reserve.unsettled=release" || !budget.UsesLeases() {
		t.Errorf("%+v, want a reservation with a TTL of 2 min, released at its end", budget)
	}
	if a, b := descriptors.Key("d", rule, leaseEntries("1")), descriptors.Key("d", rule, leaseEntries("2")); a != b {
		t.Errorf("the ids have the keys %q and %q", a, b)
	}
}

// A limit in the request sets the slots. Its unit has no meaning.
func TestOverrideSetsSlots(t *testing.T) {
	rules, _, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "f", Data: []byte(leaseRules)})
	must.Succeed(t, err)
	// An error would let Envoy admit the request, so a larger number is cut to the most slots that
	// a limit can have.
	for slots, want := range map[uint32]int64{0: 0, 3: 3, limiters.MaxLeases: limiters.MaxLeases, limiters.MaxLeases + 1: limiters.MaxLeases, 1<<32 - 1: limiters.MaxLeases} {
		l, err := rules.Match("d", leaseEntries("1")).OverrideBase(false).Limit(slots, descriptors.Minute, 7)
		if err != nil {
			t.Fatal(slots, err)
		}
		s := l.Spec()
		if s.Algorithm != "concurrency" || s.Max != want || l.RequestsPerUnit != want || s.Window != 0 || s.Params.LeaseTTL != 90*time.Second {
			t.Errorf("an override of %d slots: got %+v of %+v, want concurrency with %d slots and a lease TTL of 90s", slots, l, s, want)
		}
	}
}

// Rules that arrive over xDS have a unit and a number. With an overlay of concurrency the number is
// that of the slots.
func TestOverlaySetsConcurrency(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n  - key: user_id\n    descriptors:\n      - {key: lease, rate_limit: {unit: second, requests_per_unit: 4}}\n"
	const overlay = "domain: d\ndescriptors:\n  - key: user_id\n    descriptors:\n      - {key: lease, rate_limit: {algorithm: concurrency, lease_ttl: 5s}}\n"
	o, err := rulesfile.ParseOverlay(rulesfile.File{Name: "o", Data: []byte(overlay)})
	must.Succeed(t, err)
	parsed, _, err := rulesfile.ParseWith(rulesfile.Options{Overlay: o}, rulesfile.File{Name: "f", Data: []byte(rules)})
	must.Succeed(t, err)
	rule := parsed.Match("d", leaseEntries("1"))
	if l := rule.Limits[0].Limit; !rule.UsesLeases() || l.Spec().Max != 4 || l.Window() != 0 || l.LeaseTTL() != 5*time.Second {
		t.Errorf("%+v, want 4 slots with a TTL of 5 s", l.Spec())
	}
	// More slots than a key can have leases are a fault. It names the overlay, which turned the
	// number into slots.
	_, _, err = rulesfile.ParseWith(rulesfile.Options{Overlay: o},
		rulesfile.File{Name: "f", Data: []byte(strings.Replace(rules, "requests_per_unit: 4", "requests_per_unit: 10001", 1))})
	const tooMany = "f:5:34: 10001 slots are too many: want at most 10000 for each key (the overlay sets 'algorithm', 'lease_ttl', at o:5:35)"
	if err == nil || err.Error() != tooMany {
		t.Errorf("%v\nwant %s", err, tooMany)
	}
	// The fault names the overlay, which turned the value into a lease id.
	_, _, err = rulesfile.ParseWith(rulesfile.Options{Overlay: o},
		rulesfile.File{Name: "f", Data: []byte(strings.Replace(rules, "{key: lease,", "{key: lease, value_to_metric: true,", 1))})
	const want = "f:5:22: the value of 'lease' is the id of a request, so its descriptor cannot have 'value_to_metric': " +
		"remove it, because each id would make a series (the overlay sets 'algorithm', at o:5:35)"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// An overlay sets keys of a rate_limit only. Beside a list with leases it has no effect, and no
// fault of the list names it.
func TestOverlayHasNoEffectOnAListWithLeases(t *testing.T) {
	const overlay = "domain: d\ndescriptors:\n- {key: lease, rate_limit: {algorithm: concurrency}}\n"
	const rules = "domain: d\ndescriptors:\n- {key: lease, rate_limits: [{algorithm: concurrency, concurrent_requests: 4}]}\n"
	_, warnings, err := overlaidWarned(overlay, rules)
	const want = "o.yaml:3:28: the overlay has no effect here, because it matches no rate_limit of the rules: " +
		"correct its keys and values, or remove it"
	if err != nil || len(warnings) != 1 || warnings[0].String() != want {
		t.Errorf("%v, %v\nwant %s", warnings, err, want)
	}
	_, err = overlaid(overlay, strings.Replace(rules, "lease,", "lease, value: a,", 1))
	golden(t, err, "a.yaml:3:16: the value of 'lease' is the id of a request, so its descriptor cannot have 'value': "+
		"remove it, because every request has another id")
}

// A fault names the key of the overlay that gives the limit leases, and no key that the rules set.
func TestFaultsOfLeasesNameTheOverlaysKey(t *testing.T) {
	for _, c := range []struct{ overlay, limit, note string }{
		{"{algorithm: concurrency, lease_ttl: 5s}", "{algorithm: concurrency, concurrent_requests: 4}", ""},
		{"{algorithm: fixed_window}", "{unit: day, requests_per_unit: 4, reserve: {ttl: 5s}}", ""},
		{"{reserve: {ttl: 5s}, algorithm: fixed_window}", "{unit: day, requests_per_unit: 4}", " (the overlay sets 'reserve', at o.yaml:3:29)"},
	} {
		_, err := overlaid("domain: d\ndescriptors:\n- {key: lease, rate_limit: "+c.overlay+"}\n",
			"domain: d\ndescriptors:\n- {key: lease, value: a, rate_limit: "+c.limit+"}\n")
		golden(t, err, "a.yaml:3:16: the value of 'lease' is the id of a request, so its descriptor cannot have 'value': "+
			"remove it, because every request has another id"+c.note)
	}
}
