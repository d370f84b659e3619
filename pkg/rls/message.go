package rls

import (
	"errors"
	"fmt"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A message is a RateLimitRequest, decoded from the wire. It stores at most one descriptor and one
// entry beyond the bounds of package decide, which suffices to reject the request.
type message struct {
	domain      string
	hitsAddend  uint32
	descriptors []descriptor
}

type descriptor struct {
	entries        []descriptors.Entry
	hasLimit       bool
	limit          limitOverride
	hasHitsAddend  bool
	hitsAddend     uint64
	isNegativeHits bool

	override decide.Override // set by toRequest if hasLimit
}

type limitOverride struct {
	requestsPerUnit uint32
	unit            typev3.RateLimitUnit
	hasMultiplier   bool
	multiplier      uint32
}

// addDescriptor appends an empty descriptor and returns it. Beyond the bound, it returns the last
// descriptor again.
func (m *message) addDescriptor() *descriptor {
	n := len(m.descriptors)
	switch {
	case n > decide.MaxDescriptors:
		n--
		m.descriptors[n].clear()
	case n < cap(m.descriptors): // past the length all are clear
		m.descriptors = m.descriptors[:n+1]
	default:
		m.descriptors = append(m.descriptors, descriptor{})
	}
	return &m.descriptors[n]
}

func (d *descriptor) addEntry(e descriptors.Entry) {
	if len(d.entries) <= decide.MaxEntries {
		d.entries = append(d.entries, e)
	}
}

// clear empties m and keeps its memory.
func (m *message) clear() {
	for i := range m.descriptors {
		m.descriptors[i].clear()
	}
	*m = message{descriptors: m.descriptors[:0]}
}

func (d *descriptor) clear() {
	clear(d.entries)
	*d = descriptor{entries: d.entries[:0]}
}

// mayRefund reports whether m may refund hits or end a lease. Some requests that do neither count
// too, because ordinary keys may be named release or settle.
func (m *message) mayRefund() bool {
	for i := range m.descriptors {
		if d := &m.descriptors[i]; d.isNegativeHits || decide.MayEndLease(d.entries) {
			return true
		}
	}
	return false
}

// toRequest fills an empty r from m. Its error is shown to the client.
func (m *message) toRequest(r *decide.Request) error {
	r.Domain = m.domain
	for i := range m.descriptors {
		d := &m.descriptors[i]
		decoded := decide.Descriptor{Entries: d.entries, Hits: d.hits(m.hitsAddend), Refund: d.isNegativeHits}
		if d.hasLimit {
			if err := d.limit.override(&d.override); err != nil {
				return fmt.Errorf("descriptors[%d]: limit: %w", i, err)
			}
			decoded.Override = &d.override
		}
		r.Descriptors = append(r.Descriptors, decoded)
	}
	return nil
}

// hits returns the hits to charge. The hits_addend of a descriptor overrides that of the request,
// and may be 0, which peeks. A hits_addend of 0 in the request means 1.
func (d *descriptor) hits(ofRequest uint32) int64 {
	hits := max(1, int64(ofRequest))
	if d.hasHitsAddend {
		hits = int64(min(d.hitsAddend, limiters.MaxHits))
	}
	if d.isNegativeHits {
		return -hits
	}
	return hits
}

func (l *limitOverride) override(o *decide.Override) error {
	unit, known := unitOfOverride[l.unit]
	if !known {
		return fmt.Errorf("unknown unit %v: want SECOND, MINUTE, HOUR, DAY, MONTH or YEAR", l.unit)
	}
	if l.hasMultiplier && l.multiplier == 0 {
		return errors.New("unit_multiplier must be greater than 0")
	}
	*o = decide.Override{RequestsPerUnit: l.requestsPerUnit, Unit: unit, UnitMultiplier: l.multiplier}
	return nil
}

var unitOfOverride = map[typev3.RateLimitUnit]descriptors.Unit{
	typev3.RateLimitUnit_SECOND: descriptors.Second,
	typev3.RateLimitUnit_MINUTE: descriptors.Minute,
	typev3.RateLimitUnit_HOUR:   descriptors.Hour,
	typev3.RateLimitUnit_DAY:    descriptors.Day,
	typev3.RateLimitUnit_MONTH:  descriptors.Month,
	typev3.RateLimitUnit_YEAR:   descriptors.Year,
}
