package limiters

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Params are the parameters of a limit. Only those that its algorithm declares may be set. Zero
// means the default.
type Params struct {
	WindowStart  string // the start of a fixed window: StartByClock (default), StartByFirstHit or StartByCalendar
	CalendarUnit string // the unit of calendar windows: "day" (default), "week", "month" or "year"
	TimeZone     string // the zone of calendar windows: one of [TimeZones], by default UTC
	Capacity     int64  // the largest burst of a funnel, in hits; by default the maximum
	LeaseTTL     time.Duration
	Peek         string // PeekWouldFit or PeekOver; the default depends on the limit
	Penalty      PenaltySpec
	Reserve      ReserveSpec
}

// A Parameter declares an algorithm's own setting, which is a field of [Params]. An algorithm
// declares its parameters once; rules, snapshots, traces and the debug page are derived from the
// declaration. A test compares it with the JSON Schema of rules.
type Parameter struct {
	Key   string // the key in rules and in texts: lower case, with '_' between words; a '.' separates the keys of an object
	About string // one sentence for users, without the name of the algorithm
	Type  ParameterType
	// Min and Max bound an Integer, or a Duration in microseconds.
	Min, Max int64
	Choices  []string // the values of a Choice
	// Default is the value of a parameter that is not set, as Set takes it; "" if the parameter is
	// required, or the value depends on the limit. DefaultText then describes it.
	Default, DefaultText string
	// Hits marks an Integer that counts hits, like the maximum, and scales with it.
	Hits bool
	// Derived marks a parameter that rules derive from the unit of a limit and have no key for.
	Derived bool
	// Required marks a key of an object that must be set if another key of the object is.
	Required bool

	// number returns the field of an Integer, or of a Duration in nanoseconds. text returns the
	// field of a Choice or a Zone.
	number func(*Params) *int64
	text   func(*Params) *string
}

// A ParameterType is the type of a parameter's value.
type ParameterType uint8

// The types of parameters.
const (
	// Integer is a decimal integer.
	Integer ParameterType = iota
	// Choice is one of Parameter.Choices.
	Choice
	// Duration is parsed by [time.ParseDuration]; it must be whole microseconds.
	Duration
	// Zone is the name of a time zone in [TimeZones].
	Zone
	// Object has no value. Its keys are the parameters, declared after it, whose Key begins with
	// its own and a '.'.
	Object
)

// allParameters are the parameters of all algorithms. An algorithm's parameters are a subsequence.
var allParameters = slices.Concat(fixedWindowParameters, funnelParameters, leaseParameters, windowedParameters)

// windowedParameters are the parameters of every algorithm but concurrency.
var windowedParameters = slices.Concat(peekParameters, penaltyParameters, reserveParameters)

// With peek=would_fit, a peek is denied if one more hit would be. With over, it is denied only if
// the usage exceeds the limit, which requires counted denied hits.
var peekParameters = []Parameter{{
	Key: "peek", Type: Choice, Choices: []string{PeekWouldFit, PeekOver},
	text:  func(p *Params) *string { return &p.Peek },
	About: "whether a peek is denied if one more hit would be denied (would_fit), or only if the usage is above the limit (over).",
}}

// The values of Params.Peek.
const (
	PeekWouldFit = "would_fit"
	PeekOver     = "over"
)

// Parameters returns the parameters of an algorithm; nil if it has none or does not exist.
func Parameters(algorithm string) []Parameter { return definitionOf(algorithm).parameters }

// Text returns the value of p in params as text for [Parameter.Set]; "" if it is zero.
func (p *Parameter) Text(params Params) string {
	switch {
	case !p.isSet(&params):
		return ""
	case p.text != nil:
		return *p.text(&params)
	case p.Type == Duration:
		return time.Duration(*p.number(&params)).String()
	default:
		return strconv.FormatInt(*p.number(&params), 10)
	}
}

func (p *Parameter) isSet(params *Params) bool {
	return p.number != nil && *p.number(params) != 0 || p.text != nil && *p.text(params) != ""
}

// Set parses text and sets p in params.
func (p *Parameter) Set(params *Params, text string) error {
	switch p.Type {
	case Integer:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return specErrorf("a '%s' of %q is not a whole number", p.Key, text)
		}
		*p.number(params) = n
	case Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return specErrorf("a '%s' of %q is not a duration, such as 90s or 1h30m", p.Key, text)
		}
		*p.number(params) = int64(d)
	case Object:
		return specErrorf("'%s' is an object", p.Key).withRemedy("set its keys")
	default:
		*p.text(params) = text
	}
	return p.validate(params)
}

// SetDefault sets p in params to its Default, if it has one and is not set.
func (p *Parameter) SetDefault(params *Params) {
	if p.Default == "" || p.isSet(params) {
		return
	}
	if err := p.Set(params, p.Default); err != nil {
		panic(err) // impossible: the Default is a constant
	}
}

// validate validates the value of p, which is not an Object, in params.
func (p *Parameter) validate(params *Params) error {
	switch p.Type {
	case Integer:
		return validateRange("'"+p.Key+"'", *p.number(params), p.Min, p.Max)
	case Duration:
		d := time.Duration(*p.number(params))
		if d%time.Microsecond != 0 {
			return specErrorf("a '%s' of %v is not a duration in whole microseconds", p.Key, d)
		}
		if d < micros(p.Min) || d > micros(p.Max) {
			return specErrorf("a '%s' of %v is out of range", p.Key, d).withRemedy("want %v to %v", micros(p.Min), micros(p.Max))
		}
		return nil
	case Zone:
		_, err := zoneOf(*p.text(params))
		return err
	default:
		if text := *p.text(params); !slices.Contains(p.Choices, text) {
			return specErrorf("unknown %s %q", p.Key, text).withRemedy("want one of %q", p.Choices)
		}
		return nil
	}
}

// validateParams returns an error for the first value in params that the algorithm does not accept.
func (d *definition) validateParams(params *Params) error {
	for i := range allParameters {
		p := &allParameters[i]
		if !p.isSet(params) {
			continue
		}
		if !slices.ContainsFunc(d.parameters, func(declared Parameter) bool { return declared.Key == p.Key }) {
			return specErrorf("the algorithm %s has no parameter %q", d.name, p.Key)
		}
		if err := errors.Join(p.validate(params), d.validateObject(p, params)); err != nil {
			return err
		}
	}
	return nil
}

// validateObject returns an error if p is a key of an object whose required key is not set.
func (d *definition) validateObject(p *Parameter, params *Params) error {
	object, _, inObject := strings.Cut(p.Key, ".")
	if !inObject {
		return nil
	}
	for i := range d.parameters {
		other := &d.parameters[i]
		key, ok := strings.CutPrefix(other.Key, object+".")
		if ok && other.Required && !other.isSet(params) {
			return specErrorf("'%s' needs '%s'", object, key).withRemedy("set '%s' in '%s'", key, object)
		}
	}
	return nil
}

// clearTextDefaults empties each Choice and Zone of params that has its default.
func (d *definition) clearTextDefaults(params *Params) {
	for i := range d.parameters {
		if p := &d.parameters[i]; p.text != nil && *p.text(params) == p.Default {
			*p.text(params) = ""
		}
	}
}

// defaultParams returns the Default of each parameter, parsed once, because a limit is created for
// most charges of more than 1 hit under on_store_error: local.
var defaultParams = sync.OnceValue(func() *Params {
	defaults := &Params{}
	for i := range allParameters {
		allParameters[i].SetDefault(defaults)
	}
	return defaults
})

// String returns "key=value" for each parameter that is not zero, separated by spaces.
func (p Params) String() string {
	if p == (Params{}) {
		return ""
	}
	var fields []string
	for i := range allParameters {
		if text := allParameters[i].Text(p); text != "" {
			fields = append(fields, allParameters[i].Key+"="+text)
		}
	}
	return strings.Join(fields, " ")
}

// ParseParams parses the result of [Params.String].
func ParseParams(text string) (params Params, err error) {
	seen := map[string]bool{}
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		i := slices.IndexFunc(allParameters, func(p Parameter) bool { return p.Key == key })
		switch {
		case i < 0:
			return Params{}, fmt.Errorf("unknown parameter %q", key)
		case seen[key]:
			return Params{}, fmt.Errorf("the parameter %s is given twice", key)
		}
		if err := allParameters[i].Set(&params, value); err != nil {
			return Params{}, err
		}
		seen[key] = true
	}
	return params, nil
}
