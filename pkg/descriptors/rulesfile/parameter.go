package rulesfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A parameter is a key of a limit that algorithms declare, with these algorithms.
type parameter struct {
	limiters.Parameter
	algorithms []string
}

// parameters are the parameters of all algorithms. Algorithms that share a key must declare it
// identically.
var parameters = allParameters()

func allParameters() []*parameter {
	var all []*parameter
	for _, algorithm := range limiters.Algorithms() {
		for _, p := range limiters.Parameters(algorithm) {
			if p.Derived {
				continue
			}
			i := slices.IndexFunc(all, func(known *parameter) bool { return known.Key == p.Key })
			if i < 0 {
				i, all = len(all), append(all, &parameter{Parameter: p})
			}
			all[i].algorithms = append(all[i].algorithms, algorithm)
		}
	}
	return all
}

func parameterKeys() []string {
	var keys []string
	for _, p := range parameters {
		if !p.inObject() {
			keys = append(keys, p.Key)
		}
	}
	return keys
}

func (p *parameter) inObject() bool { return strings.Contains(p.Key, ".") }

// keyIn returns the key of p within object, and whether p belongs to it.
func (p *parameter) keyIn(object string) (key string, ok bool) {
	return strings.CutPrefix(p.Key, object+".")
}

// objects maps the key of each object parameter to its section.
var objects = allObjects()

func allObjects() map[string]*MapSchema {
	all := map[string]*MapSchema{}
	for _, o := range parameters {
		if o.Type != limiters.Object {
			continue
		}
		s := &MapSchema{Name: "a " + o.Key}
		for _, p := range parameters {
			if name, ok := p.keyIn(o.Key); ok {
				s.Keys = append(s.Keys, name)
			}
		}
		all[o.Key] = s
	}
	return all
}

// readObjectParameter reads the keys of an object into settings.
func (r *reader) readObjectParameter(f field, object *parameter, settings map[string]setting) {
	settings[object.Key] = setting{key: f.key}
	keys, ok := r.readFields(f.value, objects[object.Key])
	if !ok {
		return
	}
	faulty := r.faulty(keys)
	for _, p := range parameters {
		name, ok := p.keyIn(object.Key)
		switch {
		case !ok:
		case keys.has(name):
			settings[p.Key] = setting{keys.key(name), r.readParameter(keys.get(name), p)}
		case p.Required && !faulty:
			r.fault(f.key, fmt.Sprintf("'%s' needs '%s'", object.Key, name), "set '"+name+"': "+strings.TrimSuffix(p.About, "."))
		}
	}
}

// readParameter reads a scalar parameter as text for [limiters.Parameter.Set]; "" after a fault.
func (r *reader) readParameter(f field, p *parameter) string {
	switch p.Type {
	case limiters.Choice:
		return r.readChoice(f, p.Choices...)
	case limiters.Duration:
		return r.readDuration(f, p)
	case limiters.Zone:
		return r.readZone(f)
	default:
		faulty := p.Min - 1
		n := r.readNumber(f, p.Min, p.Max, faulty)
		if n == faulty {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
}

func (r *reader) readZone(f field) string {
	n, ok := r.valueOf(f)
	if !ok {
		return ""
	}
	zones := limiters.TimeZones()
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.faultyValue(f.key.Value, n, "want the name of a time zone, such as Europe/Berlin")
		return ""
	}
	if _, known := slices.BinarySearch(zones, n.Value); !known {
		r.fault(n, fmt.Sprintf("unknown %s '%s'", f.key.Value, excerpt(n.Value)), suggestZone(n.Value, zones))
		return ""
	}
	return n.Value
}

func (r *reader) readDuration(f field, p *parameter) string {
	n, ok := r.valueOf(f)
	if !ok {
		return ""
	}
	minimum, maximum := time.Duration(p.Min)*time.Microsecond, time.Duration(p.Max)*time.Microsecond
	d, ok := parseDuration(n, minimum, maximum)
	if !ok {
		r.faultyValue(f.key.Value, n, wantDuration(minimum, maximum))
		return ""
	}
	return d.String()
}

// parseDuration parses a duration of whole microseconds from minimum to maximum.
func parseDuration(n *yaml.Node, minimum, maximum time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(n.Value)
	return d, n.Kind == yaml.ScalarNode && err == nil && minimum <= d && d <= maximum && d%time.Microsecond == 0
}

func wantDuration(minimum, maximum time.Duration) string {
	return fmt.Sprintf("want a duration from %v to %.0fh, such as 90s or 1h30m", minimum, maximum.Hours())
}
