// Package smallfile reads files of passwords, tokens and certificates.
package smallfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// maxBytes bounds a file. Bundles of CA certificates are the largest, with about 250 KB.
const maxBytes = 1 << 20

// Read returns the content of a regular file of at most 1 MiB, which may be read again. It skips a
// byte order mark at the beginning. Its errors contain the path, and never the content.
func Read(path string) ([]byte, error) {
	// A pipe gives its content only once, and opening it may block.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return ReadOnce(path)
}

// ReadOnce is [Read] for any file: it waits for the writer of a pipe, such as <(command) of a
// shell.
func ReadOnce(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("%s is too large: want at most %d bytes", path, maxBytes)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}
