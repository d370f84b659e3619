// Package snapshot saves and loads the counters of a store in a file.
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

// SetAside renames a snapshot that Load rejected, so that Save does not overwrite it. It returns the new path.
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

// A Saver writes its counters and returns the number of keys, as memstore.Store does.
type Saver interface {
	Save(w io.Writer) (keys int64, err error)
}

// Save atomically replaces the snapshot at path, even if the machine crashes. Only the owner of the process can read the file,
// because keys contain data of users.
func Save(path string, from Saver) (keys int64, err error) {
	temporary := path + ".tmp"
	// A killed process may have left one.
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
