// Package atomicfile replaces files atomically.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path by the bytes that content writes, even if the machine crashes. If
// it returns an error before the rename, the old file stays. Only the owner of the process can read
// the file, because it may contain data of users. Until the rename, a hidden file beside it has the
// bytes: .NAME.weir.tmp.
func Write(path string, content func(io.Writer) error) (err error) {
	folder, name := filepath.Split(path)
	temporary := filepath.Join(folder, "."+name+".weir.tmp")
	// A killed process may have left one. With a random name, each would leave another.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if err = write(f, content); err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func write(f *os.File, content func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 256<<10)
	err := content(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return err
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
