// Package snapshot saves and loads the counters of a store in a file.
package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/weir-rls/weir/internal/atomicfile"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A RejectedError is returned for a snapshot that exists but cannot be loaded.
type RejectedError struct {
	Reason error
	KeptAs string // the path to which Load renamed the snapshot, so that Save does not overwrite it; "" if RenameErr is not nil
	// RenameErr, if not nil, is why the snapshot still has its path. Save would then overwrite it.
	RenameErr error
}

func (e *RejectedError) Error() string { return e.Reason.Error() }

func (e *RejectedError) Unwrap() error { return e.Reason }

// Load returns a store with the snapshot at path. If there is none, it returns fs.ErrNotExist. If
// it cannot be loaded, it returns a [RejectedError].
func Load(path string, o memstore.Options) (*memstore.Store, memstore.Loaded, error) {
	store, loaded, err := load(path, o)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return store, loaded, err
	}
	rejected := &RejectedError{Reason: err}
	rejected.KeptAs, rejected.RenameErr = quarantine(path)
	return nil, memstore.Loaded{}, rejected
}

func load(path string, o memstore.Options) (*memstore.Store, memstore.Loaded, error) {
	// Opening a pipe would block.
	if err := checkRegular(path); err != nil {
		return nil, memstore.Loaded{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, memstore.Loaded{}, err
	}
	defer func() { _ = f.Close() }()
	return memstore.Load(f, o)
}

// quarantine renames a rejected snapshot. It replaces an older one.
func quarantine(path string) (keptAs string, err error) {
	if err := checkRegular(path); err != nil {
		return "", err
	}
	keptAs = path + ".refused"
	if err := os.Rename(path, keptAs); err != nil {
		return "", err
	}
	return keptAs, nil
}

func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file: name a file", path)
	}
	return nil
}

// Save atomically replaces the snapshot at path, see [atomicfile.Write]. It returns the number of
// keys.
func Save(path string, from *memstore.Store) (keys int64, err error) {
	err = atomicfile.Write(path, func(w io.Writer) error {
		keys, err = from.Save(w)
		return err
	})
	return keys, err
}
