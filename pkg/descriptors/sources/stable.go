package sources

import (
	"fmt"
	"time"
)

// maxUnstable is how long files may keep changing before Watch reports an error.
const maxUnstable = time.Minute

// A change is a difference from the loaded files that Watch has not reported yet. It is reported when two readings, far enough
// apart, agree, because half a file is often valid YAML.
type change struct {
	pending bool
	version string    // of the last reading: names, contents, sizes and modification times
	since   time.Time // of the first reading with this version
	first   time.Time // of the first reading that differed from the loaded files
}

// add records the version of a reading. It reports whether the change has been stable for a given time.
func (c *change) add(version string, now time.Time, stable time.Duration) bool {
	if !c.pending {
		*c = change{pending: true, version: version, since: now, first: now}
	} else if c.version != version {
		c.version, c.since = version, now
	}
	return now.Sub(c.since) >= stable
}

// tooLong returns an error once files have kept changing for maxUnstable.
func (c *change) tooLong(path string, now time.Time) error {
	if now.Sub(c.first) < maxUnstable {
		return nil
	}
	return fmt.Errorf("read %s: the files have kept changing for %v: move a new version over the old one in one step",
		path, maxUnstable)
}
