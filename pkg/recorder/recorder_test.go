package recorder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/recording"
)

// quick are options whose lines reach the disk immediately.
func quick(dir string) Options {
	return Options{Path: dir, reorderDelay: time.Millisecond, retryDelay: time.Millisecond}
}

// A deciding decides requests of one user in memory.
type deciding struct {
	t       testing.TB
	decider *decide.Decider
	result  decide.Result
}

func newDeciding(t testing.TB) *deciding {
	t.Helper()
	rules := rulesfiletest.Parse(t, rulesText)
	return &deciding{t: t, decider: decide.New(func() *descriptors.Rules { return rules }, memstore.New(memstore.Options{}), decide.Options{})}
}

// decide returns the result of a request of a user. It is valid until the next call.
func (d *deciding) decide(user string) *decide.Result {
	d.t.Helper()
	request := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Hits: 1, Entries: []descriptors.Entry{{Key: "window", Value: user}}}}}
	must.Succeed(d.t, d.decider.Decide(context.Background(), &request, &d.result))
	return &d.result
}

func closed(t *testing.T, r *Recorder) {
	t.Helper()
	must.Succeed(t, r.Close(context.Background()))
}

// unwritten closes a recorder that cannot write the last lines.
func unwritten(t *testing.T, r *Recorder) {
	t.Helper()
	if err := r.Close(context.Background()); !errors.Is(err, ErrUnwritten) {
		t.Errorf("error %v, want %v", err, ErrUnwritten)
	}
}

// dropped returns the sum of the notes of gaps in a folder.
func dropped(skipped []recording.FileSkipCount) (n int64) {
	for _, s := range skipped {
		if s.Reason == recording.Dropped {
			n += s.Lines
		}
	}
	return n
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	d := newDeciding(t)
	result := d.decide("alice")
	for name, o := range map[string]Options{"all": {}, "sampled": {Sample: .5}} {
		o.Path = t.TempDir()
		r := New(o)
		closed(t, r) // its goroutine allocates
		if n := testing.AllocsPerRun(500, func() { r.Record(result) }); n > 0 {
			t.Errorf("%s: %v allocations a line", name, n)
		}
	}
}

// A full disk does not fail a request. The lines are counted, a change is reported once, and the
// recording goes on when there is room.
func TestFullDiskLosesLinesAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var full atomic.Bool
	var mu sync.Mutex
	var changes []bool
	o := quick(dir)
	o.Changed = func(failing bool, reason error) {
		mu.Lock()
		defer mu.Unlock()
		if failing && !errors.Is(reason, syscall.ENOSPC) {
			t.Errorf("error %v, want ENOSPC", reason)
		}
		changes = append(changes, failing)
	}
	o.create = func(path string) (file, error) {
		f, err := create(path)
		return &filling{file: f, full: &full}, err
	}
	r, d := New(o), newDeciding(t)
	recorded := 0
	ask := func() { r.Record(d.decide("alice")); recorded++ }
	ask()
	must.Until(t, "the first line", func() bool { return r.Stats().Lines == 1 })
	full.Store(true)
	must.Until(t, "lines are dropped", func() bool { ask(); return r.Stats().Dropped[Unwritten] >= 20 })
	if s := r.Stats(); !s.Failing {
		t.Errorf("%+v, want a failing recorder", s)
	}
	full.Store(false)
	before := r.Stats().Lines
	must.Until(t, "lines are written again", func() bool { ask(); return r.Stats().Lines >= before+20 })
	closed(t, r)
	s := r.Stats()
	all, skipped := lines(t, dir)
	if int64(len(all)) != s.Lines || s.Lines+s.Dropped[Unwritten] != int64(recorded) || s.Failing {
		t.Errorf("%d lines in the files of %d requests, %+v", len(all), recorded, s)
	}
	if dropped(skipped) != s.Dropped[Unwritten] {
		t.Errorf("the recording notes %+v, dropped are %+v", skipped, s.Dropped)
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(changes) != "[true false]" {
		t.Errorf("changes: %v", changes)
	}
}

// A filling is a file on a disk that may be full.
type filling struct {
	file
	full *atomic.Bool
}

func (f *filling) Write(b []byte) (int, error) {
	if f.full.Load() {
		n, _ := f.file.Write(b[:len(b)/2]) // as on a real disk
		return n, &fs.PathError{Op: "write", Err: syscall.ENOSPC}
	}
	return f.file.Write(b)
}

// The same on a real disk: /dev/full takes no byte.
func TestDeviceWithoutSpaceLosesLinesOnly(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	failed := make(chan error, 100)
	o := quick(t.TempDir())
	o.create = func(string) (file, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }
	o.Changed = func(_ bool, reason error) { failed <- reason }
	r, d := New(o), newDeciding(t)
	if err := <-failed; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
	r.Record(d.decide("alice"))
	unwritten(t, r)
	if s := r.Stats(); s.Lines != 0 || s.Dropped[Unwritten] != 1 || !s.Failing || len(failed) > 0 {
		t.Errorf("%+v, %d further changes", s, len(failed))
	}
}

func TestRemovedFolderAndFileAreMadeAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	r, d := New(quick(dir)), newDeciding(t)
	for n := range int64(3) {
		r.Record(d.decide("alice"))
		must.Until(t, "the line is written", func() bool { return r.Stats().Lines == n+1 })
		found := recordings(t, dir)
		if len(found) != 1 {
			t.Fatalf("%d files: %v, want 1", len(found), found)
		}
		if n == 0 {
			must.Succeed(t, os.Remove(found[0]))
		} else if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, r)
}

// A folder that cannot be made is reported at the start, and once.
func TestUnwritablePathIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(path, nil, 0o600))
	failed := make(chan error, 100)
	o := quick(filepath.Join(path, "folder"))
	o.Changed = func(_ bool, reason error) { failed <- reason }
	r, d := New(o), newDeciding(t)
	if err := <-failed; !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one with the path", err)
	}
	for range 50 {
		r.Record(d.decide("alice"))
		time.Sleep(time.Millisecond)
	}
	unwritten(t, r)
	if s := r.Stats(); s.Dropped[Unwritten] != 50 || len(failed) > 0 {
		t.Errorf("%+v, %d further reports", s, len(failed))
	}
}

// The oldest files are removed, so that the folder never has more than MaxBytes. Other files stay.
func TestRecordingsAreBoundedInSize(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		dir := t.TempDir()
		other := filepath.Join(dir, "other.ndjson")
		must.Succeed(t, os.WriteFile(other, make([]byte, 100_000), 0o600))
		o := quick(dir)
		o.Plain, o.FileBytes, o.MaxBytes = plain, 10_000, 40_000
		r, d := New(o), newDeciding(t)
		largest, last := int64(0), ""
		for n := range int64(150) {
			for range 20 {
				last = fmt.Sprint("user ", n)
				r.Record(d.decide(last))
			}
			must.Until(t, "lines are written", func() bool { r.wakeWriter(); return r.Stats().Lines == 20*(n+1) })
			size := int64(0)
			for _, path := range recordings(t, dir) {
				info, err := os.Stat(path)
				must.Succeed(t, err)
				if size += info.Size(); info.Size() > o.FileBytes+1000 {
					t.Fatalf("a file of %d bytes", info.Size())
				}
			}
			largest = max(largest, size)
		}
		closed(t, r)
		all, _ := lines(t, dir)
		files := len(recordings(t, dir))
		if largest > o.MaxBytes || largest < o.MaxBytes/3 || files < 2 || len(all) == 0 || len(all) == 20*150 && plain {
			t.Errorf("plain %v: at most %d bytes in %d files, %d lines remain", plain, largest, files, len(all))
		}
		if _, err := os.Stat(other); err != nil {
			t.Error(err)
		}
	}
}

// A file that is not complete yet has every line up to the last write. A file that is cut within a
// write has every line before.
func TestRecordingWithoutAnEndIsReadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, d := New(quick(dir)), newDeciding(t)
	const written = 300
	for n := range int64(written) {
		r.Record(d.decide("alice"))
		if n%50 == 0 {
			must.Until(t, "the line is written", func() bool { return r.Stats().Lines == n+1 })
		}
	}
	must.Until(t, "all lines are written", func() bool { return r.Stats().Lines == written })
	text := must.Read(t, recordings(t, dir)[0])
	closed(t, r)
	for _, cut := range []int{0, 1, 7} {
		reader, err := recording.NewReader(bytes.NewReader(text[:len(text)-cut]), recording.ReaderOptions{})
		must.Succeed(t, err)
		n, line := 0, recording.Line{}
		for err = reader.Next(&line); err == nil; err = reader.Next(&line) {
			n++
		}
		reader.Close()
		if n > written || n < written-50 || cut == 0 && n != written || errors.Is(err, io.EOF) != (cut == 0) {
			t.Errorf("%d bytes cut: %d of %d lines, then %v", cut, n, written, err)
		}
	}
}

// Lines above the bounds are dropped, counted, and noted in the recording.
func TestLinesBeyondTheBoundsAreDroppedAndNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := quick(dir)
	o.PerSecond = 20
	r, d := New(o), newDeciding(t)
	r.Record(d.decide(strings.Repeat("x", maxRequestBytes)))
	for i := range 2000 {
		if i == o.PerSecond && r.Stats().Dropped[RateExceeded] > 0 {
			t.Errorf("%+v, want the first %d lines recorded", r.Stats(), i)
		}
		r.Record(d.decide("alice"))
	}
	closed(t, r)
	s := r.Stats()
	if s.Dropped[TooLong] != 1 || s.Dropped[RateExceeded] < 1000 || s.Lines < int64(o.PerSecond) || s.Lines+s.Dropped[TooLong]+s.Dropped[RateExceeded] != 2001 {
		t.Errorf("%+v, want 1 line too long, at least 1000 beyond the rate, and 2001 lines in all", s)
	}
	all, skipped := lines(t, dir)
	if int64(len(all)) != s.Lines || dropped(skipped) != s.Dropped[TooLong]+s.Dropped[RateExceeded] {
		t.Errorf("%d lines and %+v, want %+v", len(all), skipped, s)
	}
}

// Lines that wait for earlier ones are written once they need too much memory.
func TestWaitingLinesAreBounded(t *testing.T) {
	t.Parallel()
	r, d := New(Options{Path: t.TempDir(), reorderDelay: time.Hour}), newDeciding(t)
	result := d.decide(strings.Repeat("x", 100<<10))
	must.Until(t, "lines are written before the hour", func() bool {
		for range queueCount {
			r.Record(result)
		}
		return r.Stats().Lines > 0
	})
	closed(t, r)
}

// newHung returns a Recorder whose disk hangs until free is closed.
func newHung(o Options) (r *Recorder, free chan struct{}) {
	hangs := make(chan struct{}, 1)
	free = make(chan struct{})
	o.create = func(path string) (file, error) {
		hangs <- struct{}{}
		<-free
		return create(path)
	}
	r = New(o)
	<-hangs
	return r, free
}

// A disk that hangs fills the queue. Requests never wait for it, and Close returns.
func TestHungDiskDelaysNoRequest(t *testing.T) {
	t.Parallel()
	o := quick(t.TempDir())
	o.PerSecond = 1 << 30
	r, free := newHung(o)
	d := newDeciding(t)
	result := d.decide(strings.Repeat("x", 10_000))
	n := int64(0)
	for ; r.Stats().Dropped[QueueFull] < 100; n++ {
		if r.Record(result); n > 100_000 {
			t.Fatal("the queue does not fill")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, ErrUnwritten) {
		t.Errorf("%v, want %v", err, ErrUnwritten)
	}
	close(free)
	<-r.stopped
	if s := r.Stats(); s.Lines+s.Dropped[QueueFull] != n || s.Lines < 100 {
		t.Errorf("%+v of %d", s, n)
	}
}

// A second of PerSecond begins even while the disk hangs: the queue has room for more lines.
func TestHungDiskKeepsTheRate(t *testing.T) {
	t.Parallel()
	o := quick(t.TempDir())
	o.PerSecond = 80
	r, free := newHung(o)
	d := newDeciding(t)
	result := d.decide("alice")
	recorded := func() bool {
		before := r.Stats().Dropped[RateExceeded]
		r.Record(result)
		return r.Stats().Dropped[RateExceeded] == before
	}
	for range 1000 {
		r.Record(result)
	}
	must.Until(t, "a line of the next second is recorded", recorded)
	close(free)
	closed(t, r)
}

// Close reports lines that are lost at the end.
func TestCloseReportsAFullDisk(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	o := quick(t.TempDir())
	o.create = func(path string) (file, error) {
		f, err := create(path)
		return &filling{file: f, full: &full}, err
	}
	r, d := New(o), newDeciding(t)
	r.Record(d.decide("alice"))
	must.Until(t, "the first line", func() bool { return r.Stats().Lines == 1 })
	full.Store(true)
	r.Record(d.decide("alice"))
	unwritten(t, r)
}

// Some file systems report a full disk only when a file is closed.
func TestCloseReportsErrorOfFile(t *testing.T) {
	t.Parallel()
	var changes []error
	o := quick(t.TempDir())
	o.Changed = func(_ bool, reason error) { changes = append(changes, reason) }
	o.create = func(path string) (file, error) {
		f, err := create(path)
		return closeFails{f}, err
	}
	r, d := New(o), newDeciding(t)
	r.Record(d.decide("alice"))
	unwritten(t, r)
	if len(changes) != 1 || !errors.Is(changes[0], syscall.EDQUOT) {
		t.Errorf("changes %v, want one, with EDQUOT", changes)
	}
}

type closeFails struct{ file }

func (f closeFails) Close() error {
	_ = f.file.Close()
	return &fs.PathError{Op: "close", Err: syscall.EDQUOT}
}

// After a panic of the writer, further lines count as dropped, and nothing queues them.
func TestPanicOfTheWriterEndsTheRecording(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	o := quick(t.TempDir())
	o.create = func(string) (file, error) { panic("of a test") }
	o.Changed = func(_ bool, reason error) { failed <- reason }
	r, d := New(o), newDeciding(t)
	if reason := <-failed; !strings.Contains(reason.Error(), "of a test") {
		t.Errorf("reason %v, want the panic", reason)
	}
	<-r.stopped
	for range 10 {
		r.Record(d.decide("alice"))
	}
	if s := r.Stats(); s.Dropped != [reasonCount]int64{Unwritten: 10} || !s.Failing {
		t.Errorf("%+v, want a failing recorder and 10 unwritten lines", s)
	}
	unwritten(t, r)
}

// Lines wait for those of earlier decisions whose goroutines are slower. Lines of one microsecond
// are in the order of the store.
func TestLinesAreInTheOrderOfTheDecisions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Path: dir, reorderDelay: time.Hour, Plain: true}
	r, d := New(o), newDeciding(t)
	var want []string
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).UnixMicro()
	result := d.decide("alice")
	v := &result.Decisions[0].Verdicts[0]
	for _, step := range []struct {
		at    int64
		order uint16
	}{{at + 5, 0}, {at + 9, 2}, {at + 9, 0}, {at + 1, 0}, {at + 9, 1}, {at, 3}} {
		v.At, v.Order = step.at, step.order
		result.Decisions[0].Hits = step.at - at + 100*int64(step.order)
		r.Record(result)
	}
	closed(t, r)
	text := must.Read(t, recordings(t, dir)[0])
	for line := range strings.Lines(string(text)) {
		if _, hits, ok := strings.Cut(line, `"hits":`); ok {
			hits, _, _ = strings.Cut(hits, ",")
			want = append(want, hits)
		} else if strings.Contains(line, "domain") {
			want = append(want, "1")
		}
	}
	if got := strings.Join(want, " "); got != "300 1 5 9 109 209" {
		t.Errorf("the order is %s, want 300 1 5 9 109 209", got)
	}
}

// writtenInPeriods records one line in each period, at these seconds, and returns the seconds of
// the lines in the order of the file.
func writtenInPeriods(t *testing.T, seconds ...int) (written []float64) {
	t.Helper()
	dir := t.TempDir()
	r, d := New(Options{Path: dir, Plain: true}), newDeciding(t)
	closed(t, r)
	w := newWriter(r) // the test ends its periods
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for _, s := range seconds {
		result := d.decide("alice")
		result.Decisions[0].Verdicts[0].At = at.Add(time.Duration(s) * time.Second).UnixMicro()
		r.Record(result)
		w.drain()
		w.write(w.cutoff)
	}
	w.write(math.MaxInt64)
	w.out.close()
	files := recordings(t, dir)
	for text := range bytes.Lines(must.Read(t, files[len(files)-1])) {
		var line struct {
			T      time.Time
			Domain string
		}
		must.Succeed(t, json.Unmarshal(text, &line))
		if line.Domain != "" { // not a note
			written = append(written, line.T.Sub(at).Seconds())
		}
	}
	return written
}

// A line is held for a period, so that a line of an earlier decision can come before it.
func TestLinesWaitForEarlierOnes(t *testing.T) {
	t.Parallel()
	if got := writtenInPeriods(t, 9, 5, 20, 15, 30); fmt.Sprint(got) != "[5 9 15 20 30]" {
		t.Errorf("lines of the seconds %v", got)
	}
}

// Lines are in the order of the decisions again after the store's clock has stepped back.
func TestLinesWaitAfterTheClockStepsBack(t *testing.T) {
	t.Parallel()
	if got := writtenInPeriods(t, 3600, 5, 9, 8, 20); fmt.Sprint(got) != "[5 3600 8 9 20]" {
		t.Errorf("lines of the seconds %v, want [5 3600 8 9 20]", got)
	}
}

// No line is lost silently if the clock steps back: a line is replayed, or counted as out of order.
func TestBackwardClockStepIsCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, d := New(Options{Path: dir}), newDeciding(t)
	closed(t, r)
	w := newWriter(r) // the test ends its periods
	const each = 3000 // more than a reader sorts
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for _, start := range []time.Duration{0, -time.Hour, -time.Hour + 3*time.Second, time.Hour} {
		for i := range each {
			result := d.decide("alice")
			result.Decisions[0].Verdicts[0].At = at.Add(start + time.Duration(i)*time.Millisecond).UnixMicro()
			r.Record(result)
		}
		w.drain()
		w.write(w.cutoff)
	}
	w.write(math.MaxInt64)
	w.out.close()
	all, skipped := lines(t, dir)
	if len(skipped) != 1 || skipped[0].Reason != recording.OutOfOrder || int64(len(all))+skipped[0].Lines != 4*each || len(all) < 3*each {
		t.Errorf("%d lines replayed of %d, and skipped %+v", len(all), 4*each, skipped)
	}
	if last := all[len(all)-1].At; !last.After(at.Add(time.Hour)) {
		t.Errorf("the last line is of %v", last)
	}
}

// A line without a time of the store has the time of this machine, moved by the difference to the
// store's clock.
func TestLinesWithoutAStoreFollowItsClock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, d := New(quick(dir)), newDeciding(t)
	const ahead = int64(7 * time.Hour / time.Microsecond)
	before := time.Now().UnixMicro()
	for range 20 * linesPerClockReading { // one in linesPerClockReading reads this machine's clock
		result := d.decide("alice")
		result.Decisions[0].Verdicts[0].At = time.Now().UnixMicro() + ahead
		r.Record(result)
	}
	result := d.decide("alice")
	result.Decisions[0].Verdicts[0] = limiters.Verdict{Allowed: true, By: limiters.ByPolicy}
	r.Record(result)
	closed(t, r)
	after := time.Now().UnixMicro()
	all, _ := lines(t, dir)
	found := false
	for i := range all {
		at := all[i].At.UnixMicro() - ahead
		found = found || all[i].By == recording.FromFallback
		if at < before || at > after {
			t.Fatalf("line %d of %q is %v away", i, all[i].By, time.Duration(at-before)*time.Microsecond)
		}
	}
	if !found {
		t.Error("no line of the fallback")
	}
}

// The first difference between the clocks may be in a later queue than a line without the store.
func TestFirstDrainMovesLinesToTheStoresClock(t *testing.T) {
	t.Parallel()
	r, d := New(Options{Path: t.TempDir()}), newDeciding(t)
	closed(t, r)
	w := newWriter(r)
	result := d.decide("alice")
	result.Decisions[0].Verdicts[0] = limiters.Verdict{Allowed: true, By: limiters.ByPolicy}
	r.Record(result)
	queues := &r.queues
	for i := range queues { // to the queue that the writer drains first
		queues[0].requests, queues[i].requests = append(queues[0].requests, queues[i].requests...), nil
	}
	const ahead = int64(7 * time.Hour / time.Microsecond)
	for range 20 * linesPerClockReading {
		result := d.decide("alice")
		result.Decisions[0].Verdicts[0].At = time.Now().UnixMicro() + ahead
		r.Record(result)
	}
	w.drain()
	away := time.Duration(w.buffered[0].at-time.Now().UnixMicro()-ahead) * time.Microsecond
	if away.Abs() > time.Minute {
		t.Errorf("the line is %v away from the store's clock", away)
	}
	w.write(math.MaxInt64)
	must.Succeed(t, w.out.close())
}

// The difference to the store's clock stays known while the store decides nothing, as in an outage.
func TestLinesFollowTheStoresClockInAnOutage(t *testing.T) {
	t.Parallel()
	r, d := New(Options{Path: t.TempDir()}), newDeciding(t)
	closed(t, r)
	w := newWriter(r) // the test ends its periods
	const ahead = int64(7 * time.Hour / time.Microsecond)
	for range 20 * linesPerClockReading {
		result := d.decide("alice")
		result.Decisions[0].Verdicts[0].At = time.Now().UnixMicro() + ahead
		r.Record(result)
	}
	w.drain()
	for range 3 {
		w.write(w.cutoff)
	}
	result := d.decide("alice")
	result.Decisions[0].Verdicts[0] = limiters.Verdict{Err: errors.New("the store is down")}
	r.Record(result)
	w.drain()
	away := time.Duration(w.buffered[len(w.buffered)-1].at-time.Now().UnixMicro()-ahead) * time.Microsecond
	if away.Abs() > time.Minute {
		t.Errorf("the line is %v away from the store's clock", away)
	}
	w.write(math.MaxInt64)
	must.Succeed(t, w.out.close())
}

// Equal values of one key have one hash, under one secret only.
func TestValuesAreHashedUnderASecret(t *testing.T) {
	hashed := func(secret, key, value string) string {
		return newWriter(&Recorder{options: Options{Secret: []byte(secret)}}).hashValue(key, value)
	}
	a := hashed("one", "user", "alice")
	if a != "hmac:47euLNaYPRrlwdNPxrqMVw" || a != hashed("one", "user", "alice") {
		t.Errorf("the hash is %s: it must never change", a)
	}
	for _, other := range []string{hashed("two", "user", "alice"), hashed("one", "user", "bob"), hashed("one", "use", "ralice")} {
		if other == a {
			t.Errorf("two values have the hash %s", a)
		}
	}
	w := newWriter(&Recorder{options: Options{Secret: []byte("one")}})
	for i := range maxHashes + 10 {
		w.hashValue("user", fmt.Sprint(i))
	}
	if w.hashValue("user", "alice") != a || len(w.hashes) > maxHashes {
		t.Errorf("%d hashes are cached", len(w.hashes))
	}
}

// The settings of a file are in its first line.
func TestFilesBeginWithTheirSampleAndSecret(t *testing.T) {
	dir := t.TempDir()
	o := quick(dir)
	o.Sample, o.Secret, o.Replica = .25, []byte("a secret of 16 bytes"), "pod/0"
	closed(t, New(o))
	found := recordings(t, dir)
	if len(found) != 1 || !strings.HasSuffix(found[0], "Z-pod-0.ndjson.zst") {
		t.Fatalf("files %v, want one, with the replica in its name", found)
	}
	text, err := os.Open(found[0])
	must.Succeed(t, err)
	defer text.Close()
	reader, err := recording.NewReader(text, recording.ReaderOptions{})
	must.Succeed(t, err)
	defer reader.Close()
	if err := reader.Next(&recording.Line{}); !errors.Is(err, io.EOF) || !slices.Equal(reader.Notes(), []recording.RecorderNote{{Sample: .25, Secret: secretID(o.Secret)}}) {
		t.Errorf("got error %v, notes %+v, want EOF, and one note of a sample of 0.25 with the id of the secret", err, reader.Notes())
	}
}
