package sources_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// never is an interval that no test reaches.
const never = time.Hour

// A watch is a running Watch and its reports.
type watch struct {
	t       *testing.T
	reports chan string
}

// start watches until the test ends. If f.Stable is 0, start sets it to 20 ms.
func start(t *testing.T, f *sources.File) *watch {
	w := &watch{t, make(chan string, 100)}
	if f.Stable == 0 {
		f.Stable = 20 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- f.Watch(ctx, func(files []rulesfile.File, err error) {
			if err != nil {
				w.reports <- "error " + err.Error()
				return
			}
			w.reports <- text(files)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
		left, deadline := goroutines(), time.Now().Add(time.Second)
		for len(left) > 0 && time.Now().Before(deadline) {
			runtime.Gosched() // a goroutine may be about to end
			left = goroutines()
		}
		if len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n\n"))
		}
	})
	return w
}

// await waits for a report that contains want. Every earlier report must contain one of passing.
func (w *watch) await(want string, passing ...string) {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case got := <-w.reports:
			if strings.Contains(got, want) {
				return
			}
			if !contains(passing, got) {
				w.t.Fatalf("got %q, want %q", got, want)
			}
		case <-deadline:
			w.t.Fatalf("no report, want %q", want)
		}
	}
}

func contains(passing []string, got string) bool {
	for _, p := range passing {
		if strings.Contains(got, p) {
			return true
		}
	}
	return false
}

func TestWatchWithoutReadReportsInitialFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1")
	start(t, &sources.File{Path: dir, Poll: never}).await("a=1")
}

func TestWatchReportsChangesAfterRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1")
	f := &sources.File{Path: dir, Poll: never}
	_, err := f.Read()
	must(t, err)
	write(t, dir+"/a", "2")
	w := start(t, f)
	w.await("a=2")
	// A Read during Watch does not hide a change from Watch.
	write(t, dir+"/a", "3")
	_, err = f.Read()
	must(t, err)
	w.await("a=3")
}

func TestWatchReportsOnlyChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1")
	f := &sources.File{Path: dir, Poll: time.Millisecond}
	_, err := f.Read()
	must(t, err)
	w := start(t, f)
	must(t, os.Chmod(dir+"/a", 0o644))
	move := func(name, text string) {
		other := t.TempDir() + "/" + name
		write(t, other, text)
		must(t, os.Rename(other, dir+"/"+name))
	}
	move("a", "1")
	move("b", "2")
	w.await("a=1 b=2")
}

func TestWatchReportsEveryKindOfChange(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, dir string)
		path  string // in dir
		// After change, Watch reports want, possibly after some of passing.
		change  func(t *testing.T, dir string)
		want    string
		passing []string
	}{
		{
			name:   "a file is written in place",
			setup:  func(t *testing.T, dir string) { write(t, dir+"/rules.yaml", "1") },
			path:   "rules.yaml",
			change: func(t *testing.T, dir string) { write(t, dir+"/rules.yaml", "2") },
			want:   "rules.yaml=2",
		},
		{
			name:  "a file is replaced by a rename",
			setup: func(t *testing.T, dir string) { write(t, dir+"/rules.yaml", "1") },
			path:  "rules.yaml",
			change: func(t *testing.T, dir string) {
				write(t, dir+"/tmp", "2")
				must(t, os.Rename(dir+"/tmp", dir+"/rules.yaml"))
			},
			want: "rules.yaml=2",
		},
		{
			name:   "a new file in a folder below",
			setup:  func(t *testing.T, dir string) { write(t, dir+"/rules/x/y/a", "1") },
			path:   "rules",
			change: func(t *testing.T, dir string) { write(t, dir+"/rules/x/y/b", "2") },
			want:   "x/y/a=1 x/y/b=2",
		},
		{
			name:   "a new folder",
			setup:  func(t *testing.T, dir string) { write(t, dir+"/rules/a", "1") },
			path:   "rules",
			change: func(t *testing.T, dir string) { write(t, dir+"/rules/x/y/b", "2") },
			want:   "a=1 x/y/b=2",
		},
		{
			name:   "a file is removed",
			setup:  func(t *testing.T, dir string) { write(t, dir+"/rules/a", "1"); write(t, dir+"/rules/b", "2") },
			path:   "rules",
			change: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/rules/a")) },
			want:   "b=2",
		},
		{
			name: "a mounted ConfigMap is replaced",
			setup: func(t *testing.T, dir string) {
				write(t, dir+"/rules/..1/a.yaml", "1")
				link(t, "..1", dir+"/rules/..data")
				link(t, "..data/a.yaml", dir+"/rules/a.yaml")
			},
			path: "rules",
			change: func(t *testing.T, dir string) {
				write(t, dir+"/rules/..2/a.yaml", "2")
				link(t, "..2", dir+"/rules/..data")
				must(t, os.RemoveAll(dir+"/rules/..1"))
			},
			want: "a.yaml=2",
		},
		{
			name: "one file of a mounted ConfigMap is the path",
			setup: func(t *testing.T, dir string) {
				write(t, dir+"/rules/..1/a.yaml", "1")
				link(t, "..1", dir+"/rules/..data")
				link(t, "..data/a.yaml", dir+"/rules/a.yaml")
			},
			path: "rules/a.yaml",
			change: func(t *testing.T, dir string) {
				write(t, dir+"/rules/..2/a.yaml", "2")
				link(t, "..2", dir+"/rules/..data")
			},
			want: "a.yaml=2",
		},
		{
			name: "a symbolic link on the path is replaced, as RUNTIME_ROOT is",
			setup: func(t *testing.T, dir string) {
				write(t, dir+"/v1/sub/config/a", "1")
				write(t, dir+"/v2/sub/config/a", "2")
				link(t, "v1", dir+"/current")
			},
			path:   "current/sub/config",
			change: func(t *testing.T, dir string) { link(t, "v2", dir+"/current") },
			want:   "a=2",
		},
		{
			name: "the target of a symbolic link is a link that is replaced",
			setup: func(t *testing.T, dir string) {
				write(t, dir+"/far/v1/a", "1")
				write(t, dir+"/far/v2/a", "2")
				link(t, "v1", dir+"/far/current")
				link(t, dir+"/far/../far/current", dir+"/rules")
			},
			path:   "rules",
			change: func(t *testing.T, dir string) { link(t, "v2", dir+"/far/current") },
			want:   "a=2",
		},
		{
			name: "the target of a symbolic link in the folder is written",
			setup: func(t *testing.T, dir string) {
				write(t, dir+"/far/file", "1")
				write(t, dir+"/far/folder/file", "1")
				write(t, dir+"/rules/own", "1")
				link(t, "../far/file", dir+"/rules/a")
				link(t, "../far/folder", dir+"/rules/b")
			},
			path:    "rules",
			change:  func(t *testing.T, dir string) { write(t, dir+"/far/file", "2"); write(t, dir+"/far/folder/file", "3") },
			want:    "a=2 b/file=3 own=1",
			passing: []string{"a=2"},
		},
		{
			name:   "the path is removed",
			setup:  func(t *testing.T, dir string) { write(t, dir+"/x/rules/a", "1") },
			path:   "x/rules",
			change: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir+"/x")) },
			want:   "no such file or directory", passing: []string{"no rules file"},
		},
		{
			name:   "the path appears",
			setup:  func(*testing.T, string) {},
			path:   "x/y/rules",
			change: func(t *testing.T, dir string) { write(t, dir+"/x/y/rules/a", "1") },
			want:   "a=1", passing: []string{"no rules file", "a="},
		},
		{
			name:  "a folder on the path is replaced",
			setup: func(t *testing.T, dir string) { write(t, dir+"/x/rules/a", "1"); write(t, dir+"/y/rules/a", "2") },
			path:  "x/rules",
			change: func(t *testing.T, dir string) {
				must(t, os.Rename(dir+"/x", dir+"/z"))
				must(t, os.Rename(dir+"/y", dir+"/x"))
			},
			want: "a=2", passing: []string{"no such file"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.setup(t, dir)
			w := start(t, &sources.File{Path: dir + "/" + tt.path, Poll: never})
			// Without a Read, Watch reports the first reading. By then it watches the folders.
			w.await("")
			tt.change(t, dir)
			w.await(tt.want, tt.passing...)
		})
	}
}

func TestWatchReportsAMissingFileOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1")
	w := start(t, &sources.File{Path: dir + "/a", Poll: time.Millisecond})
	w.await("a=1")
	must(t, os.Remove(dir+"/a"))
	w.await("error read " + dir + "/a: no such file")
	must(t, os.WriteFile(dir+"/b", []byte("1"), 0o600))
	must(t, os.Rename(dir+"/b", dir+"/a"))
	w.await("a=1")
}

// hidden returns a file, and a function that changes the file without a notification: through a hard link in another
// folder.
func hidden(t *testing.T) (path string, change func(text string)) {
	t.Helper()
	dir, other := t.TempDir(), t.TempDir()
	write(t, dir+"/a", "1")
	if err := os.Link(dir+"/a", other+"/b"); err != nil {
		t.Skip(err)
	}
	return dir + "/a", func(text string) { write(t, other+"/b", text) }
}

func TestPollFindsChangesWithoutNotifications(t *testing.T) {
	path, change := hidden(t)
	w := start(t, &sources.File{Path: path, Poll: time.Millisecond})
	w.await("a=1")
	change("2")
	w.await("a=2", "a=")
}

func TestReloadReportsAChangeAtOnce(t *testing.T) {
	path, change := hidden(t)
	f := &sources.File{Path: path, Poll: never, Stable: never}
	w := start(t, f)
	w.await("a=1")
	change("2")
	f.Reload()
	w.await("a=2")
}

func TestReloadReportsUnchangedFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1")
	f := &sources.File{Path: dir, Poll: never, Stable: never}
	w := start(t, f)
	w.await("a=1")
	f.Reload()
	w.await("a=1")
}

// TestWatchReportsChangeDuringConstantNotifications creates a notification every 10 ms, so that there is never a pause in them.
func TestWatchReportsChangeDuringConstantNotifications(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1")
	w := start(t, &sources.File{Path: dir, Poll: never})
	w.await("a=1")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = os.WriteFile(dir+"/.noise", nil, 0o600)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	write(t, dir+"/a", "2")
	w.await("a=2")
}
