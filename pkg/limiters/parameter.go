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
	// Words are the values of a Word. The first is the default.
	Words []string
	// Hits marks an Integer that counts hits as the maximum does. A replica's share of a limit scales it too.
	Hits bool
}

// A ParameterType is the type of a parameter's value.
type ParameterType uint8

// The types of parameters.
const (
	// Integer is decimal digits.
	Integer ParameterType = iota
	// Word is one of Parameter.Words.
	Word
	// Duration is a value as time.ParseDuration reads it, in whole microseconds.
	Duration
)

// Params are the values of an algorithm's parameters: "key=value" for each that is not its default, separated by spaces.
// In the Spec of a Limit they are in the order of their declaration, so two Params that mean the same are equal.
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

// number returns the value of an Integer, or of a Duration in microseconds. It returns otherwise if there is none. The
// params must be canonical.
func (p Params) number(key string, otherwise int64) int64 {
	value, _ := p.Cut(key)
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if d, err := time.ParseDuration(value); err == nil {
		return d.Microseconds()
	}
	return otherwise
}

// Parameters returns what an algorithm declares; nil if it has no parameters, or there is no such algorithm.
func Parameters(algorithm string) []Parameter {
	if a := algorithmOf(algorithm); a != nil {
		return a.parameters
	}
	return nil
}

// canonical returns the form of params that the Spec of a Limit has. The error names each value that the algorithm does
// not take.
func (a *algorithm) canonical(params Params) (Params, error) {
	if params == "" {
		return "", nil
	}
	values := map[string]string{}
	for _, field := range strings.Fields(string(params)) {
		key, value, _ := strings.Cut(field, "=")
		i := slices.IndexFunc(a.parameters, func(p Parameter) bool { return p.Key == key })
		if i < 0 {
			return "", fmt.Errorf("the algorithm %s has no parameter %q", a.name, key)
		}
		if _, twice := values[key]; twice {
			return "", fmt.Errorf("the parameter %s is given twice", key)
		}
		var err error
		if values[key], err = a.parameters[i].canonical(value); err != nil {
			return "", err
		}
	}
	var all Params
	for _, p := range a.parameters {
		if value := values[p.Key]; value != "" {
			all = all.With(p.Key, value)
		}
	}
	return all, nil
}

// canonical returns a value in the one form that it has, "" for the default.
func (p *Parameter) canonical(value string) (string, error) {
	switch p.Type {
	case Integer:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return "", fmt.Errorf("a %s of %q is not a whole number", p.Key, value)
		}
		return strconv.FormatInt(n, 10), checkRange(p.Key, n, p.Min, p.Max)
	case Duration:
		d, err := time.ParseDuration(value)
		if err != nil || d%time.Microsecond != 0 {
			return "", fmt.Errorf("a %s of %q is not a duration in whole microseconds, such as 90s or 1h30m", p.Key, value)
		}
		if us := d.Microseconds(); us < p.Min || us > p.Max {
			return "", fmt.Errorf("a %s of %v is out of range: want %v to %v", p.Key, d, micros(p.Min), micros(p.Max))
		}
		return d.String(), nil
	default:
		if !slices.Contains(p.Words, value) {
			return "", fmt.Errorf("unknown %s %q: want one of %q", p.Key, value, p.Words)
		}
		if value == p.Words[0] {
			return "", nil
		}
		return value, nil
	}
}

// Scaled returns s with its maximum, and each parameter that counts hits, replaced by the result of part. A
// parameter that becomes 0 is left out.
func (s Spec) Scaled(part func(int64) int64) Spec {
	s.Max = part(s.Max)
	for _, p := range Parameters(s.Algorithm) {
		if value, rest := s.Params.Cut(p.Key); p.Hits && value != "" {
			n, _ := strconv.ParseInt(value, 10, 64)
			if s.Params, n = rest, part(n); n != 0 {
				s.Params = s.Params.With(p.Key, strconv.FormatInt(n, 10))
			}
		}
	}
	return s
}
