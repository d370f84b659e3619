package sources

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const (
	// MaxFileSize is the maximum size of a rules file, in bytes.
	MaxFileSize = 16 << 20
	// MaxFiles is the maximum number of files and folders below a folder of rules.
	MaxFiles = 10_000

	defaultPoll   = 5 * time.Second
	defaultStable = time.Second
)

// A File is a rules file or a folder of them. Its fields must be set before use. Its methods are safe for concurrent use, except
// that only one Watch may run at a time.
type File struct {
	Path string
	// Poll is the interval at which Watch reads the files without a notification; if not positive, 5 s.
	Poll time.Duration
	// Stable is how long files must be unchanged before Watch reports them; if not positive, 1 s.
	Stable time.Duration

	once   sync.Once
	reload chan struct{}

	mu       sync.Mutex
	watching bool
	loaded   string // fingerprint of the last files returned or reported; initially ""

	afterRead func() // set by tests: Watch has read the files and decided
	pollOnly  bool   // set by tests: Watch uses no notifications
}

// Read reads the file Path, or all regular files below the folder Path, sorted by relative name. It follows symbolic links and
// skips names with a leading dot, such as ..data of a mounted ConfigMap. It may read a file that is being written.
//
// If one file cannot be read, Read returns no files, because incomplete rules are worse than old rules. It also fails for a folder
// without files ([ErrNoFile]), a file above [MaxFileSize] and a folder above [MaxFiles]. The error names the path.
func (f *File) Read() ([]rulesfile.File, error) {
	r := read(f.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watching {
		f.loaded = r.content()
	}
	return r.files, r.err
}

// Reload makes Watch report the files at once, even if they are unchanged or unstable.
func (f *File) Reload() {
	select {
	case f.reloads() <- struct{}{}:
	default:
	}
}

func (f *File) reloads() chan struct{} {
	f.once.Do(func() { f.reload = make(chan struct{}, 1) })
	return f.reload
}

// A reading is the result of reading the path once.
type reading struct {
	files  []rulesfile.File
	err    error
	stamps string // size and modification time of each file
}

func read(path string) reading {
	found, err := list(path)
	if err != nil {
		return reading{err: err}
	}
	r := reading{files: make([]rulesfile.File, len(found.files))}
	for i, l := range found.files {
		data, err := readFile(l.path)
		if err != nil {
			return reading{err: err}
		}
		r.files[i] = rulesfile.File{Name: l.name, Data: data}
		r.stamps += fmt.Sprintf("%d %d;", l.size, l.modified.UnixNano())
	}
	return r
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, MaxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("read %s: larger than %d bytes, the maximum for a rules file: split it", path, MaxFileSize)
	}
	return data, nil
}

// content returns a fingerprint of the files or of the error. It is never "".
func (r reading) content() string {
	if r.err != nil {
		return "error: " + r.err.Error()
	}
	return "files: " + rulesfile.Fingerprint(r.files)
}
