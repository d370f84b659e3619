package limiters

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Parameter is a setting that an algorithm has beside those of every limit. An algorithm declares its parameters once,
// in its own file. The keys of rules and their JSON Schema, snapshots, traces and the debug page follow from the
// declaration.
type Parameter struct {
	Key   string // in rules and in [Params]: lower case, with '_' between words; a '.' separates the keys of an object
	About string // one sentence for users, without the name of the algorithm
	Type  ParameterType
	// Min and Max bound an Integer, and a Duration in microseconds.
	Min, Max int64
	// Choices are the values of a Choice. The first is the default, unless NoDefault says that the default depends on the limit.
	Choices   []string
	NoDefault bool
	// Default is the value of a parameter of another type that is absent; "" if that is no single value.
	Default string
	// Hits marks an Integer that counts hits as the maximum does. A replica's share of a limit scales it too.
	Hits bool
	// Hidden marks a parameter that follows from the unit of a limit in rules, which have no key for it.
	Hidden bool
	// Required marks a key of an object without a default: it must be set if another key of the object is.
	Required bool
}

// A ParameterType is the type of a parameter's value.
type ParameterType uint8

// The types of parameters.
const (
	// Integer is decimal digits.
	Integer ParameterType = iota
	// Choice is one of Parameter.Choices.
	Choice
	// Duration is a value as time.ParseDuration reads it, in whole microseconds.
	Duration
	// Zone is the name of a time zone, one of [TimeZones].
	Zone
	// Object has no value. Its keys are the parameters whose Key begins with its own and a '.', declared after it.
	Object
)

// Params are the values of an algorithm's parameters: "key=value" for each that is not its default, separated by spaces.
// In the Spec of a Limit they are in the order of their declaration, so two Params that mean the same are equal. Params are
// a text, so that a Spec is comparable and a key of a map. [New] parses them once, by the declared types.
type Params string

// Cut returns the value of a key, "" if there is none, and the Params without it.
func (p Params) Cut(key string) (value string, rest Params) {
	if p == "" {
		return "", ""
	}
	fields := strings.Fields(string(p))
	i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, key+"=") })
	if i < 0 {
		return "", p
	}
	value = fields[i][len(key)+1:]
	return value, Params(strings.Join(slices.Delete(fields, i, i+1), " "))
}

// With returns p with key=value at its end.
func (p Params) With(key, value string) Params {
	return Params(strings.TrimSpace(string(p) + " " + key + "=" + value))
}

// Parameters returns what an algorithm declares; nil if it has no parameters, or there is no such algorithm.
func Parameters(algorithm string) []Parameter {
	if d := definitionOf(algorithm); d != nil {
		return d.parameters
	}
	return nil
}

// values are those that a Spec gives to parameters, by key: an Integer, a Duration in microseconds, the index of a Choice,
// or 1 for a Zone.
type values map[string]int64

// parse returns the canonical form of params, and the values in it. The error names the first value that the algorithm does
// not take.
func (d *definition) parse(params Params) (canonical Params, given values, err error) {
	given, texts := make(values), make([]string, len(d.parameters))
	for _, field := range strings.Fields(string(params)) {
		key, value, _ := strings.Cut(field, "=")
		i := slices.IndexFunc(d.parameters, func(p Parameter) bool { return p.Key == key })
		if i < 0 {
			return "", nil, fmt.Errorf("the algorithm %s has no parameter %q", d.name, key)
		}
		if _, twice := given[key]; twice {
			return "", nil, fmt.Errorf("the parameter %s is given twice", key)
		}
		if given[key], texts[i], err = d.parameters[i].parse(value); err != nil {
			return "", nil, err
		}
	}
	if err := d.checkRequired(given); err != nil {
		return "", nil, err
	}
	for i, text := range texts {
		if text != "" {
			canonical = canonical.With(d.parameters[i].Key, text)
		}
	}
	return canonical, given, nil
}

// checkRequired returns an error if an object is given without one of its required keys.
func (d *definition) checkRequired(given values) error {
	for _, p := range d.parameters {
		if _, set := given[p.Key]; set || !p.Required {
			continue
		}
		object, key, _ := strings.Cut(p.Key, ".")
		for other := range given {
			if strings.HasPrefix(other, object+".") {
				return fmt.Errorf("a %s without %s: set %s in %s", object, key, key, object)
			}
		}
	}
	return nil
}

// parse returns a value, see values. It also returns the value's one canonical text, "" for a default word and for UTC.
func (p *Parameter) parse(value string) (n int64, text string, err error) {
	switch p.Type {
	case Integer:
		if n, err = strconv.ParseInt(value, 10, 64); err != nil {
			return 0, "", fmt.Errorf("a %s of %q is not a whole number", p.Key, value)
		}
		return n, strconv.FormatInt(n, 10), checkRange(p.Key, n, p.Min, p.Max)
	case Duration:
		d, err := time.ParseDuration(value)
		if err != nil || d%time.Microsecond != 0 {
			return 0, "", fmt.Errorf("a %s of %q is not a duration in whole microseconds, such as 90s or 1h30m", p.Key, value)
		}
		if n = d.Microseconds(); n < p.Min || n > p.Max {
			return 0, "", fmt.Errorf("a %s of %v is out of range: want %v to %v", p.Key, d, micros(p.Min), micros(p.Max))
		}
		return n, d.String(), nil
	case Zone:
		if _, err = zoneOf(value); value == utc {
			value = ""
		}
		return 1, value, err
	case Object:
		return 0, "", fmt.Errorf("%s is an object: set its keys", p.Key)
	default:
		switch i := slices.Index(p.Choices, value); i {
		case -1:
			return 0, "", fmt.Errorf("unknown %s %q: want one of %q", p.Key, value, p.Choices)
		case 0:
			if !p.NoDefault {
				value = ""
			}
			return 0, value, nil
		default:
			return int64(i), value, nil
		}
	}
}

// Scaled returns s with its maximum, and each parameter that counts hits, replaced by the result of part. A parameter that
// becomes 0 is left out. An invalid value stays as it is, and [New] rejects it. If the algorithm needs a rounder maximum, it
// is rounded up.
func (s Spec) Scaled(part func(int64) int64) Spec {
	s.Max = part(s.Max)
	if d := definitionOf(s.Algorithm); d != nil && d.roundUp != nil {
		s.Max = d.roundUp(s)
	}
	for _, p := range Parameters(s.Algorithm) {
		value, rest := s.Params.Cut(p.Key)
		if !p.Hits || value == "" {
			continue
		}
		n, _, err := p.parse(value)
		if err != nil {
			continue
		}
		if s.Params, n = rest, part(n); n != 0 {
			s.Params = s.Params.With(p.Key, strconv.FormatInt(n, 10))
		}
	}
	return s
}
