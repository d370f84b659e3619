package reloadfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// files is a folder with a Value that joins the texts of two files.
type files struct {
	*Value[string]
	t        *testing.T
	dir      string
	err      error // the error of each read; nil: none
	reads    int
	failures []string

	afterRead func()
}

func newFiles(t *testing.T) *files {
	f := &files{t: t, dir: t.TempDir()}
	f.write("a", "1")
	f.write("b", "2")
	var err error
	f.Value, err = New("the parts", []string{f.path("a"), f.path("b")}, f.readAll, func(err error) { f.failures = append(f.failures, err.Error()) })
	must.Succeed(t, err)
	return f
}

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

func (f *files) write(name, text string) {
	f.t.Helper()
	must.Succeed(f.t, os.WriteFile(f.path(name), []byte(text), 0o600))
}

func (f *files) readAll() (string, error) {
	f.reads++
	a, errA := os.ReadFile(f.path("a"))
	b, errB := os.ReadFile(f.path("b"))
	if f.afterRead != nil {
		f.afterRead()
	}
	return string(a) + string(b), errors.Join(f.err, errA, errB)
}

// expect checks the value, and the reads and failures so far.
func (f *files) expect(value string, reads, failures int) {
	f.t.Helper()
	if got := f.Current(); got != value || f.reads != reads || len(f.failures) != failures {
		f.t.Errorf("%q after %d reads and the failures %q, want %q, %d and %d", got, f.reads, f.failures, value, reads, failures)
	}
}

func TestChangedFilesAreReadAgain(t *testing.T) {
	f := newFiles(t)
	f.expect("12", 1, 0)
	f.expect("12", 1, 0)
	f.write("b", "23")
	f.expect("123", 2, 0)
	f.write("new", "9")
	before, err := os.Stat(f.path("a"))
	if err == nil {
		err = os.Chtimes(f.path("new"), time.Time{}, before.ModTime())
	}
	if err == nil {
		err = os.Rename(f.path("new"), f.path("a"))
	}
	must.Succeed(t, err)
	f.expect("923", 3, 0) // another file of the same size and time
	must.Succeed(t, os.Chtimes(f.path("a"), time.Time{}, before.ModTime().Add(time.Second)))
	f.expect("923", 4, 0)
}

// A renewed key may become readable a moment after it was written: chown and chmod change neither
// its size nor its modification time.
func TestFailedReadIsRepeatedAndReportedOnce(t *testing.T) {
	f := newFiles(t)
	f.write("a", "10")
	f.err = errors.New("permission denied")
	f.expect("12", 2, 1)
	f.expect("12", 3, 1)
	f.err = errors.New("half a file")
	f.expect("12", 4, 2)
	f.err = nil
	f.expect("102", 5, 2)
	f.expect("102", 5, 2)
	f.write("a", "100")
	f.err = errors.New("half a file")
	f.expect("102", 6, 3)
	if want := []string{"permission denied", "half a file", "half a file"}; !slices.Equal(f.failures, want) {
		t.Errorf("failures %q, want %q", f.failures, want)
	}
}

func TestMissingFileKeepsTheValue(t *testing.T) {
	f := newFiles(t)
	must.Succeed(t, os.Remove(f.path("b")))
	f.expect("12", 1, 1)
	f.expect("12", 1, 1)
	if !strings.HasPrefix(f.failures[0], "the parts: stat "+f.path("b")) {
		t.Errorf("the failure %q does not name the file", f.failures[0])
	}
	f.write("b", "2")
	f.expect("12", 2, 1)
}

func TestNewReturnsTheError(t *testing.T) {
	wrong := errors.New("wrong")
	if _, err := New("it", nil, func() (int, error) { return 0, wrong }, nil); !errors.Is(err, wrong) {
		t.Errorf("%v, want %v", err, wrong)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := New("it", []string{missing}, func() (int, error) { return 0, nil }, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want %v", err, os.ErrNotExist)
	}
}

// While the disk hangs, one call waits for a second and the next ones do not wait.
func TestHungDiskKeepsTheValueAndDelaysOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t)
		resumed := make(chan struct{})
		f.afterRead = func() { <-resumed }
		f.write("b", "23")
		start := time.Now()
		for range 3 {
			if got, waited := f.Current(), time.Since(start); got != "12" || waited != maxWait {
				t.Errorf("%q after %v, want the last value, 12, after %v", got, waited, maxWait)
			}
		}
		synctest.Wait()
		if f.reads != 2 {
			t.Errorf("%d reads, want 2: calls while the disk hangs begin none", f.reads)
		}
		close(resumed)
		synctest.Wait()
		f.expect("123", 2, 0)
	})
}

// A call that waits for the check of another one sees a change that this check has missed.
func TestConcurrentCallSeesAnEarlierChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t)
		var once sync.Once
		resumed := make(chan struct{})
		f.afterRead = func() { once.Do(func() { <-resumed }) }
		f.write("b", "23")
		go f.Current()
		synctest.Wait() // the check has looked at the files, and has read them
		f.write("a", "10")
		got := make(chan string)
		go func() { got <- f.Current() }()
		synctest.Wait()
		close(resumed)
		if value := <-got; value != "1023" {
			t.Errorf("%q, want 1023", value)
		}
	})
}

func TestPanicOfAReadKeepsTheValue(t *testing.T) {
	f := newFiles(t)
	f.write("b", "23")
	f.afterRead = func() { panic("a bug") }
	f.expect("12", 2, 1)
	f.afterRead = nil
	f.expect("123", 3, 1)
}

func TestCallWaitsAtMostASecondForTwoChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t)
		ended := make(chan struct{})
		f.afterRead = func() { time.Sleep(maxWait * 9 / 10) }
		f.write("b", "23")
		go func() { f.Current(); close(ended) }()
		synctest.Wait()
		f.write("b", "234") // so the second check reads too
		start := time.Now()
		f.Current()
		if waited := time.Since(start); waited != maxWait {
			t.Errorf("waited for %v, want %v", waited, maxWait)
		}
		<-ended
		time.Sleep(2 * maxWait)
		f.expect("1234", 3, 0)
	})
}
