package sources

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A listed file has a name to be told and a path to be opened.
type listed struct{ name, path string }

// A listing is what lies at a path, or below it.
type listing struct {
	files   []listed
	folders []string
	entries int
}

// ErrNoFile is the error of a folder that is there, and empty.
var ErrNoFile = errors.New("a folder without a file of rules")

// list is as complete as can be even with an error, for what is there is worth watching.
func list(path string) (*listing, error) {
	l := &listing{}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return l, err
	case info.Mode().IsRegular():
		l.files = []listed{{path, path}}
		return l, nil
	case !info.IsDir():
		return l, fmt.Errorf("read %s: neither a file nor a folder", path)
	}
	err = l.folder(path, "", []os.FileInfo{info})
	if err == nil && len(l.files) == 0 {
		err = fmt.Errorf("read %s: %w", path, ErrNoFile)
	}
	slices.SortFunc(l.files, func(a, b listed) int { return cmp.Compare(a.name, b.name) })
	return l, err
}

// folder lists path, which is called name. The last of above is path itself. It goes on after an error, and gives the
// first.
func (l *listing) folder(path, name string, above []os.FileInfo) error {
	l.folders = append(l.folders, path)
	entries, first := os.ReadDir(path)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if l.entries++; l.entries > MaxFiles {
			return fmt.Errorf("read %s: more than %d files and folders of rules", path, MaxFiles)
		}
		if err := l.entry(filepath.Join(path, e.Name()), filepath.Join(name, e.Name()), above); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *listing) entry(path, name string, above []os.FileInfo) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		l.files = append(l.files, listed{name, path})
	case info.IsDir():
		if slices.ContainsFunc(above, func(a os.FileInfo) bool { return os.SameFile(a, info) }) {
			return fmt.Errorf("read %s: a symbolic link to a folder that it lies in", path)
		}
		return l.folder(path, name, append(slices.Clip(above), info))
	}
	return nil
}
