// Package snapshot saves and loads the counters of a store in a file.
package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-rls/weir/internal/atomicfile"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// errNotAFile is returned for a path of a folder, a pipe or a device.
var errNotAFile = errors.New("not a regular file: name a file")

// Load returns a store with the snapshot at path, or fs.ErrNotExist.
func Load(path string, o memstore.Options) (*memstore.Store, memstore.Loaded, error) {
	// Opening a pipe would block.
	if info, err := os.Stat(path); err != nil {
		return nil, memstore.Loaded{}, err
	} else if !info.Mode().IsRegular() {
		return nil, memstore.Loaded{}, fmt.Errorf("%s: %w", path, errNotAFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, memstore.Loaded{}, err
	}
	defer func() { _ = f.Close() }()
	return memstore.Load(f, o)
}

// Quarantine renames a snapshot that Load rejected, so that Save does not overwrite it. It returns the new path.
func Quarantine(path string) (renamed string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: %w", path, errNotAFile)
	}
	renamed = path + ".refused"
	return renamed, os.Rename(path, renamed)
}

// Save atomically replaces the snapshot at path, see [atomicfile.Write]. It returns the number of keys.
func Save(path string, from *memstore.Store) (keys int64, err error) {
	err = atomicfile.Write(path, func(w io.Writer) error {
		keys, err = from.Save(w)
		return err
	})
	return keys, err
}
