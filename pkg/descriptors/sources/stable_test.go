package sources_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// TestHalfWrittenFileIsNotLoaded writes a file in place with pauses, as scp does over a slow network.
func TestHalfWrittenFileIsNotLoaded(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	write(t, path, rules)
	virtualWatch(t, &sources.File{Path: path, Stable: time.Second, Poll: 100 * time.Millisecond}, func(w *recorder) {
		w.want("the first reading", rules)
		changed := rules + "- key: c\n  rate_limit: {unit: hour, requests_per_unit: 1}\n"
		out, err := os.Create(path)
		must(t, err)
		for _, part := range []string{firstHalf, changed[len(firstHalf):]} {
			_, err = out.WriteString(part)
			must(t, err)
			time.Sleep(900 * time.Millisecond)
		}
		must(t, out.Close())
		w.want("while the file is written")
		time.Sleep(300 * time.Millisecond)
		w.want("1.2 s after the last write", changed)
	})
}

// A folder is loaded as a whole, after the last of its files has changed.
func TestFolderIsLoadedInOneStep(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "a: 1")
	virtualWatch(t, &sources.File{Path: dir, Stable: time.Second, Poll: 100 * time.Millisecond}, func(w *recorder) {
		w.want("the first reading", "a: 1")
		for _, name := range []string{"a", "b", "c"} {
			write(t, dir+"/"+name, name+": 2")
			time.Sleep(900 * time.Millisecond)
		}
		w.want("while the files change")
		time.Sleep(300 * time.Millisecond)
		w.want("1.2 s after the last change", "a: 2 b: 2 c: 2")
	})
}

func TestStableNeedsEqualModificationTimes(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	write(t, path, rules)
	virtualWatch(t, &sources.File{Path: path, Stable: time.Second, Poll: 100 * time.Millisecond}, func(w *recorder) {
		w.want("the first reading", rules)
		for i := range 10 {
			write(t, path, firstHalf)
			modified := time.Unix(int64(i), 0)
			must(t, os.Chtimes(path, modified, modified))
			time.Sleep(900 * time.Millisecond)
		}
		w.want("while the same half is written again and again")
		time.Sleep(300 * time.Millisecond)
		w.want("1.2 s after the last write", firstHalf)
	})
}

func TestRevertedChangeIsNotReported(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	write(t, path, rules)
	virtualWatch(t, &sources.File{Path: path, Stable: time.Second, Poll: 100 * time.Millisecond}, func(w *recorder) {
		w.want("the first reading", rules)
		write(t, path, firstHalf)
		time.Sleep(500 * time.Millisecond)
		write(t, path, rules)
		time.Sleep(time.Minute)
		w.want("after the revert")
	})
}

func TestConstantlyChangingFilesAreAnError(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	write(t, path, rules)
	virtualWatch(t, &sources.File{Path: path, Stable: time.Second, Poll: 100 * time.Millisecond}, func(w *recorder) {
		w.want("the first reading", rules)
		for i := range 300 {
			write(t, path, rules+strings.Repeat("#", i+1))
			time.Sleep(500 * time.Millisecond)
		}
		if got := w.take(); len(got) != 1 || !strings.Contains(got[0], "kept changing for 1m0s") {
			t.Errorf("%q, want one error", got)
		}
		write(t, path, rules)
		time.Sleep(2 * time.Second)
		w.want("back to the first version", rules)
	})
}

// TestReloadLoadsWithoutWaiting checks with real time and notifications that a half-written file is read, held back, and
// loaded whole by a reload.
func TestReloadLoadsWithoutWaiting(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	write(t, path, rules)
	f := &sources.File{Path: path, Stable: never, Poll: never}
	read := make(chan struct{}, 100)
	f.AfterRead(func() { read <- struct{}{} })
	w := start(t, f)
	w.await(rules)
	<-read
	write(t, path, firstHalf)
	<-read
	write(t, path, rules+"# changed\n")
	<-read
	if len(w.reports) != 0 {
		t.Errorf("reported %q before the files were stable", <-w.reports)
	}
	f.Reload()
	w.await(rules + "# changed\n")
}

// A recorder records the reports of a Watch.
type recorder struct {
	t       *testing.T
	mu      sync.Mutex
	reports []string
}

// virtualWatch runs a Watch that only polls, and do, in virtual time.
func virtualWatch(t *testing.T, f *sources.File, do func(*recorder)) {
	f.PollOnly()
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{t: t}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = f.Watch(ctx, func(files []rulesfile.File, err error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if err != nil {
					w.reports = append(w.reports, err.Error())
					return
				}
				var all []string
				for _, file := range files {
					all = append(all, string(file.Data))
				}
				w.reports = append(w.reports, strings.Join(all, " "))
			})
		}()
		synctest.Wait()
		do(w)
		cancel()
		<-done
	})
}

// take returns the reports since the last call.
func (w *recorder) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.reports
	w.reports = nil
	return got
}

func (w *recorder) want(when string, want ...string) {
	w.t.Helper()
	if got := w.take(); strings.Join(got, "|") != strings.Join(want, "|") {
		w.t.Errorf("%s: reports %q, want %q", when, got, want)
	}
}
