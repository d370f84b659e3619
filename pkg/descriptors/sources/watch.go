package sources

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const (
	// debounce is the pause in notifications after which Watch reads the files.
	debounce = 100 * time.Millisecond
	// maxDebounce bounds the wait for that pause.
	maxDebounce = time.Second
	// maxRewatch bounds consecutive updates of the watched folders. Each update may reveal further folders.
	maxRewatch = 8
	// maxUnstable is how long files may keep changing before Watch reports an error.
	maxUnstable = time.Minute
)

// Watch calls apply after each change until ctx ends, and returns the error of ctx. It calls apply from its own
// goroutine and leaves no goroutine behind.
//
// A change is a difference from the files that Read returned last or that Watch reported last, so no change is missed
// between Read and Watch. Without an earlier Read, the first reading is a change. If files cannot be read, Watch calls
// apply with the error once, until the error changes or the files can be read again.
//
// A change is reported when two readings, at least File.Stable apart, agree on the contents, sizes and modification
// times. A file that is written in place is therefore reported whole, unless its writer pauses for longer than that.
// [File.Reload] makes Watch report at once, even without a change. If files keep changing for a minute, Watch reports an error.
//
// Watch learns of changes by notification, including changes of symbolic links on the path, such as those of a mounted
// ConfigMap. Where there are no notifications, as on some network file systems, it reads the files every File.Poll.
func (f *File) Watch(ctx context.Context, apply func([]rulesfile.File, error)) error {
	f.setWatching(true)
	defer f.setWatching(false)
	w := f.watcher()
	defer w.close()
	var pending change
	reload := false
	for ctx.Err() == nil {
		w.update(f.Path)
		if r, ok := f.report(&pending, read(f.Path), reload); ok && ctx.Err() == nil {
			apply(r.files, r.err)
		}
		if f.afterRead != nil {
			f.afterRead()
		}
		reload = w.wait(ctx, f.reloads(), f.untilStable(&pending))
	}
	return ctx.Err()
}

func (f *File) setWatching(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watching = on
}

// report decides whether to report a reading. With now, it always does.
func (f *File) report(pending *change, r reading, now bool) (reading, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content := r.content()
	if content == f.loaded && !now {
		*pending = change{}
		return reading{}, false
	}
	if f.loaded == "" || pending.add(content+r.stamps, time.Now(), f.stable()) || now {
		*pending = change{}
		f.loaded = content
		return r, true
	}
	r = reading{err: pending.tooLong(f.Path, time.Now())}
	if r.err == nil || r.content() == f.loaded {
		return reading{}, false
	}
	f.loaded = r.content()
	return r, true
}

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

func (f *File) stable() time.Duration {
	return cmp.Or(max(f.Stable, 0), defaultStable)
}

// untilStable returns a channel that fires when a pending change may be stable; nil if none is pending.
func (f *File) untilStable(pending *change) <-chan time.Time {
	if !pending.pending {
		return nil
	}
	return time.After(time.Until(pending.since.Add(f.stable())))
}

// A watcher waits for a reason to read the files: a notification, the poll interval, or a reload.
type watcher struct {
	*fsnotify.Watcher // nil if the system has no notifications
	events            chan fsnotify.Event
	errors            chan error
	poll              *time.Ticker
	set               *watchSet
}

func (f *File) watcher() *watcher {
	w := &watcher{poll: time.NewTicker(cmp.Or(max(f.Poll, 0), defaultPoll))}
	if f.pollOnly {
		return w
	}
	if n, err := fsnotify.NewWatcher(); err == nil {
		w.Watcher, w.events, w.errors = n, n.Events, n.Errors
	}
	return w
}

// close stops notifications and waits for their goroutine, which closes events.
func (w *watcher) close() {
	w.poll.Stop()
	if w.Watcher == nil {
		return
	}
	_ = w.Close()
	for range w.events {
		continue
	}
}

// update watches the folders that affect path. It repeats after each update, because a folder may have appeared before it was
// watched.
func (w *watcher) update(path string) {
	if w.Watcher == nil {
		return
	}
	w.set = watchSetOf(path)
	for range maxRewatch {
		w.set.apply(w.Watcher)
		now := watchSetOf(path)
		if w.set.covers(now) {
			return
		}
		w.set = now
	}
}

// wait blocks until the files should be read. It reports whether a reload was requested.
func (w *watcher) wait(ctx context.Context, reload <-chan struct{}, stable <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-reload:
			return true
		case <-w.poll.C:
			return false
		case <-stable:
			return false
		case err := <-w.errors:
			if err != nil { // notifications were lost
				w.awaitPause(ctx)
			}
			return false
		case e := <-w.events:
			if w.set.concerns(e) {
				w.awaitPause(ctx)
				return false
			}
		}
	}
}

// awaitPause waits for a pause in notifications, so that a burst causes one reading.
func (w *watcher) awaitPause(ctx context.Context) {
	pause, enough := time.NewTimer(debounce), time.NewTimer(maxDebounce)
	defer pause.Stop()
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			return
		case <-enough.C:
			return
		case err := <-w.errors:
			if err != nil {
				pause.Reset(debounce)
			}
		case e := <-w.events:
			if w.set.concerns(e) {
				pause.Reset(debounce)
			}
		}
	}
}
