package recorder

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"runtime/debug"
	"slices"
	"sort"
	"time"

	"github.com/weir-rls/weir/pkg/recording"
)

const (
	// defaultReorderDelay is how long a line waits for earlier lines from slower goroutines. The
	// wait may be twice as long.
	defaultReorderDelay = time.Second
	// drainInterval is how often the writer empties the queues. They have room for about ten times
	// as long.
	drainInterval = 50 * time.Millisecond
	// chunkBytes is how much text is compressed and written together. After a crash, every complete
	// chunk is readable.
	chunkBytes = 256 << 10
	// maxBufferedBytes bounds the waiting lines. Beyond it they are written immediately, even if
	// earlier lines may still arrive.
	maxBufferedBytes = 32 << 20
	// maxHashes bounds the cache of hashes, and maxCachedBytes the key and the value of a hash
	// together.
	maxHashes, maxCachedBytes = 1 << 16, 128
)

// A writer writes the lines of a Recorder. Only its goroutine uses it.
type writer struct {
	recorder   *Recorder
	out        *rotatingFile
	spareQueue []byte // reused as the next queue to fill

	buffered       []bufferedLine
	requests       []byte // the text of buffered
	unusedRequests []byte
	// cutoff is the latest time of the lines that were kept at the start of the period: lines up to
	// it have waited for a whole period. 0 if none was kept.
	cutoff int64

	// offset is the largest difference of this period between the store's clock and this machine's,
	// in µs. lastOffset is that of the last period in which one was measured.
	offset, lastOffset maxOffset

	request requestReader
	line    recording.Line
	text    []byte
	lines   int64 // in text

	mac    hash.Hash
	hashes map[string]string // by the texts of key and value
	pair   []byte            // memory of these texts
}

// A bufferedLine is the time and the position of a request. It contains no pointer, so the garbage
// collector does not scan it.
type bufferedLine struct {
	at    int64
	order uint16
	// unmoved reports that at is still by the clock of this machine, because the store decided
	// nothing.
	unmoved bool
	start   uint32 // in requests, after the length
}

// A maxOffset is the largest difference between two clocks, if one was measured.
type maxOffset struct {
	micros int64
	known  bool
}

func (o *maxOffset) add(micros int64) {
	if !o.known || micros > o.micros {
		o.micros, o.known = micros, true
	}
}

func newWriter(r *Recorder) *writer {
	w := &writer{recorder: r, mac: hmac.New(sha256.New, r.options.Secret), hashes: map[string]string{}}
	w.out = &rotatingFile{options: &r.options, secret: secretID(r.options.Secret)}
	return w
}

// secretID identifies a secret without revealing it.
func secretID(secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte("weir recording"))
	return hex.EncodeToString(mac.Sum(nil)[:4])
}

// run writes lines until the Recorder stops.
func (w *writer) run() {
	defer close(w.recorder.stopped)
	defer w.endOnPanic()
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	w.flush() // a path that cannot be written is reported immediately
	period := time.Now()
	for stopping := false; !stopping; {
		select {
		case <-tick.C:
		case <-w.recorder.wake:
		case <-w.recorder.stop:
			stopping = true
		}
		w.drain()
		switch now := time.Now(); {
		case stopping || len(w.requests) > maxBufferedBytes:
			w.write(math.MaxInt64)
			period = now
		case now.Sub(period) >= w.recorder.options.reorderDelay:
			w.write(w.cutoff)
			period = now
		}
	}
	if err := w.out.close(); err != nil {
		w.recorder.noteResult(err)
	}
}

// endOnPanic, when deferred, ends the recording after a panic, which is a bug. The server
// continues. Further lines count as unwritten; those already in a queue or in w are lost without a
// count.
func (w *writer) endOnPanic() {
	p := recover()
	if p == nil {
		return
	}
	for i := range w.recorder.queues {
		q := &w.recorder.queues[i]
		q.mu.Lock()
		q.abandoned, q.requests = true, nil
		q.mu.Unlock()
	}
	w.recorder.noteResult(fmt.Errorf("a bug, please report it: panic: %v\n%s", p, debug.Stack()))
}

// noteResult reports a change between failure and success of the writer.
func (r *Recorder) noteResult(err error) {
	if failed := err != nil; r.failing.Swap(failed) != failed {
		r.options.Changed(failed, err)
	}
}

// drain moves the requests of all queues to buffered. It moves times of this machine to the store's
// clock at the end, because the first difference between the clocks may be in the last queue.
func (w *writer) drain() {
	first := len(w.buffered)
	for i := range w.recorder.queues {
		q := &w.recorder.queues[i]
		q.mu.Lock()
		requests := q.requests
		q.requests = w.spareQueue
		q.mu.Unlock()
		w.buffer(requests)
		w.spareQueue = requests[:0]
	}
	offset := w.clockOffset()
	for i := range w.buffered[first:] {
		if l := &w.buffered[first+i]; l.unmoved {
			l.at, l.unmoved = l.at+offset, false
		}
	}
}

// buffer adds encoded requests to buffered.
func (w *writer) buffer(requests []byte) {
	start := len(w.requests)
	w.requests = append(w.requests, requests...)
	for start < len(w.requests) {
		r := requestReader{rest: w.requests[start:]}
		length := int(r.uint32())
		h, _ := r.head()
		l := bufferedLine{at: h.at, order: h.order, start: uint32(start + 4)}
		switch {
		case h.at == 0:
			l.at, l.unmoved = h.now, true
		case h.now > 0 && h.by == recording.FromStore:
			w.offset.add(h.at - h.now)
		}
		w.buffered = append(w.buffered, l)
		start += 4 + length
	}
}

// clockOffset returns how far the store's clock is ahead of this machine's, in µs. It is 0 until
// the store has decided a request.
func (w *writer) clockOffset() int64 {
	o := w.lastOffset
	if w.offset.known {
		o.add(w.offset.micros)
	}
	return o.micros
}

// write writes the buffered lines up to a time, in the order of the decisions, and begins a period
// with the others.
func (w *writer) write(upTo int64) {
	slices.SortStableFunc(w.buffered, func(a, b bufferedLine) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	n := sort.Search(len(w.buffered), func(i int) bool { return w.buffered[i].at > upTo })
	for _, l := range w.buffered[:n] {
		w.line.At = time.UnixMicro(l.at)
		w.request.rest = w.requests[l.start:]
		w.request.line(&w.line, w.hashValue)
		w.text = recording.AppendLine(w.text, &w.line)
		w.lines++
		if len(w.text) >= chunkBytes {
			w.flush()
		}
	}
	kept := w.buffered[n:]
	w.cutoff = 0
	if len(kept) > 0 {
		w.cutoff = kept[len(kept)-1].at
	}
	w.retain(kept)
	if w.offset.known {
		w.lastOffset, w.offset = w.offset, maxOffset{}
	}
	w.flush()
}

// retain drops all buffered lines except these.
func (w *writer) retain(lines []bufferedLine) {
	buffered, requests := w.buffered[:0], w.unusedRequests[:0]
	for _, l := range lines {
		length := binary.LittleEndian.Uint32(w.requests[l.start-4:])
		start := len(requests) + 4
		requests = append(requests, w.requests[l.start-4:l.start+length]...)
		buffered = append(buffered, bufferedLine{at: l.at, order: l.order, start: uint32(start)})
	}
	w.unusedRequests = w.requests
	if cap(w.requests) > queueCount*queueBytes && len(w.requests) < cap(w.requests)/4 {
		buffered, w.unusedRequests = slices.Clone(buffered), nil // frees the memory of a load that has passed
	}
	w.buffered, w.requests = buffered, requests
}

// flush writes the text. If the write fails, its lines count as dropped.
func (w *writer) flush() {
	r := w.recorder
	dropped := int64(0)
	for i := range r.dropped {
		dropped += r.dropped[i].Load()
	}
	err := w.out.write(w.text, w.line.At, dropped)
	r.noteResult(err)
	if err != nil {
		r.drop(Unwritten, w.lines)
	} else {
		r.lines.Add(w.lines)
		r.bytes.Add(int64(len(w.text)))
	}
	w.text, w.lines = w.text[:0], 0
}

// hashValue returns the HMAC of a value of a key.
func (w *writer) hashValue(key, value string) string {
	w.pair = appendText(appendText(w.pair[:0], key), value)
	if hashed, found := w.hashes[string(w.pair)]; found {
		return hashed
	}
	w.mac.Reset()
	_, _ = w.mac.Write([]byte(key))
	_, _ = w.mac.Write([]byte{0})
	_, _ = w.mac.Write([]byte(value))
	hashed := recording.HashedPrefix + base64.RawURLEncoding.EncodeToString(w.mac.Sum(nil)[:16])
	if len(key)+len(value) <= maxCachedBytes {
		if len(w.hashes) >= maxHashes {
			clear(w.hashes)
		}
		both := string(w.pair) + hashed // next to each other in memory
		w.hashes[both[:len(w.pair)]] = both[len(w.pair):]
	}
	return hashed
}
