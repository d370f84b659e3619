package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"
)

// readAll reads at most maximum bytes. The error for a longer input contains name.
func readAll(from io.Reader, name string, maximum int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maximum+1))
	switch {
	case errors.As(err, new(*fs.PathError)): // it has the name
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case int64(len(data)) > maximum:
		return nil, fmt.Errorf("%s has more than %d bytes", name, maximum)
	}
	return data, nil
}

// readNamed reads a file, or standard input for -, and returns its name.
func readNamed(path string, stdin io.Reader, maximum int64) (name string, data []byte, err error) {
	if path == "-" {
		data, err = readAll(stdin, "standard input", maximum)
		return "standard input", data, err
	}
	file, err := os.Open(path)
	if err != nil {
		return path, nil, ReadError(err)
	}
	defer func() { _ = file.Close() }()
	data, err = readAll(file, path, maximum)
	return path, data, err
}

// writeFile creates a file and calls write. It reports all errors, including that of Close.
func writeFile(name string, flags int, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return writeError(err)
	}
	return errors.Join(write(file), file.Close())
}

// writeAtomically writes a file that only its owner can read, and renames it to path once it is complete. It replaces only a
// regular file.
func writeAtomically(path string, write func(io.Writer) error) error {
	if err := checkWritable(path); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails once the file is renamed
	if err := cmp.Or(write(file), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// checkWritable reports early whether [writeAtomically] would fail for path.
func checkWritable(path string) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file in it", path)
	} else if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name a file", path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("the folder %s does not exist: create it first", filepath.Dir(path))
	}
	return nil
}

func writeCompressed(w io.Writer, compressed bool, write func(io.Writer) error) error {
	if !compressed {
		return write(w)
	}
	out := bufio.NewWriter(w)
	encoder, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	return cmp.Or(write(encoder), encoder.Close(), out.Flush())
}

// A fileError is a file's error with a remedy.
type fileError struct {
	text string
	err  error
}

func (e *fileError) Error() string { return e.text }
func (e *fileError) Unwrap() error { return e.err }

// ReadError adds a remedy to the error of reading a file or folder. It returns other errors, and nil, unchanged.
func ReadError(err error) error { return withRemedy(err, "read", "correct the path") }

// writeError is [ReadError] for writing.
func writeError(err error) error {
	return withRemedy(err, "write", "create the folder, or correct the path")
}

func withRemedy(err error, verb, correct string) error {
	var done *fileError
	if err == nil || errors.As(err, &done) {
		return err
	}
	text := err.Error()
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		// The name of the system call does not help a user.
		text = strings.Replace(text, path.Error(), fmt.Sprintf("%s %s: %v", verb, path.Path, path.Err), 1)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		text += ": " + correct
	case errors.Is(err, fs.ErrPermission):
		text += ": run weir as a user that may " + verb + " it"
	case errors.Is(err, syscall.EISDIR):
		text += ": name a file"
	default:
		return err
	}
	return &fileError{text, err}
}
