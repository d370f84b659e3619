// Package accesslog makes recordings from access logs:
//
//	c, err := accesslog.New(accesslog.Options{Format: accesslog.Envoy, Domain: "ugc", Descriptors: descriptors})
//	err = c.Read("access.log", file)
//	err = c.WriteRecording(out)
//	report := c.Report()
//
// A [Template] maps the fields of a line to the value of an entry. The recording is in the order of the times at which requests
// started, although a proxy writes a line when a request ends. A [Converter] sorts in memory, and in temporary files beyond
// Options.MaxMemory. Lines that cannot be read are counted by their reason, and the first of them are listed.
package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/replay"
)

// A Format is the syntax of a log.
type Format string

// The formats.
const (
	Envoy Format = "envoy" // lines of text as Options.Layout, or Envoy's default format
	Nginx Format = "nginx" // lines of text as Options.Layout, or the combined format
	JSON  Format = "json"  // one object a line
	CSV   Format = "csv"   // with a header, unless Options.Columns is set
)

// Options configures a [Converter]. Format, Domain and Descriptors are required.
type Options struct {
	Format Format
	// Layout is the format string of the log: that of text_format in Envoy, or of log_format in nginx. The default is Envoy's default
	// format, or combined.
	Layout  string
	Columns []string // of CSV without a header
	Comma   rune     // of CSV; default ','

	Domain      string
	Descriptors []Descriptor
	Hits        *Template // default 1

	// Time is the field with the time at which a request started. EndTime is the field with the time at which it ended, and Duration
	// the field with the time that it took, in DurationUnit. The defaults follow from the format.
	Time, EndTime, Duration string
	DurationUnit            time.Duration  // default 1 ms
	Zone                    *time.Location // of times without one; nil: such lines cannot be read

	Status string // the field with the status; the default follows from the format
	Denied int    // the status of requests that were denied; default 429

	// MaxMemory is how much text of the recording is sorted in memory, in bytes. Default 64 MiB. More is sorted in files of TempDir.
	MaxMemory int
	TempDir   string // default: that of the system
}

// A Descriptor is a list of entries that a line yields. If a value is missing, the request has no such descriptor.
type Descriptor []Entry

// An Entry is a key, and the template of its value.
type Entry struct {
	Key   string
	Value *Template
}

// maxLine bounds a line of a log, in bytes.
const maxLine = 256 << 10

// A Reason says why a line could not be read.
type Reason string

// The reasons.
const (
	TooLong     Reason = "too_long"    // more than 256 KiB
	NotInFormat Reason = "not_format"  // the text does not follow the format
	Ambiguous   Reason = "ambiguous"   // quotes in a field do not allow to separate the fields
	NotJSON     Reason = "not_json"    // not a JSON object
	BadCSV      Reason = "bad_csv"     // another number of fields than the header, or quotes that do not end
	NoTime      Reason = "no_time"     // the field with the time is missing
	BadTime     Reason = "bad_time"    // the time is in no known format, or not in the years 1971 to 2199
	NoZone      Reason = "no_zone"     // the time has no zone, and no zone is set
	BadDuration Reason = "no_duration" // the duration is missing or no number
	BadHits     Reason = "bad_hits"    // the hits are no whole number
	BadValue    Reason = "bad_value"   // the request has more text than a line of a recording
)

// maxListed bounds Report.First.
const maxListed = 20

// A Report counts the lines of a conversion.
type Report struct {
	Lines      int64            // without empty lines and headers
	Written    int64            // requests
	Unreadable int64            // lines
	Reasons    map[Reason]int64 // of the unreadable lines
	First      []Unreadable     // the first unreadable lines, at most 20
	// NoDescriptors counts lines that were read and yield no descriptor. They are not written.
	NoDescriptors int64
	LeftOut       []int64  // for each of Options.Descriptors, the requests that have others only
	Unknown       []string // fields of the mapping that no line has
	Broken        []error  // files that could not be read to their end
	// Hints are the files of which no line yields a request, and that seem to have another format.
	Hints    []string
	From, To time.Time
}

// An Unreadable is a line that could not be read.
type Unreadable struct {
	File   string
	Line   int64 // from 1
	Reason Reason
}

// A Converter collects the requests of logs. It is not safe for concurrent use.
type Converter struct {
	o      Options
	when   when
	fields map[string]*int64 // of the mapping, with the number of lines that have them
	report Report
	sorter sorter
	line   replay.Line
	text   []byte
}

// New returns a Converter. The error reports invalid options.
func New(o Options) (*Converter, error) {
	if o.MaxMemory <= 0 {
		o.MaxMemory = 64 << 20
	}
	if o.Denied == 0 {
		o.Denied = 429
	}
	if o.DurationUnit <= 0 {
		o.DurationUnit = time.Millisecond
	}
	if o.Comma == 0 {
		o.Comma = ','
	}
	c := &Converter{o: o, fields: map[string]*int64{}, sorter: sorter{max: o.MaxMemory, dir: o.TempDir}}
	c.report.Reasons, c.report.LeftOut = map[Reason]int64{}, make([]int64, len(o.Descriptors))
	switch {
	case o.Domain == "":
		return nil, errors.New("the domain is missing: it is that of the rules")
	case len(o.Descriptors) == 0 || len(o.Descriptors) > decide.MaxDescriptors:
		return nil, fmt.Errorf("want 1 to %d descriptors, got %d", decide.MaxDescriptors, len(o.Descriptors))
	}
	for i, d := range o.Descriptors {
		if len(d) == 0 || len(d) > decide.MaxEntries {
			return nil, fmt.Errorf("descriptor %d: want 1 to %d entries, got %d", i+1, decide.MaxEntries, len(d))
		}
		for _, e := range d {
			c.use(e.Value)
		}
	}
	if o.Hits != nil {
		c.use(o.Hits)
	}
	return c, nil
}

func (c *Converter) use(t *Template) {
	for _, name := range t.Fields() {
		c.fields[name] = new(int64)
	}
}

// check reports fields of the mapping that a log with these fields does not have.
func (c *Converter) check(known []string) error {
	wanted := []string{c.when.start, c.when.end, c.when.duration, c.o.Status}
	for name := range c.fields {
		wanted = append(wanted, name)
	}
	slices.Sort(wanted)
	for _, name := range wanted {
		if name == "" || slices.Contains(known, name) {
			continue
		}
		hint := ": the"
		if nearest := spelling.Nearest(name, known); nearest != "" {
			hint = fmt.Sprintf(": did you mean %s? The", nearest)
		}
		return fmt.Errorf("the log has no field %q%s fields are %s", name, hint, joined(known))
	}
	return nil
}

// A parser reads the lines of one log.
type parser interface {
	// next reads the next record. It returns its first line, from 1. The error is io.EOF at the end. The reason is "" if the record could
	// be read.
	next() (line int64, reason Reason, err error)
	// field returns a field of the record.
	field(name string) (string, bool)
}

// Read reads a log, plain or compressed by gzip or zstd. The error reports options that do not suit the log, or a full disk. A log that
// cannot be read to its end is in the report.
func (c *Converter) Read(name string, in io.Reader) error {
	plain, closer, err := decompress(in)
	if err == nil {
		defer closer()
		err = c.read(name, plain)
	}
	var fault *fault
	if errors.As(err, &fault) {
		return fmt.Errorf("%s: %w", name, fault.error)
	}
	if err != nil {
		c.report.Broken = append(c.report.Broken, fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// A fault is an error that no further log can mend.
type fault struct{ error }

func (c *Converter) read(name string, in *bufio.Reader) error {
	head := headOf(in)
	p, err := c.parser(&lines{in: in})
	if errors.Is(err, io.EOF) {
		return nil // an empty CSV
	}
	if err != nil {
		if hint := c.hint(head); hint != "" {
			return &fault{errors.New(hint)}
		}
		return err
	}
	read := c.report.Written + c.report.NoDescriptors
	for {
		line, reason, err := p.next()
		if errors.Is(err, io.EOF) {
			if hint := c.hint(head); hint != "" && c.report.Written+c.report.NoDescriptors == read {
				c.report.Hints = append(c.report.Hints, name+": "+hint)
			}
			return nil
		}
		if err != nil {
			return err
		}
		c.report.Lines++
		if reason == "" {
			if reason, err = c.add(p); err != nil {
				return &fault{err}
			}
		}
		if reason == "" {
			continue
		}
		c.report.Unreadable++
		c.report.Reasons[reason]++
		if len(c.report.First) < maxListed {
			c.report.First = append(c.report.First, Unreadable{name, line, reason})
		}
	}
}

// newParser returns a parser, and the fields of its log unless they may differ from line to line.
func newParser(in *lines, o *Options) (p parser, known []string, err error) {
	switch o.Format {
	case Envoy, Nginx:
		text, err := newTextLog(in, o.Format, o.Layout)
		if err != nil {
			return nil, nil, err
		}
		return text, text.names(), nil
	case CSV:
		table, err := newCSVLog(in, o.Columns, o.Comma)
		if err != nil {
			return nil, nil, err
		}
		return table, table.columns, nil
	case JSON:
		return &jsonLog{in: in}, nil, nil
	}
	return nil, nil, fmt.Errorf("unknown format %q: the formats are envoy, nginx, json and csv", o.Format)
}

// parser returns the parser of a log, and completes the options that depend on its fields.
func (c *Converter) parser(in *lines) (parser, error) {
	p, known, err := newParser(in, &c.o)
	if errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil {
		return nil, &fault{err}
	}
	c.complete(known)
	if known != nil {
		if err := c.check(known); err != nil {
			return nil, &fault{err}
		}
	}
	return p, nil
}

// complete sets the fields of the time and of the status that the options leave out.
func (c *Converter) complete(known []string) {
	has := func(name string) bool { return known == nil || slices.Contains(known, name) }
	c.when = when{c.o.Time, c.o.EndTime, c.o.Duration, c.o.DurationUnit, c.o.Zone}
	status := "status"
	switch {
	case c.o.Format == Nginx:
		c.when.completeNginx(has)
	case c.o.Format == CSV:
		c.when.start = start(c.when, "time")
	default:
		c.when.start, status = start(c.when, "start_time"), "response_code"
	}
	if c.o.Status == "" && has(status) {
		c.o.Status = status
	}
}

// add adds the request of a record. The error is that of a temporary file.
func (c *Converter) add(p parser) (Reason, error) {
	at, reason := c.when.of(p.field)
	if reason != "" {
		return reason, nil
	}
	hits := int64(1)
	if c.o.Hits != nil {
		text, ok := c.o.Hits.value(p.field)
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || n < 0 {
			return BadHits, nil
		}
		hits = n
	}
	for name, lines := range c.fields {
		if _, ok := p.field(name); ok {
			*lines++
		}
	}
	c.line = replay.Line{At: at, Request: decide.Request{Domain: c.o.Domain, Descriptors: c.line.Request.Descriptors[:0]}}
	left := make([]bool, len(c.o.Descriptors))
	for i, d := range c.o.Descriptors {
		entries := make([]descriptors.Entry, 0, len(d))
		for _, e := range d {
			value, ok := e.Value.value(p.field)
			if !ok {
				break
			}
			entries = append(entries, descriptors.Entry{Key: e.Key, Value: value})
		}
		if left[i] = len(entries) < len(d); !left[i] {
			c.line.Request.Descriptors = append(c.line.Request.Descriptors, decide.Descriptor{Entries: entries, Hits: hits})
		}
	}
	if len(c.line.Request.Descriptors) == 0 {
		c.report.NoDescriptors++
		return "", nil
	}
	if text, ok := value(p.field, c.o.Status); ok {
		if status, err := strconv.Atoi(text); err == nil && status >= 100 && status <= 599 {
			c.line.HasAllowed, c.line.Allowed = true, status != c.o.Denied
		}
	}
	const maxRecorded = 1 << 20 // that a replay.Reader takes by default
	if c.text = replay.AppendLine(c.text[:0], &c.line); len(c.text) > maxRecorded {
		return BadValue, nil
	}
	for i := range left {
		if left[i] {
			c.report.LeftOut[i]++
		}
	}
	c.note(at)
	return "", c.sorter.add(at.UnixMicro(), c.text)
}

func (c *Converter) note(at time.Time) {
	if c.report.Written++; c.report.Written == 1 {
		c.report.From, c.report.To = at, at
	}
	if at.Before(c.report.From) {
		c.report.From = at
	}
	if at.After(c.report.To) {
		c.report.To = at
	}
}

// WriteRecording writes the recording, in the order of the times. Requests of equal times are in the order of the logs. The error is that of w
// or of a temporary file.
func (c *Converter) WriteRecording(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	return cmp.Or(c.sorter.write(out), out.Flush()) // both have the error of w
}

// Close removes the temporary files.
func (c *Converter) Close() error { return c.sorter.close() }

// Report returns the counts so far.
func (c *Converter) Report() Report {
	r := c.report
	for name, lines := range c.fields {
		if *lines == 0 && r.Lines > r.Unreadable {
			r.Unknown = append(r.Unknown, name)
		}
	}
	slices.Sort(r.Unknown)
	return r
}

// decompress returns the plain text of a log, and a function that releases memory.
func decompress(in io.Reader) (*bufio.Reader, func(), error) {
	plain := bufio.NewReaderSize(in, 1<<16)
	magic, err := plain.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(plain)
		if err != nil {
			return nil, nil, err
		}
		return bufio.NewReaderSize(r, 1<<16), func() { _ = r.Close() }, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		const maxMemory = 128 << 20
		r, err := zstd.NewReader(plain, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMemory), zstd.WithDecoderMaxWindow(maxMemory))
		if err != nil {
			return nil, nil, err
		}
		return bufio.NewReaderSize(r, 1<<16), r.Close, nil
	}
	return plain, func() {}, nil
}

// lines reads lines of bounded length.
type lines struct {
	in     *bufio.Reader
	number int64 // of the last line, from 1
	line   []byte
	err    error
}

// next returns the next line without its end. It is valid until the next call.
func (l *lines) next() (line []byte, tooLong bool, err error) {
	if l.err != nil {
		return nil, false, l.err
	}
	l.line = l.line[:0]
	for first := true; ; first = false {
		part, err := l.in.ReadSlice('\n')
		if first && len(part) > 0 {
			l.number++
		}
		if len(l.line)+len(part) > maxLine {
			tooLong = true
		}
		if !tooLong {
			l.line = append(l.line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if l.err = err; err != nil && (first && len(part) == 0) {
			return nil, false, err
		}
		return bytes.TrimRight(l.line, "\r\n"), tooLong, nil
	}
}
