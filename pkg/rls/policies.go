package rls

import (
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// maxPolicies bounds the items of a header, because proxies and clients bound the size of headers.
const maxPolicies = 10

// maxSentNameBytes bounds a name in a response, before its percent-encoding, which at most triples
// it.
const maxSentNameBytes = 100

// A headerPolicy is a limit that applies to a request, as the RateLimit-Policy header shows it to
// clients.
type headerPolicy struct {
	name    string // unique in the response
	limit   *descriptors.RateLimit
	verdict *limiters.Verdict
	denies  bool // the request, see [decide.Result.CausesDenial]
}

// headerPolicies returns at most maxPolicies limits of a request, in request order. They include
// the limit of denied, which is nil if the request is allowed. Limits in shadow mode and limits
// whose state is unknown are omitted.
func headerPolicies(r *decide.Result, denied *denial) []headerPolicy {
	var shown []headerPolicy
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.EndsLease() || d.ShadowMode {
			continue
		}
		for j := range d.Verdicts {
			v := &d.Verdicts[j]
			if v.Err != nil || v.By == limiters.ByPolicy {
				continue
			}
			full := len(shown) == maxPolicies
			if full && !denied.isBy(i, j) {
				continue
			}
			policy := headerPolicy{uniqueName(shown, policyName(d, j)), &d.Limits[j], v, !v.Allowed && r.CausesDenial(d)}
			if full {
				shown[maxPolicies-1] = policy
			} else {
				shown = append(shown, policy)
			}
		}
	}
	return shown
}

// policyName returns the name of limit i of d as printable ASCII. An unnamed limit of a rule has
// the path of the rule.
func policyName(d *decide.Decision, i int) string {
	name := d.Limits[i].Name
	switch {
	case name != "":
	case d.HasOverride:
		name = decide.OverrideName
	default:
		name = d.Rule.Name
		if len(d.Limits) > 1 {
			name += "#" + strconv.Itoa(i)
		}
	}
	return percentEncoded(descriptors.TruncateWithHash(name, maxSentNameBytes))
}

// uniqueName returns name, with a number appended if a policy of shown already has it.
func uniqueName(shown []headerPolicy, name string) string {
	unique := name
	for n := 2; slices.ContainsFunc(shown, func(p headerPolicy) bool { return p.name == unique }); n++ {
		unique = name + "~" + strconv.Itoa(n)
	}
	return unique
}

func appendHeaderPolicies(b []byte, policies []headerPolicy) []byte {
	if len(policies) == 0 {
		return b
	}
	var quotas, states []byte
	for i := range policies {
		if i > 0 {
			quotas, states = append(quotas, ", "...), append(states, ", "...)
		}
		quotas = policies[i].appendQuota(appendQuoted(quotas, policies[i].name))
		states = policies[i].appendState(appendQuoted(states, policies[i].name))
	}
	return appendHeader(appendHeader(b, "ratelimit-policy", string(quotas)), "ratelimit", string(states))
}

// appendQuota appends the quota and its window. If a funnel's capacity exceeds its rate, these are
// its capacity and the time to drain it, because the remaining hits must not exceed the quota.
func (p *headerPolicy) appendQuota(b []byte) []byte {
	quota, window := p.limit.RequestsPerUnit, p.limit.Window()
	if p.limit.IsConcurrency() {
		return append(appendParameter(b, "q", quota), `;qu="concurrent-requests"`...)
	}
	if capacity := p.limit.Capacity(); capacity > quota && quota > 0 {
		hi, lo := bits.Mul64(uint64(window), uint64(capacity))
		drained, _ := bits.Div64(hi, lo, uint64(quota)) // it fits, because no funnel takes more than 71 years to drain
		quota, window = capacity, time.Duration(drained)
	}
	return appendParameter(appendParameter(b, "q", quota), "w", ceilSeconds(window))
}

// appendState appends the remaining hits and a time in seconds: the wait of a denied request, or
// the time until the limit has reset. A concurrency limit has a time only if it denies, because
// nobody knows when a running request ends.
func (p *headerPolicy) appendState(b []byte) []byte {
	b = appendParameter(b, "r", p.verdict.Remaining)
	switch {
	case !p.verdict.Allowed:
		return appendParameter(b, "t", ceilSeconds(decide.AdvisedWait(p.limit, p.verdict)))
	case p.limit.IsConcurrency():
		return b
	}
	return appendParameter(b, "t", ceilSeconds(p.verdict.ResetAfter))
}
