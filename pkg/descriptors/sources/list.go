package sources

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A listed is a regular file to read.
type listed struct {
	name     string // for faults
	path     string // to open
	size     int64
	modified time.Time
}

// A listing is the result of listing a path: the file itself, or the files below the folder.
type listing struct {
	files   []listed
	folders []string
	entries int
}

// ErrNoFile is returned for an empty folder.
var ErrNoFile = errors.New("no rules file in this folder")

// list lists path. With an error, the listing is partial, but sufficient to watch.
func list(path string) (*listing, error) {
	l := &listing{}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return l, readError(err)
	case info.Mode().IsRegular():
		l.files = []listed{{path, path, info.Size(), info.ModTime()}}
		return l, nil
	case !info.IsDir():
		return l, fmt.Errorf("read %s: neither a file nor a folder: name a rules file or a folder of rules files", path)
	}
	err = l.folder(path, "", []os.FileInfo{info})
	if err == nil && len(l.files) == 0 {
		err = fmt.Errorf("read %s: %w", path, ErrNoFile)
	}
	slices.SortFunc(l.files, func(a, b listed) int { return cmp.Compare(a.name, b.name) })
	return l, err
}

// folder lists the folder path as name. parents are the folders from the root to path, against cyclic links. After an error it
// continues and finally returns the first error.
func (l *listing) folder(path, name string, parents []os.FileInfo) error {
	l.folders = append(l.folders, path)
	entries, first := os.ReadDir(path)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if l.entries++; l.entries > MaxFiles {
			return fmt.Errorf("read %s: more than %d files and folders: name a folder that has only rules files", path, MaxFiles)
		}
		err := l.entry(filepath.Join(path, e.Name()), filepath.Join(name, e.Name()), parents)
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

// readError removes the system call's name from an error.
func readError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("read %s: %w", path.Path, path.Err)
	}
	return err
}

func (l *listing) entry(path, name string, parents []os.FileInfo) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return readError(err)
	case info.Mode().IsRegular():
		l.files = append(l.files, listed{name, path, info.Size(), info.ModTime()})
	case info.IsDir():
		if slices.ContainsFunc(parents, func(p os.FileInfo) bool { return os.SameFile(p, info) }) {
			return fmt.Errorf("read %s: a symbolic link to one of its own parent folders: remove the link", path)
		}
		return l.folder(path, name, append(slices.Clip(parents), info))
	}
	return nil
}
