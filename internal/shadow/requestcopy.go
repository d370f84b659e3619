package shadow

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A requestCopy is a decided request that waits for the candidate rules.
type requestCopy struct {
	at      time.Time
	request decide.Request
	entries []descriptors.Entry // the entries of all descriptors in request
	text    strings.Builder     // all text of the request
	bytes   int64               // approximate memory
	inForce denials
	// byStore is false if the store of the server failed: on_store_error decided, or nothing did.
	byStore bool
	version string // the version of the rules in force
}

// denials are the limits of one set of rules that deny a request.
type denials struct {
	denied bool // the request; false if only limits in shadow mode deny it
	limits []keyDenial
}

// A keyDenial is the denial of a key by a limit. If several limits deny a descriptor, it is that by
// the limit with the longest wait.
type keyDenial struct {
	limitName
	key string
	// shadow reports that the rule is in shadow mode, so that the denial does not affect the
	// response.
	shadow    bool
	rateLimit *descriptors.RateLimit // nil if none is known
}

// A limitName names a limit across versions of rules. It contains no text of a request.
type limitName struct{ domain, rule, label string }

var copyPool = sync.Pool{New: func() any { return new(requestCopy) }}

// maxPooledEntries bounds the entries of a pooled copy.
const maxPooledEntries = 64

func newRequestCopy(request *decide.Request, result *decide.Result, at time.Time) *requestCopy {
	r := copyPool.Get().(*requestCopy)
	r.at, r.version = at, result.Rules.Version()
	r.setRequest(request)
	r.byStore = decidedByStore(result)
	r.inForce.read(result)
	return r
}

// release returns r to the pool.
func (r *requestCopy) release() {
	if cap(r.entries) > maxPooledEntries || cap(r.request.Descriptors) > maxPooledEntries {
		return
	}
	clear(r.entries)
	clear(r.request.Descriptors)
	r.inForce.reset()
	*r = requestCopy{
		request: decide.Request{Descriptors: r.request.Descriptors[:0]}, entries: r.entries[:0], inForce: denials{limits: r.inForce.limits[:0]},
	}
	copyPool.Put(r)
}

// setRequest copies a request, which belongs to the caller. All strings share one allocation.
func (r *requestCopy) setRequest(from *decide.Request) {
	size, entries := len(from.Domain), 0
	for i := range from.Descriptors {
		d := &from.Descriptors[i]
		entries += len(d.Entries)
		for k := range d.Entries {
			size += len(d.Entries[k].Key) + len(d.Entries[k].Value)
		}
	}
	r.bytes = int64(size) + int64(entries)*int64(unsafe.Sizeof(descriptors.Entry{})) +
		int64(len(from.Descriptors))*int64(unsafe.Sizeof(decide.Descriptor{}))
	r.text.Grow(size)
	r.entries = slices.Grow(r.entries, entries)
	r.request.Domain = r.copyText(from.Domain)
	for i := range from.Descriptors {
		d, first := from.Descriptors[i], len(r.entries)
		for _, e := range d.Entries {
			r.entries = append(r.entries, descriptors.Entry{Key: r.copyText(e.Key), Value: r.copyText(e.Value)})
		}
		d.Entries = r.entries[first:len(r.entries):len(r.entries)]
		if d.Override != nil {
			override := *d.Override
			d.Override = &override
		}
		r.request.Descriptors = append(r.request.Descriptors, d)
	}
}

// copyText copies s into the memory of the copy.
func (r *requestCopy) copyText(s string) string {
	first := r.text.Len()
	r.text.WriteString(s)
	return r.text.String()[first:]
}

// decidedByStore reports whether neither an error nor on_store_error decided a limit.
func decidedByStore(r *decide.Result) bool {
	for i := range r.Decisions {
		for j := range r.Decisions[i].Verdicts {
			if v := &r.Decisions[i].Verdicts[j]; v.Err != nil || v.By.AfterFailure() {
				return false
			}
		}
	}
	return true
}

// read sets d from a decided request. It retains only keys and texts of rules.
func (d *denials) read(r *decide.Result) {
	// With SHADOW_MODE, compare the denials that the server would enforce.
	d.denied = r.Denied || r.Shadowed
	for i := range r.Decisions {
		decision := &r.Decisions[i]
		limit := decision.DenyingLimitIndex()
		denies := r.CausesDenial(decision)
		if !denies && !(decision.ShadowMode && limit >= 0) {
			continue
		}
		denial := keyDenial{limitName: limitName{decision.Domain, decision.RuleName(), ""}, key: decision.Key, shadow: !denies}
		if limit >= 0 {
			denial.label, denial.rateLimit = decision.LimitLabel(limit), &decision.Limits[limit]
		}
		d.limits = append(d.limits, denial)
	}
}

func (d *denials) reset() {
	clear(d.limits)
	*d = denials{limits: d.limits[:0]}
}
