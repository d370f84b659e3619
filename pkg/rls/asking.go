package rls

import (
	"errors"
	"fmt"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// What a request may hold. Envoy sends a descriptor for each entry of rate_limits on a route, and an entry for each of its
// actions. One call of the store decides all limits of a request, and may not take it for long.
const (
	maxDescriptors = 100
	maxEntries     = 64
	maxLimits      = 100
)

// asking is a request in this program's words. It is filled from the wire, or from Envoy's generated types; no more of it
// is kept than is needed to say that it is too much.
type asking struct {
	domain      string
	addend      uint32
	descriptors []descriptor
	sent        int        // descriptors, of which more than maxDescriptors are not kept
	spare       descriptor // takes those that are not kept
}

type descriptor struct {
	entries   []descriptors.Entry
	sent      int // entries, of which more than maxEntries are not kept
	limited   bool
	limit     sentLimit
	addended  bool
	addend    uint64
	givesBack bool

	// What it means, once validate has looked at it.
	hits     int64 // < 0 gives back, 0 looks
	override override
}

// A sentLimit is a limit as a descriptor brings it along.
type sentLimit struct {
	requestsPerUnit uint32
	unit            typev3.RateLimitUnit
	multiplied      bool
	multiplier      uint32
}

// An override is a limit that the request brings along.
type override struct {
	requestsPerUnit uint32
	unit            descriptors.Unit
	multiplier      uint32 // 0: none given
}

// next is the descriptor after those that are there. Past them are cleared ones.
func (a *asking) next() *descriptor {
	a.sent++
	n := len(a.descriptors)
	switch {
	case n >= maxDescriptors:
		a.spare.clear()
		return &a.spare
	case n < cap(a.descriptors):
		a.descriptors = a.descriptors[:n+1]
	default:
		a.descriptors = append(a.descriptors, descriptor{})
	}
	return &a.descriptors[n]
}

func (d *descriptor) add(e descriptors.Entry) {
	if d.sent++; d.sent <= maxEntries {
		d.entries = append(d.entries, e)
	}
}

// clear forgets what was asked, and keeps the room for it.
func (a *asking) clear() {
	for i := range a.descriptors {
		a.descriptors[i].clear()
	}
	a.spare.clear()
	a.domain, a.addend, a.descriptors, a.sent = "", 0, a.descriptors[:0], 0
}

func (d *descriptor) clear() {
	clear(d.entries)
	*d = descriptor{entries: d.entries[:0]}
}

// read fills an empty asking from a message.
func (a *asking) read(request *ratelimitv3.RateLimitRequest) {
	a.domain, a.addend = request.GetDomain(), request.GetHitsAddend()
	for _, sent := range request.GetDescriptors() {
		a.next().read(sent)
	}
}

func (d *descriptor) read(sent *commonv3.RateLimitDescriptor) {
	for _, e := range sent.GetEntries() {
		d.add(descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	d.addended, d.addend = sent.GetHitsAddend() != nil, sent.GetHitsAddend().GetValue()
	d.givesBack = sent.GetIsNegativeHits()
	if limit := sent.GetLimit(); limit != nil {
		d.limited = true
		d.limit = sentLimit{
			limit.GetRequestsPerUnit(), limit.GetUnit(),
			limit.GetUnitMultiplier() != nil, limit.GetUnitMultiplier().GetValue(),
		}
	}
}

// validate tells what the request means. It is the only place that rejects what a client sent; its errors are for the
// client to read.
func (a *asking) validate() error {
	switch {
	case a.domain == "":
		return errors.New("rate limit domain must not be empty")
	case a.sent == 0:
		return errors.New("rate limit descriptor list must not be empty")
	case a.sent > maxDescriptors:
		return fmt.Errorf("%d descriptors are too many: want at most %d", a.sent, maxDescriptors)
	}
	for i := range a.descriptors {
		if err := a.descriptors[i].validate(a.addend); err != nil {
			return fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	return nil
}

func (d *descriptor) validate(addend uint32) error {
	if d.sent > maxEntries {
		return fmt.Errorf("%d entries are too many: want at most %d", d.sent, maxEntries)
	}
	for i := range d.entries {
		if d.entries[i].Key == "" {
			return fmt.Errorf("entries[%d]: the key must not be empty", i)
		}
	}
	d.hits = max(1, int64(addend))
	if d.addended {
		d.hits = int64(min(d.addend, limiters.MaxHits))
	}
	if d.givesBack {
		d.hits = -d.hits
	}
	if !d.limited {
		return nil
	}
	unit, known := unitsOfOverrides[d.limit.unit]
	if !known {
		return fmt.Errorf("limit: unknown unit %v: want SECOND, MINUTE, HOUR, DAY, MONTH or YEAR", d.limit.unit)
	}
	if d.limit.multiplied && d.limit.multiplier == 0 {
		return errors.New("limit: unit_multiplier must be greater than 0")
	}
	d.override = override{d.limit.requestsPerUnit, unit, d.limit.multiplier}
	return nil
}

var unitsOfOverrides = map[typev3.RateLimitUnit]descriptors.Unit{
	typev3.RateLimitUnit_SECOND: descriptors.Second,
	typev3.RateLimitUnit_MINUTE: descriptors.Minute,
	typev3.RateLimitUnit_HOUR:   descriptors.Hour,
	typev3.RateLimitUnit_DAY:    descriptors.Day,
	typev3.RateLimitUnit_MONTH:  descriptors.Month,
	typev3.RateLimitUnit_YEAR:   descriptors.Year,
}
