package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/decide"
)

// Bounds of a load.
const (
	maxUsers        = 1_000_000
	maxLoadRequests = 100_000_000 // on average
)

// shapes are the shapes of loads, each with the fields that only this shape has.
var shapes = map[string][]string{
	"poisson":  {"rate"},
	"steady":   {"rate"},
	"burst":    {"size", "every", "width"},
	"daily":    {"rate", "swing", "peak"},
	"attacker": {"rate"},
}

var shapeNames = []string{"poisson", "steady", "burst", "daily", "attacker"}

// commonFields are the fields of every shape.
var commonFields = []string{"users", "zipf", "name", "domain", "key", "descriptor", "hits", "start", "from", "for", "duration", "seed"}

// loadFields are the shape and the fields of a load.
type loadFields struct {
	shape        string
	rate         float64 // requests a second
	size         int64   // requests of a burst
	every, width time.Duration
	swing        float64
	peak         time.Duration // the time of day, in UTC
	users        int
	zipf         float64
	prefix       string // begins the names of users
	domain       string
	descriptors  [][]template
	hits         int64
	start        time.Time
	from, length time.Duration // when this load begins after start, and how long it lasts
	duration     time.Duration // the length of all loads together
	seed         uint64
}

// parseLoad reads one load. first has the fields of the first load. It is nil when the first load
// is read.
func parseLoad(text string, first *loadFields) (*loadFields, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, fmt.Errorf("the shape is missing: want one of %s", strings.Join(shapeNames, ", "))
	}
	shapeFields, known := shapes[words[0]]
	if !known {
		return nil, fmt.Errorf("unknown shape %q: want one of %s", words[0], strings.Join(shapeNames, ", "))
	}
	l := &loadFields{
		shape: words[0], rate: 10, size: 100, every: time.Minute, width: time.Second, swing: 0.8, peak: 20 * time.Hour,
		users: 1000, prefix: "user", hits: 1, start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), length: -1, duration: time.Hour, seed: 1,
	}
	if l.shape == "attacker" {
		l.users, l.prefix = 1, "attacker"
	}
	var inherited [][]template
	if first != nil {
		l.domain, l.start, l.duration, l.seed, inherited = first.domain, first.start, first.duration, first.seed, first.descriptors
	}
	names, fields := slices.Concat(shapeFields, commonFields), l.byName()
	given := map[string]bool{}
	for _, word := range words[1:] {
		name, value, found := strings.Cut(word, "=")
		switch {
		case !found:
			return nil, fmt.Errorf("%q is not a field: want name=value", word)
		case !slices.Contains(names, name):
			return nil, unknownField(l.shape, name, names)
		case given[name] && name != "descriptor" && name != "key":
			return nil, fmt.Errorf("%s is given twice: remove one", name)
		}
		given[name] = true
		switch err := fields[name].set(value); {
		case err == nil:
		case fields[name].want == "":
			return nil, err
		default:
			return nil, fmt.Errorf("%s=%s: want %s", name, value, fields[name].want)
		}
	}
	if l.descriptors == nil {
		l.descriptors = inherited
	}
	if rest := l.duration - l.from; l.length < 0 || l.length > rest {
		l.length = rest
	}
	return l, nil
}

func unknownField(shape, name string, names []string) error {
	if nearest := spelling.Nearest(name, names); nearest != "" {
		return fmt.Errorf("%s has no field %q: did you mean %q?", shape, name, nearest)
	}
	return fmt.Errorf("%s has no field %q: it has %s", shape, name, strings.Join(names, ", "))
}

// A loadField parses and sets one field.
type loadField struct {
	set  func(value string) error
	want string // the valid values, for the error; "": the error of set has them
}

// byName returns the fields of l.
func (l *loadFields) byName() map[string]loadField {
	const (
		longest      = 10 * 365 * 24 * time.Hour
		wantDuration = "a duration such as 90s or 1h30m, at most 10 years"
	)
	parseFloat := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	parseInt := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	parseUint := func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }
	return map[string]loadField{
		"rate":     {setter(&l.rate, parseFloat, 1e-6, 1e6), "requests a second, from 0.000001 to 1000000"},
		"zipf":     {setter(&l.zipf, parseFloat, 0, 10), "an exponent from 0 (all users alike) to 10"},
		"swing":    {setter(&l.swing, parseFloat, 0, 1), "a share of the rate, from 0 to 1"},
		"size":     {setter(&l.size, parseInt, 1, 1e6), "requests of a burst, from 1 to 1000000"},
		"users":    {setter(&l.users, strconv.Atoi, 1, maxUsers), fmt.Sprintf("a number of users, from 1 to %d", maxUsers)},
		"hits":     {setter(&l.hits, parseInt, -1e9, 1e9), "a whole number"},
		"seed":     {setter(&l.seed, parseUint, 0, math.MaxUint64), "a whole number, at least 0"},
		"every":    {setter(&l.every, time.ParseDuration, time.Microsecond, longest), wantDuration},
		"width":    {setter(&l.width, time.ParseDuration, 0, longest), wantDuration},
		"peak":     {setter(&l.peak, time.ParseDuration, 0, longest), wantDuration},
		"from":     {setter(&l.from, time.ParseDuration, 0, longest), wantDuration},
		"for":      {setter(&l.length, time.ParseDuration, time.Microsecond, longest), wantDuration},
		"duration": {setter(&l.duration, time.ParseDuration, time.Microsecond, longest), wantDuration},

		"start":      {l.setStart, "a time such as 2026-01-01T00:00:00Z, from 1971 to 2189"},
		"name":       {func(value string) error { l.prefix = value; return nil }, ""},
		"domain":     {func(value string) error { l.domain = value; return nil }, ""},
		"key":        {l.addKey, "one key, such as key=user_id; descriptor has the others"},
		"descriptor": {l.addDescriptor, ""},
	}
}

var errOutOfRange = errors.New("out of range")

// setter returns a function that parses a value from least to most into to.
func setter[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T) func(string) error {
	return func(value string) (err error) {
		*to, err = parse(value)
		if err == nil && !(*to >= least && *to <= most) { // also NaN
			err = errOutOfRange
		}
		return err
	}
}

func (l *loadFields) setStart(value string) error {
	start, err := time.Parse(time.RFC3339, value)
	l.start = start.UTC()
	if err == nil && (l.start.Year() < 1971 || l.start.Year() > 2189) {
		err = errOutOfRange
	}
	return err
}

func (l *loadFields) addKey(key string) error {
	if key == "" || strings.ContainsAny(key, ",={}") {
		return errors.New("not one key")
	}
	l.descriptors = append(l.descriptors, []template{{key: key, parts: []part{{user: true}}}})
	return nil
}

func (l *loadFields) addDescriptor(text string) error {
	entries, err := parseTemplates(text)
	l.descriptors = append(l.descriptors, entries)
	return err
}

// check returns an error for fields that contradict each other, or that make too many requests.
func (l *loadFields) check() error {
	switch {
	case len(l.descriptors) > decide.MaxDescriptors:
		return fmt.Errorf("there are more than %d descriptors", decide.MaxDescriptors)
	case l.from >= l.duration:
		return fmt.Errorf("from=%v is not before the end of the load, duration=%v: shorten from, or lengthen duration", l.from, l.duration)
	case l.width > l.every:
		return errors.New("width is longer than every: make it shorter")
	}
	rate := l.rate
	if l.shape == "burst" {
		rate = float64(l.size) / l.every.Seconds()
	}
	if n := rate * l.length.Seconds(); n > maxLoadRequests {
		return fmt.Errorf("it makes some %.0f requests, more than %d: lower the rate or the duration", n, int64(maxLoadRequests))
	}
	return nil
}
