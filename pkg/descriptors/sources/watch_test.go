package sources_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

const rules = `domain: d
descriptors:
- key: a
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: b
  rate_limit:
    unit: hour
    requests_per_unit: 1000
`

// firstHalf is valid YAML too, with a limit of 10 instead of 1000.
var firstHalf = rules[:strings.Index(rules, "1000")+2]

// A watched is a Watcher that is watched, and the reports about it.
type watched struct {
	*sources.Watcher
	t       *testing.T
	mu      sync.Mutex
	reports []string
}

// watch reads path, and runs do while a Watch runs, in virtual time. Watch reads the files at each
// full second.
func watch(t *testing.T, path string, do func(*watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, Watcher: sources.NewWatcher(path)}
		_, _ = w.Read()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Watch(ctx, w.report) }()
		do(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch returned %v, want the error of the context", err)
		}
	})
}

func (w *watched) report(files []rulesfile.File, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.reports = append(w.reports, "error "+err.Error())
		return
	}
	w.reports = append(w.reports, text(files))
}

// take returns the reports since the last call.
func (w *watched) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.reports
	w.reports = nil
	return got
}

func (w *watched) want(when string, want ...string) {
	w.t.Helper()
	if got := w.take(); strings.Join(got, "|") != strings.Join(want, "|") {
		w.t.Errorf("%s: reports %q, want %q", when, got, want)
	}
}

func TestWatchReportsAChangeWithinTwoSeconds(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, "1")
	watch(t, path, func(w *watched) {
		time.Sleep(10*time.Second + time.Millisecond)
		w.want("without a change")
		must.Write(t, path, "2")
		time.Sleep(2 * time.Second)
		w.want("2 s after the change", path+"=2")
		time.Sleep(time.Minute)
		w.want("without a further change")
	})
}

func TestWatchReportsChangesAfterRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/rules.yaml"
		must.Write(t, path, "1")
		f := sources.NewWatcher(path)
		_, err := f.Read()
		must.Succeed(t, err)
		must.Write(t, path, "2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got []string
		_ = f.Watch(ctx, func(files []rulesfile.File, err error) { got = append(got, text(files), fmt.Sprint(err)) })
		if want := []string{path + "=2", "<nil>"}; !slices.Equal(got, want) {
			t.Errorf("Watch reports %q, want %q", got, want)
		}
	})
}

// TestHalfWrittenFileIsNotLoaded writes a file in place with pauses, as scp does over a slow
// network.
func TestHalfWrittenFileIsNotLoaded(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, rules)
	watch(t, path, func(w *watched) {
		time.Sleep(500 * time.Millisecond)
		must.Write(t, path, firstHalf)
		time.Sleep(900 * time.Millisecond) // Watch reads the first half.
		must.Write(t, path, rules+"#")
		time.Sleep(900 * time.Millisecond)
		must.Write(t, path, rules+"##")
		w.want("while the file is written")
		time.Sleep(2 * time.Second)
		w.want("2 s after the last write", path+"="+rules+"##")
	})
}

// A folder is loaded as a whole, after the last of its files has changed.
func TestFolderIsLoadedInOneStep(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, dir+"/a", "1")
	watch(t, dir, func(w *watched) {
		time.Sleep(500 * time.Millisecond)
		for _, name := range []string{"a", "b", "c"} {
			must.Write(t, dir+"/"+name, "2")
			time.Sleep(900 * time.Millisecond)
		}
		w.want("while the files change")
		time.Sleep(2 * time.Second)
		w.want("after the last change", "a=2 b=2 c=2")
	})
}

func TestStableNeedsEqualModificationTimes(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, rules)
	watch(t, path, func(w *watched) {
		for i := range 10 {
			must.Write(t, path, firstHalf)
			modified := time.Unix(int64(i), 0)
			must.Succeed(t, os.Chtimes(path, modified, modified))
			time.Sleep(900 * time.Millisecond)
		}
		w.want("while the same half is written again and again")
		time.Sleep(2 * time.Second)
		w.want("after the last write", path+"="+firstHalf)
	})
}

func TestRevertedChangeIsNotReported(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, rules)
	watch(t, path, func(w *watched) {
		must.Write(t, path, firstHalf)
		time.Sleep(1500 * time.Millisecond)
		must.Write(t, path, rules)
		time.Sleep(time.Minute)
		w.want("after the revert")
		must.Write(t, path, firstHalf)
		time.Sleep(3 * time.Second)
		w.want("a later change", path+"="+firstHalf)
	})
}

func TestConstantlyChangingFilesAreAnError(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, rules)
	watch(t, path, func(w *watched) {
		for i := range 300 {
			must.Write(t, path, rules+strings.Repeat("#", i+1))
			time.Sleep(500 * time.Millisecond)
		}
		if got := w.take(); len(got) != 1 || !strings.Contains(got[0], path+": the files have kept changing for 1m0s") {
			t.Errorf("reports %q, want one error", got)
		}
		must.Write(t, path, rules)
		time.Sleep(3 * time.Second)
		w.want("back to the first version", path+"="+rules)
	})
}

func TestReloadLoadsWithoutWaiting(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, rules)
	watch(t, path, func(w *watched) {
		must.Write(t, path, firstHalf)
		w.Reload()
		w.want("a changed file", path+"="+firstHalf)
		w.Reload()
		w.want("an unchanged file", path+"="+firstHalf)
	})
}

func TestWatchReportsEqualFilesOnlyOnce(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, dir+"/a", "1")
	watch(t, dir, func(w *watched) {
		rename := func(name, text string) {
			other := t.TempDir() + "/" + name
			must.Write(t, other, text)
			must.Succeed(t, os.Rename(other, dir+"/"+name))
			time.Sleep(3 * time.Second)
		}
		must.Succeed(t, os.Chmod(dir+"/a", 0o644))
		rename("a", "1")
		w.want("the same content in another file")
		rename("b", "2")
		w.want("a new file", "a=1 b=2")
	})
}

func TestWatchReportsAMissingFileOnce(t *testing.T) {
	path := t.TempDir() + "/a"
	must.Write(t, path, "1")
	watch(t, path, func(w *watched) {
		must.Succeed(t, os.Remove(path))
		time.Sleep(time.Minute)
		w.want("the file is removed", "error read "+path+": no such file or directory")
		must.Succeed(t, os.Mkdir(path, 0o700))
		time.Sleep(3 * time.Second)
		w.want("an empty folder instead", "error read "+path+": no rules file in this folder")
		must.Succeed(t, os.Remove(path))
		time.Sleep(time.Second / 2)
		must.Write(t, path, "1")
		time.Sleep(3 * time.Second)
		w.want("the file is back", path+"=1")
	})
}

// A watchedChange is a change of files under a watched path, and the report about it.
type watchedChange struct {
	name   string
	setup  func(t *testing.T, dir string)
	path   string // in dir
	change func(t *testing.T, dir string)
	want   string // the report, without dir
}

// expectReports makes each change in a folder of its own and expects its report.
func expectReports(t *testing.T, changes []watchedChange) {
	t.Helper()
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.setup(t, dir)
			watch(t, dir+"/"+tt.path, func(w *watched) {
				tt.change(t, dir)
				time.Sleep(3 * time.Second)
				if got := strings.ReplaceAll(strings.Join(w.take(), "|"), dir+"/", ""); got != tt.want {
					t.Errorf("reports %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestWatchReportsChangedFiles(t *testing.T) {
	expectReports(t, []watchedChange{
		{
			name:   "a file is written in place",
			setup:  func(t *testing.T, dir string) { must.Write(t, dir+"/rules.yaml", "1") },
			path:   "rules.yaml",
			change: func(t *testing.T, dir string) { must.Write(t, dir+"/rules.yaml", "2") },
			want:   "rules.yaml=2",
		},
		{
			name:  "a file is replaced by a rename",
			setup: func(t *testing.T, dir string) { must.Write(t, dir+"/rules.yaml", "1") },
			path:  "rules.yaml",
			change: func(t *testing.T, dir string) {
				must.Write(t, dir+"/tmp", "2")
				must.Succeed(t, os.Rename(dir+"/tmp", dir+"/rules.yaml"))
			},
			want: "rules.yaml=2",
		},
		{
			name:   "a new file in a folder below",
			setup:  func(t *testing.T, dir string) { must.Write(t, dir+"/rules/x/y/a", "1") },
			path:   "rules",
			change: func(t *testing.T, dir string) { must.Write(t, dir+"/rules/x/y/b", "2") },
			want:   "x/y/a=1 x/y/b=2",
		},
		{
			name:   "a new folder",
			setup:  func(t *testing.T, dir string) { must.Write(t, dir+"/rules/a", "1") },
			path:   "rules",
			change: func(t *testing.T, dir string) { must.Write(t, dir+"/rules/x/y/b", "2") },
			want:   "a=1 x/y/b=2",
		},
		{
			name:   "a file is removed",
			setup:  func(t *testing.T, dir string) { must.Write(t, dir+"/rules/a", "1"); must.Write(t, dir+"/rules/b", "2") },
			path:   "rules",
			change: func(t *testing.T, dir string) { must.Succeed(t, os.Remove(dir+"/rules/a")) },
			want:   "b=2",
		},
	})
}

func TestWatchReportsChangedConfigMaps(t *testing.T) {
	expectReports(t, []watchedChange{
		{
			name: "a mounted ConfigMap is replaced",
			setup: func(t *testing.T, dir string) {
				must.Write(t, dir+"/rules/..1/a.yaml", "1")
				link(t, "..1", dir+"/rules/..data")
				link(t, "..data/a.yaml", dir+"/rules/a.yaml")
			},
			path: "rules",
			change: func(t *testing.T, dir string) {
				must.Write(t, dir+"/rules/..2/a.yaml", "2")
				link(t, "..2", dir+"/rules/..data")
				must.Succeed(t, os.RemoveAll(dir+"/rules/..1"))
			},
			want: "a.yaml=2",
		},
		{
			name: "one file of a mounted ConfigMap is the path",
			setup: func(t *testing.T, dir string) {
				must.Write(t, dir+"/rules/..1/a.yaml", "1")
				link(t, "..1", dir+"/rules/..data")
				link(t, "..data/a.yaml", dir+"/rules/a.yaml")
			},
			path: "rules/a.yaml",
			change: func(t *testing.T, dir string) {
				must.Write(t, dir+"/rules/..2/a.yaml", "2")
				link(t, "..2", dir+"/rules/..data")
			},
			want: "rules/a.yaml=2",
		},
	})
}

func TestWatchReportsChangedSymbolicLinks(t *testing.T) {
	expectReports(t, []watchedChange{
		{
			name: "a symbolic link on the path is replaced, as RUNTIME_ROOT is",
			setup: func(t *testing.T, dir string) {
				must.Write(t, dir+"/v1/sub/config/a", "1")
				must.Write(t, dir+"/v2/sub/config/a", "2")
				link(t, "v1", dir+"/current")
			},
			path:   "current/sub/config",
			change: func(t *testing.T, dir string) { link(t, "v2", dir+"/current") },
			want:   "a=2",
		},
		{
			name: "the target of a symbolic link is a link that is replaced",
			setup: func(t *testing.T, dir string) {
				must.Write(t, dir+"/far/v1/a", "1")
				must.Write(t, dir+"/far/v2/a", "2")
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
				must.Write(t, dir+"/far/file", "1")
				must.Write(t, dir+"/far/folder/file", "1")
				must.Write(t, dir+"/rules/own", "1")
				link(t, "../far/file", dir+"/rules/a")
				link(t, "../far/folder", dir+"/rules/b")
			},
			path: "rules",
			change: func(t *testing.T, dir string) {
				must.Write(t, dir+"/far/file", "2")
				must.Write(t, dir+"/far/folder/file", "3")
			},
			want: "a=2 b/file=3 own=1",
		},
	})
}

func TestWatchReportsChangesOfThePath(t *testing.T) {
	expectReports(t, []watchedChange{
		{
			name:   "the path is removed",
			setup:  func(t *testing.T, dir string) { must.Write(t, dir+"/x/rules/a", "1") },
			path:   "x/rules",
			change: func(t *testing.T, dir string) { must.Succeed(t, os.RemoveAll(dir+"/x")) },
			want:   "error read x/rules: no such file or directory",
		},
		{
			name:   "the path appears",
			setup:  func(*testing.T, string) {},
			path:   "x/y/rules",
			change: func(t *testing.T, dir string) { must.Write(t, dir+"/x/y/rules/a", "1") },
			want:   "a=1",
		},
		{
			name: "a folder on the path is replaced",
			setup: func(t *testing.T, dir string) {
				must.Write(t, dir+"/x/rules/a", "1")
				must.Write(t, dir+"/y/rules/a", "2")
			},
			path: "x/rules",
			change: func(t *testing.T, dir string) {
				must.Succeed(t, os.Rename(dir+"/x", dir+"/z"))
				must.Succeed(t, os.Rename(dir+"/y", dir+"/x"))
			},
			want: "a=2",
		},
	})
}
