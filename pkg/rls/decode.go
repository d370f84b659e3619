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

// asking is a request in this program's words.
type asking struct {
	domain      string
	descriptors []descriptor
}

type descriptor struct {
	entries  []descriptors.Entry
	hits     int64 // < 0 gives back, 0 looks
	override *override
}

// An override is a limit that the request brings along.
type override struct {
	requestsPerUnit uint32
	unit            descriptors.Unit
	multiplier      uint32 // 0: none given
}

// decode is the only place that rejects what a client sent; its errors are for the client to read.
func decode(request *ratelimitv3.RateLimitRequest) (asking, error) {
	asked := asking{domain: request.GetDomain()}
	sent := request.GetDescriptors()
	switch {
	case asked.domain == "":
		return asked, errors.New("rate limit domain must not be empty")
	case len(sent) == 0:
		return asked, errors.New("rate limit descriptor list must not be empty")
	case len(sent) > maxDescriptors:
		return asked, fmt.Errorf("%d descriptors are too many: want at most %d", len(sent), maxDescriptors)
	}
	asked.descriptors = make([]descriptor, len(sent))
	for i, d := range sent {
		var err error
		if asked.descriptors[i], err = decodeDescriptor(d, request.GetHitsAddend()); err != nil {
			return asked, fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	return asked, nil
}

func decodeDescriptor(d *commonv3.RateLimitDescriptor, addend uint32) (descriptor, error) {
	if n := len(d.GetEntries()); n > maxEntries {
		return descriptor{}, fmt.Errorf("%d entries are too many: want at most %d", n, maxEntries)
	}
	out := descriptor{entries: make([]descriptors.Entry, len(d.GetEntries())), hits: max(1, int64(addend))}
	for i, e := range d.GetEntries() {
		if e.GetKey() == "" {
			return out, fmt.Errorf("entries[%d]: the key must not be empty", i)
		}
		out.entries[i] = descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	if own := d.GetHitsAddend(); own != nil {
		out.hits = int64(min(own.GetValue(), limiters.MaxHits))
	}
	if d.GetIsNegativeHits() {
		out.hits = -out.hits
	}
	if limit := d.GetLimit(); limit != nil {
		unit, known := unitsOfOverrides[limit.GetUnit()]
		if !known {
			return out, fmt.Errorf("limit: unknown unit %v: want SECOND, MINUTE, HOUR, DAY, MONTH or YEAR", limit.GetUnit())
		}
		multiplier := limit.GetUnitMultiplier()
		if multiplier != nil && multiplier.GetValue() == 0 {
			return out, errors.New("limit: unit_multiplier must be greater than 0")
		}
		out.override = &override{limit.GetRequestsPerUnit(), unit, multiplier.GetValue()}
	}
	return out, nil
}

var unitsOfOverrides = map[typev3.RateLimitUnit]descriptors.Unit{
	typev3.RateLimitUnit_SECOND: descriptors.Second,
	typev3.RateLimitUnit_MINUTE: descriptors.Minute,
	typev3.RateLimitUnit_HOUR:   descriptors.Hour,
	typev3.RateLimitUnit_DAY:    descriptors.Day,
	typev3.RateLimitUnit_MONTH:  descriptors.Month,
	typev3.RateLimitUnit_YEAR:   descriptors.Year,
}
