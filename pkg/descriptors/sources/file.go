package sources

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	// MaxFileSize is the most bytes that a file of rules may have.
	MaxFileSize = 16 << 20
	// MaxFiles is the most files and folders that may lie below a folder of rules.
	MaxFiles = 10_000
	// DefaultPoll is how often a File looks for what no notification told.
	DefaultPoll = 5 * time.Second
)

// A File is a file of rules, or a folder with every file below it. Set the fields before use. Its methods are safe for
// concurrent use, but Watch runs once at a time.
type File struct {
	Path string
	Poll time.Duration // between looks at the files themselves; 0 or less stands for DefaultPoll

	once   sync.Once
	reload chan struct{}

	mu       sync.Mutex
	watching bool
	seen     string // the fingerprint of what was read last, "" for nothing yet
}

// Read reads the file, which then has Path for its name; or the regular files below the folder, sorted by their names,
// which are relative to it. Symbolic links are followed, to files and to folders. What has a name that begins with a
// dot is passed over, such as the ..data of a mounted ConfigMap. The error names the path it is about: of what cannot
// be read, a folder without a file, a file above [MaxFileSize], more than [MaxFiles]. One bad path fails the whole, for
// rules that silently lack a file are worse than old ones.
func (f *File) Read() ([]descriptors.File, error) {
	files, err := read(f.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watching {
		f.seen = fingerprint(files, err)
	}
	return files, err
}

// Reload makes Watch look at the files now.
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

func read(path string) ([]descriptors.File, error) {
	found, err := list(path)
	if err != nil {
		return nil, err
	}
	files := make([]descriptors.File, len(found.files))
	for i, l := range found.files {
		data, err := readFile(l.path)
		if err != nil {
			return nil, err
		}
		files[i] = descriptors.File{Name: l.name, Data: data}
	}
	return files, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, MaxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("read %s: larger than %d bytes, the most for a file of rules", path, MaxFileSize)
	}
	return data, nil
}

// fingerprint tells one result of read from another. It is never "".
func fingerprint(files []descriptors.File, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return "files: " + descriptors.Fingerprint(files)
}
