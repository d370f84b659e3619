package rulesdiff

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/internal/spelling"
)

// A Condition is one or more comparisons of a figure of a [Report] with a number, such as
//
//	newly_denied_keys > 10 and newly_denied_requests_percent >= 0.5
type Condition struct {
	text string
	all  []comparison
}

type comparison struct {
	name, operator string
	number         float64
	value          func(*Report) float64
}

// figures are the names in a condition.
var figures = []struct {
	name  string
	value func(*Report) float64
}{
	{"newly_denied_keys", func(r *Report) float64 { return float64(r.NewlyDeniedKeys) }},
	{"newly_denied_requests", func(r *Report) float64 { return float64(r.NewlyDeniedRequests) }},
	{"newly_allowed_keys", func(r *Report) float64 { return float64(r.NewlyAllowedKeys) }},
	{"newly_allowed_requests", func(r *Report) float64 { return float64(r.NewlyAllowedRequests) }},
	{"keys_with_newly_denied_requests", func(r *Report) float64 { return float64(r.KeysWithNewlyDenied) }},
	{"keys_with_newly_allowed_requests", func(r *Report) float64 { return float64(r.KeysWithNewlyAllowed) }},
	{"newly_denied_keys_percent", func(r *Report) float64 { return percent(r.NewlyDeniedKeys, r.Keys) }},
	{"newly_denied_requests_percent", func(r *Report) float64 { return percent(r.NewlyDeniedRequests, r.Requests) }},
	{"skipped_lines", func(r *Report) float64 { return float64(r.skippedLines()) }},
	{"cannot_match", func(r *Report) float64 { return float64(len(r.CannotMatch)) }},
}

// figureNames returns the names that a [Condition] may have.
func figureNames() []string {
	var all []string
	for _, f := range figures {
		all = append(all, f.name)
	}
	return all
}

var operators = []string{">=", "<=", "==", "!=", ">", "<"}

// ParseCondition parses comparisons of a name, an operator and a number, joined by "and".
func ParseCondition(text string) (Condition, error) {
	c := Condition{text: strings.Join(strings.Fields(text), " ")}
	for _, part := range strings.Split(" "+c.text+" ", " and ") {
		one, err := parseComparison(strings.TrimSpace(part))
		if err != nil {
			return c, fmt.Errorf("condition %q: %w. Write for example 'newly_denied_keys > 10'. The names are %s", text, err,
				strings.Join(figureNames(), ", "))
		}
		c.all = append(c.all, one)
	}
	return c, nil
}

func parseComparison(text string) (comparison, error) {
	i := strings.IndexAny(text, "<>=!")
	if i < 0 {
		return comparison{}, fmt.Errorf("%q is not a comparison: want a name, one of %s and a number", text, strings.Join(operators, " "))
	}
	c := comparison{name: strings.TrimSpace(text[:i])}
	for _, f := range figures {
		if f.name == c.name {
			c.value = f.value
		}
	}
	if c.value == nil {
		hint := ""
		if nearest := spelling.Nearest(c.name, figureNames()); nearest != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", nearest)
		}
		return c, fmt.Errorf("unknown name %q%s", c.name, hint)
	}
	for _, o := range operators {
		if rest, ok := strings.CutPrefix(text[i:], o); ok {
			c.operator = o
			number, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil || number != number || number < 0 {
				return c, fmt.Errorf("%q is not a number of at least 0", strings.TrimSpace(rest))
			}
			c.number = number
			return c, nil
		}
	}
	return c, fmt.Errorf("%q has no known operator: the operators are %s", text, strings.Join(operators, " "))
}

// Holds reports whether every comparison holds. decided is false if keys that the report does not
// count could change that.
func (c Condition) Holds(r *Report) (holds, decided bool) {
	holds = true
	for _, one := range c.all {
		low := one.value(r)
		high := low
		switch {
		case r.KeysExact || !strings.Contains(one.name, "keys"):
		case strings.HasSuffix(one.name, "_percent"):
			low, high = 0, 100
		default: // a lower bound
			high = math.Inf(1)
		}
		always, never := one.over(low, high)
		if never {
			return false, true
		}
		holds = holds && always
	}
	return holds, holds
}

// over reports whether c holds for all values from low to high, or for none.
func (c comparison) over(low, high float64) (always, never bool) {
	switch c.operator {
	case ">":
		return low > c.number, high <= c.number
	case ">=":
		return low >= c.number, high < c.number
	case "<":
		return high < c.number, low >= c.number
	case "<=":
		return high <= c.number, low > c.number
	}
	always, never = low == c.number && high == c.number, c.number < low || c.number > high
	if c.operator == "!=" {
		always, never = never, always
	}
	return always, never
}

// String returns the condition as it was written, with single spaces.
func (c Condition) String() string { return c.text }

func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
