// Package recording reads and writes recordings of requests: files of JSON lines, one for each
// request, plain or compressed with zstd.
//
// A [Reader] returns the lines of one recording in the order of their times, and a [MultiReader]
// those of several. [AppendLine] writes a line. An [UnmatchableFinder] names the rules that a
// recording with hashed values cannot judge, and [EstimateKeys] and [EstimateSum] conclude from a
// sample to all keys.
package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/internal/lines"
	"github.com/weir-rls/weir/pkg/decide"
)

// Earliest is the first time that a line may have.
var Earliest = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

var latest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// InRange reports whether a line may have the time t: in the years 1971 to 2199, in which no sum of
// a time and a window overflows.
func InRange(t time.Time) bool { return !t.Before(Earliest) && t.Before(latest) }

// A Line is one request of a recording.
type Line struct {
	At      time.Time // when the store decided, in whole microseconds
	Request decide.Request
	// Allowed is the recorded outcome, if HasAllowed.
	Allowed, HasAllowed bool
	By                  Origin
	// LeftOut is the number of descriptors of the request that the sample left out. Allowed then
	// covers only the others.
	LeftOut int
}

// An Origin is the part of Weir that decided an outcome. If several parts decided its descriptors,
// a line has the last one of this order.
type Origin uint8

// The origins.
const (
	FromStore    Origin = iota
	FromCache           // the deny cache denied a descriptor
	FromFallback        // the store failed, and on_store_error decided a descriptor
	FromError           // the store failed, and a descriptor is undecided
)

var originNames = [...]string{FromStore: "", FromCache: "cache", FromFallback: "fallback", FromError: "error"}

// String returns the value of the field by: "" for the store.
func (o Origin) String() string { return originNames[o] }

// parseOrigin returns the origin with a name; [FromStore] if the name is unknown.
func parseOrigin(name string) Origin { return Origin(max(0, slices.Index(originNames[:], name))) }

// A RecorderNote is the note of a recorder at the start of a file.
type RecorderNote struct {
	Sample float64 // the fraction of the keys that are recorded; 1 for all
	Secret string  // identifies the secret of the hashed values, "" if none is noted
}

// A SkipReason explains why a line of a recording cannot be replayed.
type SkipReason string

// The reasons for which a [Reader] skips lines.
const (
	TooLong        SkipReason = "too_long"        // longer than ReaderOptions.MaxLineBytes
	Cut            SkipReason = "cut"             // the last line has no line break and is not JSON
	NotJSON        SkipReason = "not_json"        // not a JSON object, or a value of a wrong type
	BadTime        SkipReason = "bad_time"        // t is missing, not a time, or outside the years 1971 to 2199
	NoDomain       SkipReason = "no_domain"       // domain is missing or empty
	BadDescriptors SkipReason = "bad_descriptors" // descriptors is missing, empty or invalid, or left_out is not from 0 to 100
	BadHits        SkipReason = "bad_hits"        // hits is not a whole number, or has not one number for each descriptor
	BadOverrides   SkipReason = "bad_overrides"   // overrides has not one limit or null for each descriptor
	OutOfOrder     SkipReason = "out_of_order"    // earlier than a line that has been returned
	Dropped        SkipReason = "dropped"         // a note of the recorder about dropped lines, which Lines counts
)

var skipReasons = []SkipReason{TooLong, Cut, NotJSON, BadTime, NoDomain, BadDescriptors, BadHits, BadOverrides, OutOfOrder, Dropped}

// A SkipCount counts the lines that were skipped for one reason.
type SkipCount struct {
	Reason SkipReason `json:"kind"`
	Lines  int64      `json:"lines"`
	First  int64      `json:"first"` // the number of the first such line, from 1
}

// ReaderOptions configures a [Reader]. The zero value is the default configuration.
type ReaderOptions struct {
	MaxLineBytes int // default 1 MiB
	// Reorder is the number of lines that the reader holds to sort them by time. Default 1,000.
	// With 1, a line that is earlier than the line before is skipped as out of order.
	Reorder int
}

// maxHeldBytes bounds the length of the lines that a reader holds.
const maxHeldBytes = 64 << 20

// maxZstdBytes bounds the memory of a decoder. Recordings need 8 MiB.
const maxZstdBytes = 128 << 20

// A Reader reads a recording: lines of JSON, plain or compressed with zstd, such as
//
//	{"t":"2026-11-22T10:00:00.000001Z","domain":"ugc","descriptors":[[["user_id","42"],["action","reply"]]],"hits":1,"allowed":true}
//
// The time t may be a number of µs since 1970. The field hits may be a list with one number for
// each descriptor. It is 1 by default, and a number with a minus sign refunds, -0 too. The field
// allowed is optional. The recorder also writes by, left_out and overrides, and notes without a
// domain: see docs/recording.md. A Reader ignores other fields and empty lines. It is not safe for
// concurrent use.
type Reader struct {
	o        ReaderOptions
	input    *inputReader
	lines    *lines.Reader
	zstd     *zstd.Decoder  // nil if the recording is plain
	buffered []bufferedLine // in the order of the times, in a part of memory
	memory   []bufferedLine
	// bufferedBytes is the total length of the buffered lines.
	bufferedBytes int
	latest        time.Time // the latest time of the lines returned
	err           error     // the input's error; io.EOF at its end
	skipped       map[SkipReason]SkipCount
	notes         []RecorderNote // each note once, and {Sample: 1} if a line precedes all notes
}

// An inputReader keeps the error of the input, which a decoder may wrap or replace.
type inputReader struct {
	io.Reader
	err error // nil at the end of the input
}

func (r *inputReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// NewReader returns a Reader of a recording. It fails if the first read fails.
func NewReader(in io.Reader, o ReaderOptions) (*Reader, error) {
	if o.MaxLineBytes <= 0 {
		o.MaxLineBytes = 1 << 20
	}
	if o.Reorder <= 0 {
		o.Reorder = 1000
	}
	r := &Reader{o: o, input: &inputReader{Reader: in}, skipped: map[SkipReason]SkipCount{}}
	plain := bufio.NewReaderSize(r.input, 1<<16)
	magic, err := plain.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return nil, errors.New("the recording is compressed by gzip: decompress it, or compress it by zstd")
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// With a concurrency of 1 the decoder has no goroutines.
		r.zstd, err = zstd.NewReader(plain, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxZstdBytes),
			zstd.WithDecoderMaxWindow(maxZstdBytes))
		if err != nil {
			return nil, fmt.Errorf("read the recording: %w", err)
		}
		plain = bufio.NewReaderSize(r.zstd, 1<<16)
	}
	r.lines = lines.NewReader(plain, o.MaxLineBytes+1) // with its end
	return r, nil
}

// Close releases the memory of the reader. It does not close the input.
func (r *Reader) Close() {
	if r.zstd != nil {
		r.zstd.Close()
	}
}

// Next writes the next line to into, in the order of the times. Lines of equal times are in the
// order of the recording. Lines that cannot be replayed are skipped and counted. The error is
// [io.EOF] at the end. Any other error is that of the input, such as a damaged compression, and
// comes after all lines before it.
func (r *Reader) Next(into *Line) error {
	for r.err == nil && len(r.buffered) < r.o.Reorder && r.bufferedBytes < maxHeldBytes {
		r.read()
	}
	if len(r.buffered) == 0 {
		if errors.Is(r.err, io.EOF) {
			return io.EOF
		}
		if r.zstd != nil && r.input.err == nil {
			return fmt.Errorf("the recording cannot be read beyond line %d: its zstd compression is damaged (%w)", r.lines.Number, r.err)
		}
		return fmt.Errorf("the recording cannot be read beyond line %d: %w", r.lines.Number, r.err)
	}
	next := &r.buffered[0]
	r.latest, r.bufferedBytes = next.At, r.bufferedBytes-next.size
	*into, *next = next.Line, bufferedLine{}
	r.buffered = r.buffered[1:]
	return nil
}

// Lines returns the number of lines read so far, including empty ones.
func (r *Reader) Lines() int64 { return r.lines.Number }

// Notes returns the notes of recorders so far, each once. A recording contains several notes if it
// consists of several files. Lines before the first note have the note {Sample: 1}. After
// [maxNotes] different notes, it returns no further ones.
func (r *Reader) Notes() []RecorderNote { return r.notes }

// maxNotes bounds the different notes of a recording.
const maxNotes = 100

func (r *Reader) note(n RecorderNote) {
	if len(r.notes) < maxNotes && !slices.Contains(r.notes, n) {
		r.notes = append(r.notes, n)
	}
}

// Skipped returns the numbers of lines that were skipped, by reason.
func (r *Reader) Skipped() []SkipCount {
	var all []SkipCount
	for _, reason := range skipReasons {
		if s := r.skipped[reason]; s.Lines > 0 {
			all = append(all, s)
		}
	}
	return all
}

func (r *Reader) skip(reason SkipReason, lines int64) {
	s := r.skipped[reason]
	s.Reason = reason
	if s.Lines == 0 {
		s.First = r.lines.Number
	}
	s.Lines += lines
	r.skipped[reason] = s
}

// readNote reads a note of a recorder, see [AppendNote]. It reports false for any other line.
func (r *Reader) readNote(text []byte) bool {
	var note struct {
		Dropped int64
		Sample  float64
		Secret  string
	}
	if json.Unmarshal(text, &note) != nil {
		return false
	}
	dropped, sampled := note.Dropped > 0, note.Sample > 0 && note.Sample <= 1
	if dropped {
		r.skip(Dropped, note.Dropped)
	}
	if sampled {
		r.note(RecorderNote{note.Sample, note.Secret})
	}
	return dropped || sampled
}

// read reads one line. It holds the line or skips it, or sets r.err.
func (r *Reader) read() {
	whole, tooLong, err := r.lines.Next()
	text := bytes.TrimSpace(whole)
	r.err = err
	if err != nil {
		return
	}
	if tooLong {
		r.skip(TooLong, 1)
		return
	}
	if len(text) == 0 {
		return
	}
	line, reason := parseLine(text)
	switch {
	case reason == NotJSON && !bytes.HasSuffix(whole, []byte("\n")):
		r.skip(Cut, 1)
	case reason == NoDomain && r.readNote(text):
	case reason != "":
		r.skip(reason, 1)
	case line.At.Before(r.latest):
		r.skip(OutOfOrder, 1)
	default:
		if len(r.notes) == 0 {
			r.note(RecorderNote{Sample: 1})
		}
		r.buffer(bufferedLine{line, len(text)})
	}
}

// A bufferedLine is a line with its length in bytes.
type bufferedLine struct {
	Line
	size int
}

// buffer inserts a line behind the lines that are not later. Most lines are the latest. It reuses
// the memory, because a slice that grows makes a recording take 1.5 times as long to read.
func (r *Reader) buffer(line bufferedLine) {
	if n := len(r.buffered); n == cap(r.buffered) {
		if len(r.memory) < 2*n+64 {
			r.memory = make([]bufferedLine, 2*n+64)
		}
		r.buffered = r.memory[:copy(r.memory, r.buffered)]
	}
	i := len(r.buffered)
	if i > 0 && line.At.Before(r.buffered[i-1].At) {
		i = sort.Search(i, func(i int) bool { return r.buffered[i].At.After(line.At) })
	}
	r.buffered = slices.Insert(r.buffered, i, line)
	r.bufferedBytes += line.size
}
