package recording_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

// line returns a line of a recording, some seconds after start.
func line(seconds int, value string) string {
	return fmt.Sprintf(`{"t":%q,"domain":"ugc","descriptors":[[["window",%q]]]}`, start.Add(time.Duration(seconds)*time.Second).Format(time.RFC3339Nano), value)
}

// readAll reads a recording. It returns the lines before an error.
func readAll(t testing.TB, in io.Reader, o recording.ReaderOptions) (all []recording.Line, skipped []recording.SkipCount, err error) {
	t.Helper()
	r, err := recording.NewReader(in, o)
	must.Succeed(t, err)
	defer r.Close()
	for {
		var line recording.Line
		switch err := r.Next(&line); {
		case errors.Is(err, io.EOF):
			return all, r.Skipped(), nil
		case err != nil:
			return all, r.Skipped(), err
		}
		all = append(all, line)
	}
}

// values returns the value of the first entry of each line.
func values(all []recording.Line) (values []string) {
	for _, l := range all {
		values = append(values, l.Request.Descriptors[0].Entries[0].Value)
	}
	return values
}

func TestReaderReadsEveryForm(t *testing.T) {
	text := `{"t":"2026-11-22T10:00:00.000001Z","domain":"ugc","descriptors":[[["user_id","42"],["action","reply"]]],"hits":1,"allowed":true}

{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]],[],[["c",""]]],"hits":[3,0,-2],"allowed":false,"replica":"x"}
{"t":"2026-11-22T11:00:01+01:00","domain":"d","descriptors":[[["a","b"]]],"hits":-5}
`
	got, skipped, err := readAll(t, strings.NewReader(text), recording.ReaderOptions{})
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	entry := func(key, value string) descriptors.Entry { return descriptors.Entry{Key: key, Value: value} }
	want := []recording.Line{
		{At: start.Add(time.Microsecond), HasAllowed: true, Allowed: true, Request: decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{
			{Entries: []descriptors.Entry{entry("user_id", "42"), entry("action", "reply")}, Hits: 1},
		}}},
		{At: start.Add(2 * time.Microsecond), HasAllowed: true, Request: decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{
			{Entries: []descriptors.Entry{entry("a", "b")}, Hits: 3}, {Entries: []descriptors.Entry{}}, {Entries: []descriptors.Entry{entry("c", "")}, Hits: -2, Refund: true},
		}}},
		{At: start.Add(time.Second), Request: decide.Request{Domain: "d", Descriptors: []decide.Descriptor{
			{Entries: []descriptors.Entry{entry("a", "b")}, Hits: -5, Refund: true},
		}}},
	}
	for i := range got {
		got[i].At = got[i].At.UTC()
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// A line that cannot be replayed is counted by its kind, and the lines around it are read.
func TestReaderCountsUnreadableLines(t *testing.T) {
	const at = `{"t":1795341600000000`
	const request = at + `,"domain":"ugc"`
	long, many := strings.Repeat("x", 5000), strings.Repeat(`[["a","b"]],`, decide.MaxDescriptors)
	for kind, bad := range map[recording.SkipReason][]string{
		recording.TooLong: {request + `,"descriptors":[[["a","` + long + `"]]]}`},
		recording.NotJSON: {`127.0.0.1 - - "GET / HTTP/1.1"`, `[1]`, `{"t":1,"domain":5}`, `{"t":`},
		recording.BadTime: {
			`{"domain":"ugc","descriptors":[[["a","b"]]]}`,
			`{"t":"now","domain":"ugc"}`,
			`{"t":5,"domain":"ugc"}`,
			`{"t":1.5,"domain":"ugc"}`,
			`{"t":null}`,
		},
		recording.NoDomain: {at + `,"descriptors":[[["a","b"]]]}`},
		recording.BadDescriptors: {
			request + `}`,
			request + `,"descriptors":[[["a"]]]}`,
			request + `,"descriptors":[[["","b"]]]}`,
			request + `,"descriptors":[[["a","b"]]],"left_out":-1}`,
			request + `,"descriptors":[[["a","b"]]],"left_out":101}`,
			request + `,"descriptors":[[["a","b"]]],"left_out":9223372036854775807}`,
			request + `,"descriptors":[` + many + `[["a","b"]]]}`,
			request + `,"descriptors":[[` + strings.Repeat(`["a","b"],`, decide.MaxEntries) + `["a","b"]]]}`,
		},
		recording.BadHits: {
			request + `,"descriptors":[[["a","b"]]],"hits":[1,2]}`,
			request + `,"descriptors":[[["a","b"]]],"hits":"1"}`,
			request + `,"descriptors":[[["a","b"]]],"hits":[null]}`,
			request + `,"descriptors":[[["a","b"]]],"hits":1.5}`,
		},
	} {
		text := line(0, "first") + "\n" + strings.Join(bad, "\n") + "\n" + line(1, "last")
		got, skipped, err := readAll(t, strings.NewReader(text), recording.ReaderOptions{MaxLineBytes: 3000})
		want := []recording.SkipCount{{Reason: kind, Lines: int64(len(bad)), First: 2}}
		if err != nil || !slices.Equal(skipped, want) || !slices.Equal(values(got), []string{"first", "last"}) {
			t.Errorf("%s: skipped %v, want %v; read %q, %v", kind, skipped, want, values(got), err)
		}
	}
}

// Lines that are a little late are returned in the order of their times. A line that is too late is
// counted.
func TestReaderOrdersLines(t *testing.T) {
	text := strings.Join([]string{line(1, "b"), line(0, "a"), line(1, "c"), line(5, "f"), line(3, "d"), line(4, "e"), line(1, "late")}, "\n")
	for reorder, want := range map[int]string{
		0: "a b c late d e f", // all lines are held
		3: "a b c d e f",
		1: "b c f",
	} {
		got, skipped, err := readAll(t, strings.NewReader(text), recording.ReaderOptions{Reorder: reorder})
		if read := strings.Join(values(got), " "); read != want || err != nil {
			t.Errorf("holding %d: read %s, %v, want %s", reorder, read, err, want)
		}
		lost := int64(7 - len(strings.Fields(want)))
		if lost > 0 && (len(skipped) != 1 || skipped[0].Reason != recording.OutOfOrder || skipped[0].Lines != lost) {
			t.Errorf("holding %d: skipped %+v, want %d out of order", reorder, skipped, lost)
		}
	}
}

func compressed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	must.Succeed(t, err)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, w.Close())
	return b.Bytes()
}

func TestReaderReadsZstd(t *testing.T) {
	first, second := compressed(t, line(0, "a")+"\n"+line(1, "b")+"\n"), compressed(t, line(2, "c")+"\n")
	got, skipped, err := readAll(t, bytes.NewReader(slices.Concat(first, second)), recording.ReaderOptions{})
	if err != nil || len(skipped) > 0 || !slices.Equal(values(got), []string{"a", "b", "c"}) {
		t.Errorf("read %q, %v, %v", values(got), skipped, err)
	}
}

func TestReaderSkipsByteOrderMark(t *testing.T) {
	text := "\ufeff" + line(0, "a") + "\n" + line(1, "b") + "\n"
	for _, in := range []string{text, string(compressed(t, text))} {
		got, skipped, err := readAll(t, strings.NewReader(in), recording.ReaderOptions{})
		if err != nil || len(skipped) > 0 || !slices.Equal(values(got), []string{"a", "b"}) {
			t.Errorf("read %q, %v, %v", values(got), skipped, err)
		}
	}
}

func TestReaderNamesGzip(t *testing.T) {
	if _, err := recording.NewReader(strings.NewReader("\x1f\x8b\x08\x00"), recording.ReaderOptions{}); err == nil || !strings.Contains(err.Error(), "compressed by gzip: decompress it") {
		t.Error(err)
	}
}

// A recording that ends in the middle, such as after a crash, is read as far as possible, and the
// loss is reported.
func TestReaderReportsTruncatedRecordings(t *testing.T) {
	plain := line(0, "a") + "\n" + line(1, "b") + "\n"
	got, skipped, err := readAll(t, strings.NewReader(plain[:len(plain)-10]), recording.ReaderOptions{})
	if want := []recording.SkipCount{{Reason: recording.Cut, Lines: 1, First: 2}}; err != nil || !slices.Equal(skipped, want) || !slices.Equal(values(got), []string{"a"}) {
		t.Errorf("plain: read %q, %v, %v, want %v", values(got), skipped, err, want)
	}
	var many strings.Builder
	for i := range 50_000 {
		many.WriteString(line(i, fmt.Sprint(i*7919)) + "\n")
	}
	whole := compressed(t, many.String())
	for name, damaged := range map[string][]byte{
		"cut":     whole[:len(whole)/2],
		"changed": slices.Concat(whole[:len(whole)/2], []byte("not zstd"), whole[len(whole)/2+8:]),
		"mixed":   slices.Concat(whole, []byte(plain)),
	} {
		got, _, err := readAll(t, bytes.NewReader(damaged), recording.ReaderOptions{})
		if err == nil || !strings.Contains(err.Error(), "the recording cannot be read beyond line ") ||
			!strings.Contains(err.Error(), "its zstd compression is damaged") || len(got) == 0 {
			t.Errorf("%s: read %d lines, error %v", name, len(got), err)
		}
	}
	unread := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), iotest.ErrReader(fs.ErrPermission))
	if _, _, err := readAll(t, unread, recording.ReaderOptions{}); !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "damaged") {
		t.Errorf("an input that fails: error %v, want permission denied, not a damaged compression", err)
	}
}

func TestReaderOfAnEmptyRecordingEndsAtOnce(t *testing.T) {
	for _, text := range []string{"", "\n\n"} {
		if got, skipped, err := readAll(t, strings.NewReader(text), recording.ReaderOptions{}); err != nil || len(got)+len(skipped) > 0 {
			t.Errorf("%q: got %v, skipped %v, error %v, want none of them", text, got, skipped, err)
		}
	}
}

// A line without an end is not kept in memory.
func TestReaderBoundsTheLengthOfALine(t *testing.T) {
	endless := io.LimitReader(zeros{}, 100<<20)
	got, skipped, err := readAll(t, io.MultiReader(endless, strings.NewReader("\n"+line(0, "a"))), recording.ReaderOptions{})
	if want := []recording.SkipCount{{Reason: recording.TooLong, Lines: 1, First: 1}}; err != nil || !slices.Equal(skipped, want) || len(got) != 1 {
		t.Errorf("read %d lines, %v, %v", len(got), skipped, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// No recording makes the reader fail in another manner, each line is counted once, and the times
// never go back.
func FuzzReader(f *testing.F) {
	f.Add([]byte(line(0, "a") + "\n" + line(1, "b")))
	f.Add(compressed(f, line(0, "a")))
	f.Add([]byte(`{"t":0,"domain":"a","descriptors":[[["a","b"]]],"hits":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := recording.NewReader(bytes.NewReader(data), recording.ReaderOptions{Reorder: 3, MaxLineBytes: 1000})
		if err != nil {
			return
		}
		defer r.Close()
		var line recording.Line
		last, n := time.Time{}, int64(0)
		for r.Next(&line) == nil {
			if line.At.Before(last) {
				t.Fatalf("%v after %v", line.At, last)
			}
			last = line.At
			n++
		}
		for _, s := range r.Skipped() {
			n += s.Lines
		}
		if n > r.Lines() {
			t.Errorf("%d lines returned or skipped of %d", n, r.Lines())
		}
	})
}

// Reading and deciding 1,000,000 requests in 10 s needs at most 10 µs per line.
func BenchmarkReader(b *testing.B) {
	var text bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintf(&text, `{"t":%d,"domain":"ugc","descriptors":[[["user_id","user-%08d"],["action","reply"]]],"hits":1,"allowed":true}`+"\n",
			start.UnixMicro()+int64(i), i)
	}
	file := compressed(b, text.String())
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r, err := recording.NewReader(bytes.NewReader(file), recording.ReaderOptions{})
		must.Succeed(b, err)
		var line recording.Line
		for r.Next(&line) == nil {
			n++
		}
		r.Close()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "lines/s")
}
