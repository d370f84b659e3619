// Package reloadfile keeps a value that is read from files, and reads it again when a file changes.
package reloadfile

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// maxWait bounds the wait of Current for files on a disk that hangs.
const maxWait = time.Second

// A Value is the last value that was read from files without an error. It is safe for concurrent
// use.
type Value[T any] struct {
	prefix string
	paths  []string
	read   func() (T, error)
	failed func(error)

	mu    sync.Mutex
	value T
	check *check // in progress; nil: none

	// Only the check in progress uses these fields.
	versions []fs.FileInfo // the files that value was read from
	reported string        // the error passed to failed last; empty once a load succeeds
}

// A check reads the files if they have changed.
type check struct {
	done     chan struct{} // closed at the end
	deadline time.Time     // of the calls that wait for it
}

// New reads a value from the files at paths. It returns the error of read, and passes a later error
// to failed, once for each different error. The error of a missing file begins with prefix.
func New[T any](prefix string, paths []string, read func() (T, error), failed func(error)) (*Value[T], error) {
	v := &Value[T]{prefix: prefix, paths: paths, read: read, failed: failed}
	return v, v.load()
}

// Current returns the value of the files. If a file has changed, Current reads the files first. If
// that fails, or takes longer than a second because the disk hangs, Current returns the last value,
// and a later call has the new one.
func (v *Value[T]) Current() T {
	deadline := time.Now().Add(maxWait)
	c, began := v.begin()
	c.wait(deadline)
	if !began { // a check that began earlier may have missed the change
		c, _ = v.begin()
		c.wait(deadline)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

// begin begins a check, or returns the one in progress. At most one goroutine reads files, so calls
// while the disk hangs add none.
func (v *Value[T]) begin() (c *check, began bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.check != nil {
		return v.check, false
	}
	v.check = &check{make(chan struct{}), time.Now().Add(maxWait)}
	go v.run(v.check)
	return v.check, true
}

// run runs a check.
func (v *Value[T]) run(c *check) {
	defer func() {
		v.mu.Lock()
		v.check = nil
		v.mu.Unlock()
		close(c.done)
	}()
	switch err := v.load(); {
	case err == nil:
		v.reported = ""
	case err.Error() != v.reported:
		v.reported = err.Error()
		v.failed(err)
	}
}

// wait waits until the check ends, but neither after its deadline nor after that of the caller.
func (c *check) wait(deadline time.Time) {
	if c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	timeout := time.NewTimer(time.Until(deadline))
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
	}
}

// load reads the files if they have changed. It takes their versions before reading, so that the
// next call notices a later change.
func (v *Value[T]) load() (err error) {
	defer func() { // the parsers of certificates run here on files that others write
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: a bug in Weir or Go: %v", v.prefix, p)
		}
	}()
	versions, changed := make([]fs.FileInfo, len(v.paths)), v.versions == nil
	for i, path := range v.paths {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("%s: %w", v.prefix, err)
		}
		versions[i], changed = info, changed || !sameVersion(v.versions[i], info)
	}
	if !changed {
		return nil
	}
	value, err := v.read()
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.versions = value, versions
	return nil
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
