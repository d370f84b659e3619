// Package recorder records the requests that a server decides, in files that package recording
// reads:
//
//	r := recorder.New(recorder.Options{Path: "/var/lib/weir/recording"})
//	defer r.Close(ctx)
//	...
//	r.Record(&result) // after each decision
//
// A recording is the input of a replay. Each line has the time at which the store decided, and the
// lines of a key are in the order of the decisions. docs/recording.md describes the format and the
// bounds.
//
// [Recorder.Record] copies a request to a queue in memory. It neither waits for the disk nor
// allocates. One goroutine sorts, hashes, compresses and writes the lines. A line that does not fit
// is dropped, counted, and noted in the recording.
package recorder

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	randv2 "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
)

// Options configures a [Recorder]. A field that is zero has its default.
type Options struct {
	Path    string // the folder of the files, which the Recorder creates if it is missing
	Replica string // names this process in the names of files
	// FileBytes is the size at which the Recorder completes a file and begins the next one. Default
	// 64 MiB. MaxBytes bounds all recordings in the folder, of which the Recorder removes the
	// oldest. Default 1 GiB.
	FileBytes, MaxBytes int64
	// Sample is the fraction of the keys whose requests are recorded, above 0. Default 1.
	Sample    float64
	PerSecond int // the maximum number of lines recorded in a second. Default 100,000.
	// Secret is the key of the HMACs that replace the values that rules match by key alone.
	// Default: a random secret, so that the values of different processes cannot be compared.
	Secret []byte
	// Plain writes files without compression.
	Plain bool
	// ShadowMode must be that of [decide.Options].
	ShadowMode bool
	// Changed, if not nil, is called with the reason when a file cannot be written, and again when
	// files can be written.
	Changed func(failing bool, reason error)

	create       func(path string) (file, error) // for tests; nil: os.OpenFile
	reorderDelay time.Duration                   // how long lines wait for earlier ones; default [defaultReorderDelay]
	retryDelay   time.Duration                   // between attempts of a failed writer; default [defaultRetryDelay]
}

// A DropReason explains why a line was dropped.
type DropReason int

// The reasons.
const (
	QueueFull    DropReason = iota // the writer was too slow
	RateExceeded                   // more than Options.PerSecond
	TooLong                        // the line is too long for a recording
	Unwritten                      // the file could not be written
	reasonCount
)

// String returns the reason in snake_case.
func (r DropReason) String() string {
	return [...]string{"queue_full", "rate", "too_long", "unwritten"}[r]
}

// Reasons returns all reasons.
func Reasons() []DropReason { return []DropReason{QueueFull, RateExceeded, TooLong, Unwritten} }

// Stats are the state and the counters of a Recorder.
type Stats struct {
	Lines   int64 // written
	Bytes   int64 // bytes of the written lines, before compression
	Dropped [reasonCount]int64
	Failing bool // the last attempt to write failed
}

// A Recorder records requests. It is safe for concurrent use.
type Recorder struct {
	options   Options
	maxHash   uint64 // the highest hash of a key in the sample
	queues    [queueCount]queue
	budget    atomic.Int64   // how many lines may still be recorded in this second; negative: none
	refilling sync.WaitGroup // of refillEachSecond
	wake      chan struct{}

	lines, bytes atomic.Int64
	dropped      [reasonCount]atomic.Int64
	failing      atomic.Bool

	stop    chan struct{}
	stopped chan struct{}
}

const (
	queueCount = 8
	queueBytes = 1 << 20 // a queue that exceeds it is full; the writer has as much again
	// maxRequestBytes bounds a line. A Reader reads lines of up to 1 MiB, and escapes make a text
	// at most six times as long.
	maxRequestBytes = 128 << 10
)

// A queue holds encoded requests until the writer takes them. There are several, so that requests
// do not wait for one lock.
type queue struct {
	mu        sync.Mutex
	requests  []byte
	abandoned bool // the writer has panicked
	_         [64]byte
}

// New returns a Recorder and starts its goroutines.
func New(o Options) *Recorder {
	o.FileBytes = cmp.Or(o.FileBytes, 64<<20)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	o.Sample = cmp.Or(o.Sample, 1)
	o.PerSecond = cmp.Or(o.PerSecond, 100_000)
	if len(o.Secret) == 0 {
		o.Secret = make([]byte, 32)
		_, _ = rand.Read(o.Secret) // never fails
	}
	if o.Changed == nil {
		o.Changed = func(bool, error) {}
	}
	if o.create == nil {
		o.create = create
	}
	o.reorderDelay = cmp.Or(o.reorderDelay, defaultReorderDelay)
	o.retryDelay = cmp.Or(o.retryDelay, defaultRetryDelay)
	r := &Recorder{
		options: o, maxHash: keysample.MaxHash(o.Sample), wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	for i := range r.queues {
		r.queues[i].requests = make([]byte, 0, queueBytes/4)
	}
	r.budget.Store(int64(o.PerSecond))
	r.refilling.Go(r.refillEachSecond)
	go newWriter(r).run()
	return r
}

// ErrUnwritten is returned by Close if the last lines were not written.
var ErrUnwritten = errors.New("the last lines of the recording are not written")

// Close writes all lines and stops the goroutines. Call it after the last Record. If the lines
// cannot be written, or ctx ends first, Close returns [ErrUnwritten]. The writer ends after the
// current write.
func (r *Recorder) Close(ctx context.Context) error {
	close(r.stop)
	r.refilling.Wait() // it waits for nothing but r.stop
	select {
	case <-r.stopped:
		if r.failing.Load() {
			return ErrUnwritten
		}
		return nil
	case <-ctx.Done():
		return ErrUnwritten
	}
}

// Stats returns the current state and counters.
func (r *Recorder) Stats() Stats {
	s := Stats{Lines: r.lines.Load(), Bytes: r.bytes.Load(), Failing: r.failing.Load()}
	for i := range s.Dropped {
		s.Dropped[i] = r.dropped[i].Load()
	}
	return s
}

func (r *Recorder) drop(reason DropReason, lines int64) { r.dropped[reason].Add(lines) }

// Record records a decided request. It does not retain result.
func (r *Recorder) Record(result *decide.Result) {
	if len(result.Decisions) == 0 {
		return
	}
	selected := r.sample(result)
	if selected.n == 0 {
		return
	}
	h := r.headOf(result, &selected)
	if h.by == recording.FromCache && h.order != limiters.OrderAfterStore {
		if ended := endedBefore(result, &selected, h.at); ended.n > 0 {
			selected.remove(&ended)
			r.pushWithRelease(r.headOf(result, &ended), result, &ended)
			h = r.headOf(result, &selected)
		}
	}
	r.pushWithRelease(h, result, &selected)
}

// pushWithRelease adds a request, and a request that releases the leases that Decide has ended, if
// a replay of the first request would keep them. A replay ends the leases of a denied request by
// itself.
func (r *Recorder) pushWithRelease(h head, result *decide.Result, selected *selection) {
	r.push(h, result, selected)
	if result.GivenUpLeases == 0 || h.known && !h.allowed {
		return
	}
	if leases := leasesOf(result, selected); leases.n > 0 {
		r.push(releaseOf(h, len(result.Decisions)-leases.n), result, &leases)
	}
}

// push adds a request to a queue.
func (r *Recorder) push(h head, result *decide.Result, selected *selection) {
	if sizeOf(result, selected) > maxRequestBytes {
		r.drop(TooLong, 1)
		return
	}
	random := randv2.Uint64()
	if h.at == 0 || random>>32%linesPerClockReading == 0 {
		h.now = time.Now().UnixMicro()
	}
	q := &r.queues[random%queueCount]
	q.mu.Lock()
	length := len(q.requests)
	switch {
	case q.abandoned:
		r.drop(Unwritten, 1)
	case length > queueBytes:
		r.drop(QueueFull, 1)
	case r.budget.Add(-1) < 0:
		r.drop(RateExceeded, 1)
	default:
		q.requests = appendRequest(q.requests, &h, result, selected)
	}
	q.mu.Unlock()
	if length > queueBytes/2 {
		r.wakeWriter()
	}
}

// wakeWriter makes the writer empty the queues now.
func (r *Recorder) wakeWriter() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// linesPerClockReading is the number of lines with a store time for each reading of this machine's
// clock.
const linesPerClockReading = 64

// refillEachSecond runs beside the writer, which may wait for the disk, until Close.
func (r *Recorder) refillEachSecond() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.budget.Store(int64(r.options.PerSecond))
		case <-r.stop:
			return
		}
	}
}
