package sources

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const (
	// MaxFileBytes is the maximum size of a rules file.
	MaxFileBytes = 16 << 20
	// MaxFiles is the maximum number of files and folders below a folder of rules.
	MaxFiles = 10_000
)

// Read reads the file path, or all regular files below the folder path, sorted by name. The names
// begin with path. Read follows symbolic links and skips names with a leading dot, such as ..data
// of a mounted ConfigMap. It may read a file that is being written.
//
// If one file cannot be read, Read returns no files, because incomplete rules are worse than old
// rules. It also fails for a folder without files ([ErrNoFile]), a file above [MaxFileBytes] and a
// folder above [MaxFiles]. The error names the path.
func Read(path string) ([]rulesfile.File, error) {
	r := read(path)
	for i := range r.files {
		r.files[i].Name = r.paths[i]
	}
	return r.files, r.err
}

// A Watcher reads a rules file or a folder of them, and reports changes. Call [Watcher.Read] first
// and then [Watcher.Watch], from one goroutine at a time.
type Watcher struct {
	Path   string
	reload chan struct{}
	loaded string // fingerprint of the last files returned or reported
}

// NewWatcher returns a Watcher of the file or folder at path. It reads nothing yet.
func NewWatcher(path string) *Watcher { return &Watcher{Path: path, reload: make(chan struct{}, 1)} }

// Read reads the files, as [Read] does, but their names are relative to a folder. Watch reports
// later changes.
func (w *Watcher) Read() ([]rulesfile.File, error) {
	r := read(w.Path)
	w.loaded = r.content()
	return r.files, r.err
}

// Reload makes Watch read the files now and report them, even if they are unchanged or unstable. It
// may be called at any time.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default:
	}
}

// A reading is the result of reading the path once.
type reading struct {
	files  []rulesfile.File
	paths  []string // of the files
	err    error
	stamps string // size and modification time of each file
}

func read(path string) *reading {
	found, err := list(path)
	if err != nil {
		return &reading{err: err}
	}
	r := &reading{files: make([]rulesfile.File, len(found)), paths: make([]string, len(found))}
	var stamps strings.Builder
	for i, l := range found {
		data, err := readFile(l.path, l.info.Size())
		if err != nil {
			return &reading{err: err}
		}
		r.files[i], r.paths[i] = rulesfile.File{Name: l.name, Data: data}, l.path
		fmt.Fprintf(&stamps, "%d %d;", l.info.Size(), l.info.ModTime().UnixNano())
	}
	r.stamps = stamps.String()
	return r
}

// readFile reads a file of about size bytes.
func readFile(path string, size int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { _ = file.Close() }()
	var data bytes.Buffer
	data.Grow(int(min(size, MaxFileBytes)) + bytes.MinRead)
	_, err = data.ReadFrom(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if data.Len() > MaxFileBytes {
		return nil, fmt.Errorf("read %s: larger than %d bytes, the maximum for a rules file: split it", path, MaxFileBytes)
	}
	return data.Bytes(), nil
}

// content returns a fingerprint of the files or of the error. It is never "".
func (r *reading) content() string {
	if r.err != nil {
		return "error: " + r.err.Error()
	}
	return "files: " + rulesfile.Fingerprint(r.files)
}
