// Package reloadfile keeps a value that is read from files, and reads it again when a file changes.
package reloadfile

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// A Value is the last value that was read from files without an error. It is safe for concurrent
// use.
type Value[T any] struct {
	prefix string
	paths  []string
	read   func() (T, error)
	failed func(error)

	mu       sync.Mutex
	value    T
	versions []fs.FileInfo // the files that value was read from
	reported string        // the error passed to failed last; empty once a load succeeds
}

// New reads a value from the files at paths. It returns the error of read, and passes a later error
// to failed, once for each different error. The error of a missing file begins with prefix.
func New[T any](prefix string, paths []string, read func() (T, error), failed func(error)) (*Value[T], error) {
	v := &Value[T]{prefix: prefix, paths: paths, read: read, failed: failed}
	return v, v.load()
}

// Current returns the value of the files. If a file has changed, Current reads the files first. If
// that fails, the last value stays, and the next call reads them again.
func (v *Value[T]) Current() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch err := v.load(); {
	case err == nil:
		v.reported = ""
	case err.Error() != v.reported:
		v.reported = err.Error()
		v.failed(err)
	}
	return v.value
}

// load reads the files if they have changed. It takes their versions before reading, so that the
// next call notices a later change.
func (v *Value[T]) load() error {
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
	v.value, v.versions = value, versions
	return nil
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
