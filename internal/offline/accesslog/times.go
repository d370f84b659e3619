package accesslog

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/recording"
)

// timeFields are the fields from which the time of a request is computed.
type timeFields struct {
	start, end, duration string
	unit                 string // of duration: s, ms, us or ns
	zone                 *time.Location
}

// useNginx sets the fields that the log of nginx has. nginx logs the time at which a request ended.
func (f *timeFields) useNginx(has func(string) bool) {
	f.end = "time_local"
	for _, name := range []string{"time_iso8601", "msec"} {
		if has(name) {
			f.end = name
		}
	}
	if f.duration == "" && has("request_time") {
		f.duration, f.unit = "request_time", "s"
	}
}

// startOf returns the time at which the request of a record started, in whole microseconds.
func (f *timeFields) startOf(field func(string) (string, bool)) (time.Time, Reason) {
	text, ok := fieldValue(field, cmp.Or(f.start, f.end))
	if !ok {
		return time.Time{}, NoTime
	}
	at, reason := parseTime(text, f.zone)
	if reason != "" {
		return at, reason
	}
	if f.start == "" && f.duration != "" {
		text, ok := fieldValue(field, f.duration)
		took, isNumber := parseDecimal(text, f.unit)
		if !ok || !isNumber {
			return at, BadDuration
		}
		at = at.Add(-took)
	}
	at = at.UTC().Truncate(time.Microsecond)
	if !recording.InRange(at) {
		return at, BadTime
	}
	return at, ""
}

var (
	zoned = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999Z0700",
		"2006-01-02 15:04:05.999999999 -0700", "02/Jan/2006:15:04:05 -0700", time.RFC1123Z}
	local = []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006/01/02 15:04:05.999999999", "02/Jan/2006:15:04:05"}
)

// parseTime parses a time of a known format. A number is in seconds, ms, µs or ns since 1970, by
// its length.
func parseTime(text string, zone *time.Location) (time.Time, Reason) {
	whole, _, _ := strings.Cut(text, ".")
	if _, err := strconv.ParseUint(whole, 10, 64); err == nil {
		unit := "s"
		switch n := len(whole); {
		case n > 17:
			unit = "ns"
		case n > 14:
			unit = "us"
		case n > 11:
			unit = "ms"
		}
		since, ok := parseDecimal(text, unit)
		if !ok {
			return time.Time{}, BadTime
		}
		return time.Unix(0, int64(since)), ""
	}
	for _, layout := range zoned {
		if t, err := time.Parse(layout, text); err == nil {
			return t, ""
		}
	}
	for _, layout := range local {
		if zone == nil {
			if _, err := time.Parse(layout, text); err == nil {
				return time.Time{}, NoZone
			}
		} else if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, ""
		}
	}
	return time.Time{}, BadTime
}

// parseDecimal returns a number of units, such as 1.25 seconds. It reports false for any other
// text, and for more than 292 years.
func parseDecimal(text, unit string) (time.Duration, bool) {
	if strings.Trim(text, "0123456789.") != "" || strings.HasPrefix(text, ".") {
		return 0, false
	}
	d, err := time.ParseDuration(text + unit)
	return d, err == nil
}
