package rls

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

const (
	// maxPolicies bounds the items of a header, because proxies and clients bound the size of all headers.
	maxPolicies = 10
	maxName     = 100      // bytes of a name in a header
	maxInteger  = 1e15 - 1 // of a structured field
)

// A policy is a limit that a request is under, as a client sees it.
type policy struct {
	name  string // unique in the response
	limit *descriptors.RateLimit
	state *limiters.Verdict
	wants bool // the limit denies the request
}

// policies returns the limits that a request is under, in the order of the request, at most maxPolicies. The limit of the denial, if not
// nil, is one of them. Limits that deny nothing, because their rule is in shadow mode, and limits whose state is unknown are not.
func policies(r *decide.Result, of *denial) []policy {
	var all []policy
	var names []string
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.End || d.Shadow {
			continue
		}
		for j := range d.Verdicts {
			v := &d.Verdicts[j]
			if v.Err != nil || v.By == limiters.ByPolicy {
				continue
			}
			explains := of != nil && of.descriptor == i && of.limit == j
			if len(all) == maxPolicies && !explains {
				continue
			}
			name := uniqueName(names, policyName(d, j))
			names = append(names, name)
			shown := policy{name, &d.Limits[j], v, !v.Allowed && d.Outcome == decide.Denied}
			if len(all) < maxPolicies {
				all = append(all, shown)
			} else {
				all[maxPolicies-1] = shown
			}
		}
	}
	return all
}

// policyName returns the name of limit i of d, or the path of its rule. It is printable ASCII.
func policyName(d *decide.Decision, i int) string {
	name := d.Limits[i].Name
	switch {
	case name != "":
	case d.Rule == nil:
		name = "override"
	default:
		name = d.Rule.Name
		if len(d.Limits) > 1 {
			name += "#" + strconv.Itoa(i)
		}
	}
	return visible(descriptors.Bounded(name, maxName))
}

// uniqueName returns name, or name with a number if names have it.
func uniqueName(names []string, name string) string {
	unique := name
	for n := 2; slices.Contains(names, unique); n++ {
		unique = name + "~" + strconv.Itoa(n)
	}
	return unique
}

// appendPolicies appends the headers RateLimit-Policy and RateLimit.
func appendPolicies(b []byte, all []policy) []byte {
	if len(all) == 0 {
		return b
	}
	var quotas, states []byte
	for i := range all {
		if i > 0 {
			quotas, states = append(quotas, ", "...), append(states, ", "...)
		}
		quotas = all[i].appendQuota(appendString(quotas, all[i].name))
		states = all[i].appendState(appendString(states, all[i].name))
	}
	return appendHeader(appendHeader(b, "ratelimit-policy", string(quotas)), "ratelimit", string(states))
}

// appendQuota appends the quota and its window. A funnel that holds more than it leaks in a window has its capacity, and the time
// in which that leaks, because more hits than the quota never remain.
func (p *policy) appendQuota(b []byte) []byte {
	quota, window := p.limit.RequestsPerUnit, p.limit.Limit.Window()
	if window == 0 {
		return append(appendParameter(b, "q", quota), `;qu="concurrent-requests"`...)
	}
	if capacity := p.limit.Limit.Capacity(); capacity > quota && quota > 0 {
		window = time.Duration(float64(window) / float64(quota) * float64(capacity))
		quota = capacity
	}
	return appendParameter(appendParameter(b, "q", quota), "w", seconds(window))
}

// appendState appends the remaining hits, and the seconds until denied hits fit, or until the limit has fully reset. The end of a
// request in flight is unknown, so a limit of them has a time only if it denies.
func (p *policy) appendState(b []byte) []byte {
	b = appendParameter(b, "r", p.state.Remaining)
	switch {
	case !p.state.Allowed:
		return appendParameter(b, "t", seconds(waitUnder(p.limit, p.state)))
	case p.limit.Limit.Window() == 0:
		return b
	}
	return appendParameter(b, "t", seconds(p.state.ResetAfter))
}

// seconds returns d in whole seconds, rounded up: a client must not retry too early.
func seconds(d time.Duration) int64 {
	return int64((min(d, math.MaxInt64-time.Second) + time.Second - 1) / time.Second)
}

// retryAfter returns the value of Retry-After, in seconds: at least 1, never less than the wait, and with a random part of the wait of
// up to jitter.
func retryAfter(wait time.Duration, jitter float64) int64 {
	n := max(1, seconds(wait))
	return n + rand.Int64N(int64(float64(n)*jitter)+1)
}

// appendParameter appends an integer parameter of a structured field.
func appendParameter(b []byte, name string, n int64) []byte {
	b = append(append(append(b, ';'), name...), '=')
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}

// appendString appends printable ASCII as a string of a structured field.
func appendString(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, text[i])
	}
	return append(b, '"')
}

// visible returns a text as printable ASCII. If it has any other character, each of them and each '%' is percent-encoded.
func visible(text string) string {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' }
	other := 0
	for i := range len(text) {
		if !plain(text[i]) {
			other++
		}
	}
	if other == 0 {
		return text
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(text)+2*other)
	for i := range len(text) {
		if c := text[i]; plain(c) && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
