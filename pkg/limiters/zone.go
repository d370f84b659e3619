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

// TimeZones returns the valid time zones, sorted: the names in Go's copy of the IANA database. Other names that a system may know
// are rejected, so that the validity of rules does not depend on the system.
func TimeZones() []string { return strings.Fields(zoneNames) }

// utc is the default time zone.
const utc = "UTC"

// zoneOf returns a time zone by its name, which is case-sensitive.
func zoneOf(name string) (*time.Location, error) {
	if _, known := slices.BinarySearch(TimeZones(), name); !known {
		return nil, invalid("want a name of the IANA database, such as Europe/Berlin", "unknown time_zone %q", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the time_zone %s: %w", name, err)
	}
	return zone, nil
}
