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

// A File is a rules file, or a folder of them. Set the fields before use. Its methods are safe for concurrent use, but
// only one Watch may run at a time.
type File struct {
	Path string
	// Poll is the interval at which Watch reads the files without a notification. If Poll is 0 or negative, it is
	// 5 s.
	Poll time.Duration
	// Stable is how long files must stay unchanged before Watch reports them. If Stable is 0 or negative, it is
	// 1 s.
	Stable time.Duration

	once   sync.Once
	reload chan struct{}

	mu       sync.Mutex
	watching bool
	loaded   string // fingerprint of the files returned or reported last, "" before the first

	afterRead func() // set by tests: Watch has read the files and decided
	pollOnly  bool   // set by tests: Watch uses no notifications
}

// Read returns the file under the name Path, or the regular files below the folder, sorted by their names relative to
// the folder. Read follows symbolic links and skips names that begin with a dot, such as the ..data of a mounted
// ConfigMap. Read does not wait for a file that is being written.
//
// If one file cannot be read, Read returns no files: rules that lack a file are worse than the previous rules. Read also
// fails for a folder without files ([ErrNoFile]), a file above [MaxFileSize] and a folder above [MaxFiles]. The error
// names the path.
func (f *File) Read() ([]rulesfile.File, error) {
	r := read(f.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watching {
		f.loaded = r.content()
	}
	return r.files, r.err
}

// Reload makes Watch read the files and report them at once, changed or not, without waiting for Stable.
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

// A reading is the result of reading a path once.
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

// content identifies the names and contents of the files, or the error. It is never "".
func (r reading) content() string {
	if r.err != nil {
		return "error: " + r.err.Error()
	}
	return "files: " + rulesfile.Fingerprint(r.files)
}
