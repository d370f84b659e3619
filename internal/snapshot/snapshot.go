// Package snapshot keeps the counters of a store in a file while no process runs.
package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// errNotAFile is the error of a path that names a folder, a pipe or a device.
var errNotAFile = errors.New("not a regular file")

// Load makes a store from the snapshot at path. The error is fs.ErrNotExist if there is none.
func Load(path string, o memstore.Options) (*memstore.Store, memstore.Loaded, error) {
	// A pipe would block Open until somebody writes to it.
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

// SetAside renames a snapshot that Load rejected, so that Save does not overwrite it. It returns the new name.
func SetAside(path string) (aside string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: %w", path, errNotAFile)
	}
	aside = path + ".refused"
	return aside, os.Rename(path, aside)
}

// A Saver writes its counters, and returns how many keys it wrote. A memstore.Store is one.
type Saver interface {
	Save(w io.Writer) (keys int64, err error)
}

// Save replaces the snapshot at path, or leaves it as it is: path never names half of a snapshot, not even after a crash.
// Only the owner of the process can read the file, because keys contain what users sent.
func Save(path string, from Saver) (keys int64, err error) {
	temporary := path + ".tmp"
	// A process that was killed may have left one.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if keys, err = write(f, from); err != nil {
		_ = f.Close()
		return 0, err
	}
	if err = f.Close(); err != nil {
		return 0, err
	}
	if err = os.Rename(temporary, path); err != nil {
		return 0, err
	}
	return keys, syncFolder(filepath.Dir(path))
}

func write(f *os.File, from Saver) (int64, error) {
	w := bufio.NewWriterSize(f, 256<<10)
	keys, err := from.Save(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return keys, err
}

// syncFolder makes a rename survive a crash of the machine.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("folder %s: %w", path, err)
	}
	return nil
}
