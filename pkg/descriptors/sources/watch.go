package sources

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const (
	// pollInterval is the pause between two readings of Watch.
	pollInterval = time.Second
	// maxUnstableTime is how long files may keep changing before Watch reports an error.
	maxUnstableTime = time.Minute
)

// Watch calls apply after each change until ctx ends, and returns the error of ctx. It calls apply
// in the goroutine of its caller.
//
// A change is a difference from the files that [Watcher.Read] returned, or that Watch reported
// last, so no change is missed between Read and Watch. If files cannot be read, Watch calls apply
// with the error once, until the error changes or the files can be read again.
//
// Watch reads the files every second. It uses no notifications, because network file systems have
// none, and a mounted ConfigMap changes by symbolic links. It reports a change when two readings in
// a row agree on the contents, sizes and modification times. A file that is written in place is
// therefore reported whole, unless its writer pauses for longer than a second. [Watcher.Reload]
// makes Watch report immediately, even without a change. If files keep changing for a minute, Watch
// reports an error.
func (w *Watcher) Watch(ctx context.Context, apply func([]rulesfile.File, error)) error {
	var pending change
	for {
		reload := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		case <-w.reload:
			reload = true
		}
		r := read(w.Path)
		if !reload {
			r = pending.add(r, w, time.Now())
		}
		if r == nil || ctx.Err() != nil {
			continue
		}
		pending, w.loaded = change{}, r.content()
		apply(r.files, r.err)
	}
}

// A change is a difference from the loaded files that Watch has not reported yet. It is reported
// when two readings agree, because half a file is often valid YAML.
type change struct {
	version string    // names, contents, sizes and modification times in the last reading; "" without a change
	since   time.Time // when a reading first differed from the loaded files
}

// add adds a reading of w. It returns the reading to report, or nil.
func (c *change) add(r *reading, w *Watcher, now time.Time) *reading {
	content := r.content()
	version := content + r.stamps
	switch {
	case content == w.loaded:
		*c = change{}
		return nil
	case version == c.version:
		return r
	case c.version == "":
		c.since = now
	}
	c.version = version
	if now.Sub(c.since) >= maxUnstableTime {
		r = &reading{err: fmt.Errorf("read %s: the files have kept changing for %v: move a new version over the old one in one step",
			w.Path, maxUnstableTime)}
		if r.content() != w.loaded {
			return r
		}
	}
	return nil
}
