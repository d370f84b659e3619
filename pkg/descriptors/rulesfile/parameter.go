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

// A parameter is a key of a limit that its algorithm declares, and the algorithms that take it.
type parameter struct {
	limiters.Parameter
	algorithms []string
}

// parameters are those of all algorithms. Algorithms may share a key if they declare it alike.
var parameters = allParameters()

func allParameters() []parameter {
	var all []parameter
	for _, algorithm := range limiters.Algorithms() {
		for _, p := range limiters.Parameters(algorithm) {
			i := slices.IndexFunc(all, func(known parameter) bool { return known.Key == p.Key })
			if i < 0 {
				i, all = len(all), append(all, parameter{Parameter: p})
			}
			all[i].algorithms = append(all[i].algorithms, algorithm)
		}
	}
	return all
}

// parameterKeys returns the keys of the grammar that algorithms declare.
func parameterKeys() []key {
	keys := make([]key, len(parameters))
	for i, p := range parameters {
		keys[i] = key{p.Key, p.schema(), strings.Join(p.algorithms, ", ") + ": " + p.About, true}
	}
	return keys
}

func (p *parameter) schema() schema {
	switch p.Type {
	case limiters.Word:
		return words(p.Words...)
	case limiters.Duration:
		return duration
	default:
		return wholeNumber(p.Min, p.Max)
	}
}

// parameter reads the value of a parameter in the form that limiters.Params has. It returns "" if it reported a fault.
func (r *reader) parameter(f field, p *parameter) string {
	switch p.Type {
	case limiters.Word:
		word, _ := r.word(f, p.Words...)
		return word
	case limiters.Duration:
		return r.duration(f, p)
	default:
		n := r.number(f, p.Min, p.Max, p.Min-1)
		if n < p.Min {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
}

func (r *reader) duration(f field, p *parameter) string {
	n, ok := r.visit(f.value)
	if !ok {
		return ""
	}
	least, most := time.Duration(p.Min)*time.Microsecond, time.Duration(p.Max)*time.Microsecond
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < least || d > most || d%time.Microsecond != 0 {
		r.fault(n, fmt.Sprintf("write a duration from %v to %v, such as 90s or 1h30m", least, most), "%s is %s", p.Key, shape(n))
		return ""
	}
	return d.String()
}
