package limiters

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for systems without a time zone database
)

//go:embed zones.txt
var zoneNames string

// TimeZones returns the names of the time zones that limits may have, sorted: those of the IANA database in Go. Other names
// that a system's database may know are left out, so that rules are valid on every system or on none.
func TimeZones() []string { return strings.Fields(zoneNames) }

// utc is the time zone of limits that name none.
const utc = "UTC"

// zoneOf returns the time zone of a name, which is case-sensitive.
func zoneOf(name string) (*time.Location, error) {
	if _, known := slices.BinarySearch(TimeZones(), name); !known {
		return nil, fmt.Errorf("unknown time_zone %q: want a name of the IANA database, such as Europe/Berlin", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the time_zone %s: %w", name, err)
	}
	return zone, nil
}
