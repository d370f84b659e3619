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

// A listedFile is a regular file to read.
type listedFile struct {
	name string // for faults
	path string // to open
	info os.FileInfo
}

// A listing collects the files of a path.
type listing struct {
	files   []listedFile
	entries int // files and folders so far
}

// ErrNoFile is returned for an empty folder.
var ErrNoFile = errors.New("no rules file in this folder")

// list returns the file path itself, or the files below the folder path.
func list(path string) ([]listedFile, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, readError(err)
	case info.Mode().IsRegular():
		return []listedFile{{path, path, info}}, nil
	case !info.IsDir():
		return nil, fmt.Errorf("read %s: neither a file nor a folder: name a rules file or a folder of rules files", path)
	}
	l := &listing{}
	if err := l.addFolder(path, "", []os.FileInfo{info}); err != nil {
		return nil, err
	}
	if len(l.files) == 0 {
		return nil, fmt.Errorf("read %s: %w", path, ErrNoFile)
	}
	slices.SortFunc(l.files, func(a, b listedFile) int { return cmp.Compare(a.name, b.name) })
	return l.files, nil
}

// addFolder adds the files below the folder path as name. parents are the folders from the root to
// path, against cyclic links.
func (l *listing) addFolder(path, name string, parents []os.FileInfo) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return readError(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		l.entries++
		if l.entries > MaxFiles {
			return fmt.Errorf("read %s: more than %d files and folders: name a folder that has only rules files", path, MaxFiles)
		}
		path, name := filepath.Join(path, e.Name()), filepath.Join(name, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return readError(err)
		case info.Mode().IsRegular():
			l.files = append(l.files, listedFile{name, path, info})
		case slices.ContainsFunc(parents, func(p os.FileInfo) bool { return os.SameFile(p, info) }):
			return fmt.Errorf("read %s: a symbolic link to one of its own parent folders: remove the link", path)
		case info.IsDir():
			if err := l.addFolder(path, name, append(slices.Clip(parents), info)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readError removes the system call's name from an error.
func readError(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("read %s: %w", path.Path, path.Err)
	}
	return err
}
