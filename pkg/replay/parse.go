package replay

import (
	"encoding/json"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// parseLine parses a line. The kind is "" if the line can be replayed.
func parseLine(text []byte) (Line, Kind) {
	if line, ok := scan(text); ok {
		return line, ""
	}
	return decodeLine(text)
}

// decodeLine is parseLine by encoding/json.
func decodeLine(text []byte) (Line, Kind) {
	var in struct {
		T           json.RawMessage `json:"t"`
		Domain      string          `json:"domain"`
		Descriptors [][][]string    `json:"descriptors"`
		Hits        json.RawMessage `json:"hits"`
		Allowed     *bool           `json:"allowed"`
		By          By              `json:"by"`
		LeftOut     int             `json:"left_out"`
		Overrides   []*override     `json:"overrides"`
	}
	if len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &in) != nil {
		return Line{}, NotJSON
	}
	at, ok := parseTime(in.T)
	hits, okHits := parseHits(in.Hits, len(in.Descriptors))
	switch {
	case !ok:
		return Line{}, BadTime
	case in.Domain == "":
		return Line{}, NoDomain
	case len(in.Descriptors) == 0 || len(in.Descriptors) > decide.MaxDescriptors:
		return Line{}, BadDescriptors
	case !okHits:
		return Line{}, BadHits
	case in.Overrides != nil && len(in.Overrides) != len(in.Descriptors):
		return Line{}, BadOverrides
	}
	line := Line{At: at, By: in.By, LeftOut: in.LeftOut, Request: decide.Request{Domain: in.Domain, Descriptors: make([]decide.Descriptor, len(in.Descriptors))}}
	if in.Allowed != nil {
		line.Allowed, line.HasAllowed = *in.Allowed, true
	}
	for i, pairs := range in.Descriptors {
		d := &line.Request.Descriptors[i]
		if len(pairs) > decide.MaxEntries {
			return Line{}, BadDescriptors
		}
		d.Entries = make([]descriptors.Entry, len(pairs))
		for j, pair := range pairs {
			if len(pair) != 2 || pair[0] == "" {
				return Line{}, BadDescriptors
			}
			d.Entries[j] = descriptors.Entry{Key: pair[0], Value: pair[1]}
		}
		d.Hits = hits[min(i, len(hits)-1)]
		d.Refund = d.Hits < 0
		if in.Overrides != nil && in.Overrides[i] != nil {
			var ok bool
			if d.Override, ok = in.Overrides[i].decoded(); !ok {
				return Line{}, BadOverrides
			}
		}
	}
	return line, ""
}

// parseTime parses a time of RFC 3339, or a number of µs since 1970.
func parseTime(raw json.RawMessage) (at time.Time, ok bool) {
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return at, false
		}
		return timeOf(text)
	}
	var micros int64
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &micros) != nil {
		return at, false
	}
	return inRange(time.UnixMicro(micros).UTC())
}

func timeOf(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, false
	}
	return inRange(t.UTC().Truncate(time.Microsecond))
}

func inRange(t time.Time) (time.Time, bool) { return t, !t.Before(earliest) && t.Before(latest) }

var oneHit = []int64{1}

// parseHits returns the hits of n descriptors: one number for all, or one for each.
func parseHits(raw json.RawMessage, n int) ([]int64, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return oneHit, true
	}
	if raw[0] != '[' {
		var one int64
		err := json.Unmarshal(raw, &one)
		return []int64{one}, err == nil
	}
	var each []*int64
	if json.Unmarshal(raw, &each) != nil || len(each) != n {
		return nil, false
	}
	hits := make([]int64, n)
	for i, h := range each {
		if h == nil {
			return nil, false
		}
		hits[i] = *h
	}
	return hits, true
}
