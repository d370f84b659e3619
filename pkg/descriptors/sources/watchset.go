package sources

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds the symbolic links in a path, as in Linux.
const maxLinks = 40

// A watchSet holds the folders to watch for changes at a path. Its paths are free of symbolic links, because fsnotify reports a
// folder under only one name.
type watchSet struct {
	folders map[string]bool // to watch
	names   map[string]bool // paths whose events matter
	whole   map[string]bool // folders in which every event matters
}

// watchSetOf returns the watch set of path: its symbolic links and their targets, the folders below path, and the links in them. If
// path does not exist, the set has its first missing name.
func watchSetOf(path string) *watchSet {
	s := &watchSet{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	s.follow(path)
	found, _ := list(path) // read reports the error
	for _, f := range found.files {
		if info, err := os.Lstat(f.path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			s.follow(f.path)
		}
	}
	for _, f := range found.folders {
		folder := s.follow(f)
		s.folders[folder], s.whole[folder] = true, true
	}
	return s
}

// follow adds the symbolic links on path. It returns the real path, up to the first missing name.
func (s *watchSet) follow(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	at, rest, links := "/", names(path), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		link := err == nil && info.Mode()&os.ModeSymlink != 0
		if link || err != nil || len(rest) == 0 {
			s.folders[at], s.names[next] = true, true
		}
		if err != nil {
			return next
		}
		if !link {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return next
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(names(target), rest...)
	}
	return at
}

// names splits a path. It keeps "..", which after a symbolic link is the parent of the target.
func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// concerns reports whether an event may change the rules.
func (s *watchSet) concerns(e fsnotify.Event) bool {
	return s.names[e.Name] || s.folders[e.Name] || s.whole[filepath.Dir(e.Name)]
}

// covers reports whether s contains other.
func (s *watchSet) covers(other *watchSet) bool {
	for _, pair := range [][2]map[string]bool{
		{s.folders, other.folders}, {s.names, other.names}, {s.whole, other.whole},
	} {
		for name := range pair[1] {
			if !pair[0][name] {
				return false
			}
		}
	}
	return true
}

// apply makes w watch exactly the folders of s. Polling covers folders that cannot be watched.
func (s *watchSet) apply(w *fsnotify.Watcher) {
	for _, old := range w.WatchList() {
		if !s.folders[old] {
			_ = w.Remove(old)
		}
	}
	for folder := range s.folders {
		_ = w.Add(folder)
	}
}
