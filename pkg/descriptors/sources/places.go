package sources

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// places are what to watch so that no change at a path goes unseen. All paths in it are real, without symbolic links on
// the way, for a folder that is watched under two names tells of one.
type places struct {
	folders map[string]bool // to be watched
	names   map[string]bool // that matter in folders
	whole   map[string]bool // folders in which every name matters
}

// watched are the places of path: each symbolic link on the way to it and to the files below it, what it leads to, and
// the folders below it. Of what is not there, the first missing name matters.
func watched(path string) *places {
	p := &places{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	p.follow(path)
	found, _ := list(path) // what cannot be listed is told by who reads it
	for _, f := range found.files {
		if info, err := os.Lstat(f.path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			p.follow(f.path)
		}
	}
	for _, f := range found.folders {
		folder := p.follow(f)
		p.folders[folder], p.whole[folder] = true, true
	}
	return p
}

// follow goes along path, name by name, and gives the real path it leads to, as far as it leads.
func (p *places) follow(path string) string {
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
			p.folders[at], p.names[next] = true, true
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

// names keeps "..", which leads from where a link has led to.
func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

func (p *places) concerns(e fsnotify.Event) bool {
	return p.names[e.Name] || p.folders[e.Name] || p.whole[filepath.Dir(e.Name)]
}

// covers tells whether nothing in q is missing in p.
func (p *places) covers(q *places) bool {
	for _, pair := range [][2]map[string]bool{{p.folders, q.folders}, {p.names, q.names}, {p.whole, q.whole}} {
		for name := range pair[1] {
			if !pair[0][name] {
				return false
			}
		}
	}
	return true
}

// arm makes w watch these places and no others. What it cannot watch, the poll finds.
func (p *places) arm(w *fsnotify.Watcher) {
	for _, old := range w.WatchList() {
		if !p.folders[old] {
			_ = w.Remove(old)
		}
	}
	for folder := range p.folders {
		_ = w.Add(folder)
	}
}
