package simulate

import (
	"errors"
	"fmt"
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
	names := slices.Concat(shapeFields, commonFields)
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
		if err := l.set(name, value); err != nil {
			return nil, err
		}
	}
	if l.descriptors == nil {
		l.descriptors = inherited
	}
	return l, nil
}

func unknownField(shape, name string, names []string) error {
	if nearest := spelling.Nearest(name, names); nearest != "" {
		return fmt.Errorf("%s has no field %q: did you mean %q?", shape, name, nearest)
	}
	return fmt.Errorf("%s has no field %q: it has %s", shape, name, strings.Join(names, ", "))
}

func (l *loadFields) set(name, value string) (err error) {
	want := ""
	switch name {
	case "rate":
		l.rate, err = number(value, 1e-6, 1e6)
		want = "requests a second, from 0.000001 to 1000000"
	case "zipf":
		l.zipf, err = number(value, 0, 10)
		want = "an exponent from 0 (all users alike) to 10"
	case "swing":
		l.swing, err = number(value, 0, 1)
		want = "a share of the rate, from 0 to 1"
	case "size":
		l.size, err = whole(value, 1, 1e6)
		want = "requests of a burst, from 1 to 1000000"
	case "users":
		var n int64
		n, err = whole(value, 1, maxUsers)
		l.users, want = int(n), fmt.Sprintf("a number of users, from 1 to %d", maxUsers)
	case "hits":
		l.hits, err = whole(value, -1e9, 1e9)
		want = "a whole number"
	case "seed":
		l.seed, err = strconv.ParseUint(value, 10, 64)
		want = "a whole number, at least 0"
	case "every", "width", "peak", "from", "for", "duration":
		want = "a duration such as 90s or 1h30m, at most 10 years"
		err = l.setDuration(name, value)
	case "start":
		l.start, err = time.Parse(time.RFC3339, value)
		l.start = l.start.UTC()
		want = "a time such as 2026-01-01T00:00:00Z, from 1971 to 2189"
		if err == nil && (l.start.Year() < 1971 || l.start.Year() > 2189) {
			err = errors.New("out of range")
		}
	case "name":
		l.prefix = value
	case "domain":
		l.domain = value
	case "key":
		if value == "" || strings.ContainsAny(value, ",={}") {
			return fmt.Errorf("key=%s: want one key, such as key=user_id; descriptor has the others", value)
		}
		l.descriptors = append(l.descriptors, []template{{key: value, parts: []part{{user: true}}}})
	case "descriptor":
		var entries []template
		entries, err = parseTemplates(value)
		if err != nil {
			return err
		}
		l.descriptors = append(l.descriptors, entries)
	}
	if err != nil {
		return fmt.Errorf("%s=%s: want %s", name, value, want)
	}
	return nil
}

func (l *loadFields) setDuration(name, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		return err
	}
	positive := name == "every" || name == "duration" || name == "for"
	if d < 0 || positive && d < time.Microsecond || d > 10*365*24*time.Hour {
		return errors.New("out of range")
	}
	field := map[string]*time.Duration{
		"every": &l.every, "width": &l.width, "peak": &l.peak, "from": &l.from, "for": &l.length, "duration": &l.duration,
	}[name]
	*field = d
	return nil
}

// check returns an error for fields that contradict each other.
func (l *loadFields) check() error {
	switch {
	case len(l.descriptors) > decide.MaxDescriptors:
		return fmt.Errorf("there are more than %d descriptors", decide.MaxDescriptors)
	case l.width > l.every:
		return errors.New("width is longer than every: make it shorter")
	}
	if rest := l.duration - l.from; l.length < 0 || l.length > rest {
		l.length = rest
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

func number(text string, least, most float64) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !(n >= least && n <= most) { // also NaN
		err = errors.New("out of range")
	}
	return n, err
}

func whole(text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && (n < least || n > most) {
		err = errors.New("out of range")
	}
	return n, err
}
