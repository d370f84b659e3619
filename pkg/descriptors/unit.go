package descriptors

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Unit is a unit of time of a limit.
type Unit uint8

// Envoy's units. A Month is 30 days, and a Year 365.
const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Week
	Month
	Year
)

const day = 24 * time.Hour

var units = [...]struct {
	name     string
	duration time.Duration
}{
	{"unknown", 0},
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"week", 7 * day},
	{"month", 30 * day},
	{"year", 365 * day},
}

// UnitNames returns the names that rules use.
func UnitNames() []string {
	var names []string
	for _, u := range units[Second:] {
		names = append(names, u.name)
	}
	return names
}

// String returns the name of the unit in rules, or "unknown".
func (u Unit) String() string {
	if int(u) >= len(units) {
		u = UnitUnknown
	}
	return units[u].name
}

// Duration returns the length of the unit, or 0 if it is unknown.
func (u Unit) Duration() time.Duration {
	if int(u) >= len(units) {
		u = UnitUnknown
	}
	return units[u].duration
}

// ParseUnit parses a unit in any case; other text gives UnitUnknown.
func ParseUnit(s string) Unit {
	for u := Second; u <= Year; u++ {
		if strings.EqualFold(s, units[u].name) {
			return u
		}
	}
	return UnitUnknown
}

// window returns the length of a window of multiplier units.
func (u Unit) window(multiplier uint32) (time.Duration, error) {
	length := u.Duration()
	if length == 0 {
		return 0, &limiters.SpecError{
			Problem: fmt.Sprintf("invalid rate limit unit '%v'", u), Remedy: "want one of " + strings.Join(UnitNames(), ", "),
		}
	}
	if maximum := limiters.MaxWindow / length; int64(multiplier) > int64(maximum) {
		return 0, &limiters.SpecError{
			Problem: fmt.Sprintf("a unit_multiplier of %d is too large for the unit %v", multiplier, u),
			Remedy:  fmt.Sprintf("want at most %d, which is 10 years", int64(maximum)),
		}
	}
	return time.Duration(multiplier) * length, nil
}
