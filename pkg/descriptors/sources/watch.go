package sources

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	// quiet is how long nothing may happen before the files are read: whoever writes them is then done.
	quiet = 100 * time.Millisecond
	// patience is how long that is waited for.
	patience = time.Second
	// rounds bounds how often in a row new places are looked for: each may show others, as long as they change.
	rounds = 8
)

// Watch calls apply after each change, until ctx ends; the error is that of ctx. A change is one from what Read gave
// last before Watch, so that none is missed between them; without a Read, the first thing read is a change. Files that
// cannot be read are a change to (nil, error), told once for as long as the error stays the same. What is there again,
// or has changed back, is a change too. It calls apply from one goroutine, its own, and leaves none behind.
//
// Changes show within about 100 ms by notification, including those of symbolic links on the way, such as a mounted
// ConfigMap's; and where there is none, as on some network file systems, after File.Poll.
func (f *File) Watch(ctx context.Context, apply func([]descriptors.File, error)) error {
	f.setWatching(true)
	defer f.setWatching(false)
	w := f.watcher()
	defer w.close()
	for ctx.Err() == nil {
		w.arm(f.Path)
		files, err := read(f.Path)
		if f.differs(files, err) && ctx.Err() == nil {
			apply(files, err)
		}
		w.wait(ctx, f.reloads())
	}
	return ctx.Err()
}

func (f *File) setWatching(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watching = on
}

func (f *File) differs(files []descriptors.File, err error) bool {
	now := fingerprint(files, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.seen
	f.seen = now
	return old != now
}

// A watcher waits for something to happen. Without notifications, which the system may refuse, it polls.
type watcher struct {
	*fsnotify.Watcher
	events chan fsnotify.Event
	errors chan error
	poll   *time.Ticker
	places *places
}

func (f *File) watcher() *watcher {
	every := f.Poll
	if every <= 0 {
		every = DefaultPoll
	}
	w := &watcher{poll: time.NewTicker(every)}
	if n, err := fsnotify.NewWatcher(); err == nil {
		w.Watcher, w.events, w.errors = n, n.Events, n.Errors
	}
	return w
}

// close returns when the goroutine behind the notifications has ended, whose last deed is to close its events.
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

// arm sees to it that what changes from now on is told. It looks again after it has begun to watch a place, for
// others may have come up before.
func (w *watcher) arm(path string) {
	if w.Watcher == nil {
		return
	}
	w.places = watched(path)
	for range rounds {
		w.places.arm(w.Watcher)
		now := watched(path)
		if w.places.covers(now) {
			return
		}
		w.places = now
	}
}

// wait returns when it is time to look again.
func (w *watcher) wait(ctx context.Context, reload <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			return
		case <-w.poll.C:
			return
		case err := <-w.errors:
			if err != nil { // events were lost
				w.settle(ctx)
			}
			return
		case e := <-w.events:
			if w.places.concerns(e) {
				w.settle(ctx)
				return
			}
		}
	}
}

// settle waits until no event comes any more.
func (w *watcher) settle(ctx context.Context) {
	still, enough := time.NewTimer(quiet), time.NewTimer(patience)
	defer still.Stop()
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-still.C:
			return
		case <-enough.C:
			return
		case err := <-w.errors:
			if err != nil {
				still.Reset(quiet)
			}
		case e := <-w.events:
			if w.places.concerns(e) {
				still.Reset(quiet)
			}
		}
	}
}
