package recorder

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/replay"
)

const (
	// holdFor is how long a line waits for lines of earlier decisions whose goroutines are slower. It waits up to twice as long.
	holdFor = time.Second
	// drainEvery is how often the writer empties the queues, which hold the lines of some ten times as long.
	drainEvery = 50 * time.Millisecond
	// chunkBytes is how much text is compressed and written at once. After a crash, every complete chunk can be read.
	chunkBytes = 128 << 10
	// maxHeldBytes bounds the lines that wait. Beyond it they are written although earlier ones may come.
	maxHeldBytes = 32 << 20
	// maxHashes bounds the cache of hashes, and maxCachedValue its texts.
	maxHashes, maxCachedValue = 1 << 16, 128
)

// A writer writes the lines of a Recorder. Only its goroutine uses it.
type writer struct {
	recorder *Recorder
	files    *files
	spare    []byte // an empty queue

	held      []heldLine
	heldBytes int
	seen      int64 // the latest time of all lines so far
	cutoff    int64 // seen at the start of the period: lines up to it have waited for a whole period
	arrived   uint64

	// offset is how far the store's clock is ahead of this machine's, in µs: the largest of this period and the last.
	offset, lastOffset offset

	entry entryReader
	line  replay.Line
	text  []byte
	lines int64 // in text

	mac    hash.Hash
	hashes map[hashedValue]string
}

// A heldLine is an entry without its length.
type heldLine struct {
	at      int64
	order   uint16
	arrived uint64
	entry   string
}

type hashedValue struct{ key, value string }

// An offset is the largest of the differences of two clocks, if known.
type offset struct {
	micros int64
	known  bool
}

func (o *offset) add(micros int64) {
	if !o.known || micros > o.micros {
		o.micros, o.known = micros, true
	}
}

func newWriter(r *Recorder) *writer {
	w := &writer{recorder: r, mac: hmac.New(sha256.New, r.options.Secret), hashes: map[hashedValue]string{}}
	w.files = &files{options: &r.options, secret: secretID(r.options.Secret)}
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
	defer w.recover()
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	w.flush() // a path that cannot be written is reported at once
	period, second := time.Now(), time.Now()
	for stopping := false; !stopping; {
		select {
		case <-tick.C:
		case <-w.recorder.wake:
		case <-w.recorder.stop:
			stopping = true
		}
		now := time.Now()
		if now.Sub(second) >= time.Second {
			w.recorder.refill()
			second = now
		}
		w.drain()
		if stopping || now.Sub(period) >= w.recorder.options.hold || w.heldBytes > maxHeldBytes {
			w.write(stopping || w.heldBytes > maxHeldBytes)
			period = now
		}
	}
	w.files.close()
}

// recover ends the recording after a panic, which is a bug. The server goes on, and counts all further lines as dropped.
func (w *writer) recover() {
	if p := recover(); p != nil {
		w.recorder.failing.Store(true)
		w.recorder.options.Changed(true, fmt.Errorf("a bug, please report it: panic: %v\n%s", p, debug.Stack()))
	}
}

// drain moves the entries of all queues to held.
func (w *writer) drain() {
	for i := range w.recorder.queues {
		q := &w.recorder.queues[i]
		q.mu.Lock()
		entries := q.entries
		q.entries = w.spare
		q.mu.Unlock()
		w.hold(string(entries))
		w.spare = entries[:0]
	}
}

// hold adds entries to held.
func (w *writer) hold(entries string) {
	w.heldBytes += len(entries)
	for r := (entryReader{rest: entries}); r.rest != ""; {
		entry := r.text()
		h, _ := (&entryReader{rest: entry}).head()
		switch {
		case h.at == 0:
			h.at = h.now + w.ahead()
		case h.now > 0 && h.by == byStore:
			w.offset.add(h.at - h.now)
		}
		w.arrived++
		w.seen = max(w.seen, h.at)
		w.held = append(w.held, heldLine{h.at, h.order, w.arrived, entry})
	}
}

// ahead returns how far the store's clock is ahead, in µs. It is 0 while the store has decided nothing.
func (w *writer) ahead() int64 {
	o := w.lastOffset
	if w.offset.known {
		o.add(w.offset.micros)
	}
	return o.micros
}

// write writes the held lines that have waited for long enough, or all, in the order of the decisions.
func (w *writer) write(all bool) {
	slices.SortFunc(w.held, func(a, b heldLine) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.arrived, b.arrived))
	})
	n := len(w.held)
	if !all {
		n, _ = slices.BinarySearchFunc(w.held, w.cutoff+1, func(l heldLine, at int64) int { return cmp.Compare(l.at, at) })
	}
	for i := range w.held[:n] {
		l := &w.held[i]
		w.heldBytes -= 4 + len(l.entry)
		w.line.At = time.UnixMicro(l.at)
		w.entry.rest = l.entry
		w.entry.line(&w.line, w.hide)
		w.text = replay.AppendLine(w.text, &w.line)
		if w.lines++; len(w.text) >= chunkBytes {
			w.flush()
		}
	}
	w.held = slices.Delete(w.held, 0, n)
	w.cutoff = w.seen
	w.lastOffset, w.offset = w.offset, offset{}
	w.flush()
}

// flush writes the text. If that fails, its lines are dropped.
func (w *writer) flush() {
	r := w.recorder
	dropped := int64(0)
	for i := range r.dropped {
		dropped += r.dropped[i].Load()
	}
	err := w.files.write(w.text, w.line.At, dropped)
	if failed := err != nil; failed != r.failing.Load() {
		r.failing.Store(failed)
		r.options.Changed(failed, err)
	}
	if err != nil {
		r.drop(Unwritten, w.lines)
	} else {
		r.lines.Add(w.lines)
		r.bytes.Add(int64(len(w.text)))
	}
	w.text, w.lines = w.text[:0], 0
}

// hide returns the HMAC of a value of a key.
func (w *writer) hide(key, value string) string {
	v := hashedValue{key, value}
	if hashed, found := w.hashes[v]; found {
		return hashed
	}
	w.mac.Reset()
	_, _ = w.mac.Write([]byte(key))
	_, _ = w.mac.Write([]byte{0})
	_, _ = w.mac.Write([]byte(value))
	hashed := replay.HashedPrefix + base64.RawURLEncoding.EncodeToString(w.mac.Sum(nil)[:16])
	if len(key)+len(value) <= maxCachedValue {
		if len(w.hashes) >= maxHashes {
			clear(w.hashes)
		}
		w.hashes[hashedValue{strings.Clone(key), strings.Clone(value)}] = hashed
	}
	return hashed
}
