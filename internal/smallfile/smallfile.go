// Package smallfile reads files of passwords, tokens and certificates.
package smallfile

import (
	"fmt"
	"io"
	"os"
)

// maxBytes bounds a file. Bundles of CA certificates are the largest, with about 250 KB.
const maxBytes = 1 << 20

// Read returns the content of a regular file of at most 1 MiB. Its errors contain the path, and
// never the content.
func Read(path string) ([]byte, error) {
	// Opening a pipe or a device may block.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
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
	return data, nil
}
