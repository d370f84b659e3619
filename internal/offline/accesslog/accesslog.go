// Package accesslog makes recordings from access logs:
//
//	c, err := accesslog.New(accesslog.Options{Format: accesslog.Envoy, Domain: "ugc", Descriptors: descriptors})
//	err = c.Read("access.log", file)
//	err = c.WriteRecording(out)
//	report := c.Report()
//
// A [Template] maps the fields of a line to the value of an entry. The recording is in the order of
// the times at which requests started, although a proxy writes a line when a request ends. A
// [Converter] sorts in memory, and in temporary files beyond Options.MaxMemory. Lines that cannot
// be read are counted by their reason, and the first of them are listed.
package accesslog

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
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
	// Layout is the format string of the log, as in text_format of Envoy or log_format of nginx. It
	// defaults to the default format of Envoy, or to the format combined of nginx.
	Layout  string
	Columns []string // the columns of a CSV log without a header
	Comma   rune     // the separator of a CSV log; default ','

	Domain      string
	Descriptors []Descriptor
	Hits        *Template // default 1

	// Time is the field with the time at which a request started. Without it, the start is EndTime,
	// the field with the time at which the request ended, minus Duration, the field with the time
	// that the request took, in DurationUnit. The defaults follow from the format.
	Time, EndTime, Duration string
	DurationUnit            string         // s, ms, us or ns; default ms
	Zone                    *time.Location // the zone of times without one; nil: such a line is unreadable

	Status string // the field with the status; the default follows from the format
	Denied int    // the status of requests that were denied; default 429

	// MaxMemory is the most text of the recording that is sorted in memory, in bytes. The rest is
	// sorted in temporary files. Default 64 MiB.
	MaxMemory int
}

// A Descriptor is a list of entries that a line yields. If a value is missing, the request has no
// such descriptor.
type Descriptor []Entry

// An Entry is a key, and the template of its value.
type Entry struct {
	Key   string
	Value *Template
}

// A Converter collects the requests of logs. It is not safe for concurrent use.
type Converter struct {
	o      Options
	times  timeFields        // the time fields in the current log
	status string            // the field of the current log with the status, or ""
	fields map[string]*int64 // those of values and of Options.Status, with the number of lines that have each
	report Report
	sorter sorter
	line   recording.Line
	text   []byte
}

// New returns a Converter. The error reports invalid options.
func New(o Options) (*Converter, error) {
	o.MaxMemory, o.Denied = cmp.Or(o.MaxMemory, 64<<20), cmp.Or(o.Denied, 429)
	o.DurationUnit, o.Comma = cmp.Or(o.DurationUnit, "ms"), cmp.Or(o.Comma, ',')
	c := &Converter{o: o, fields: map[string]*int64{}, sorter: sorter{max: o.MaxMemory}}
	c.report.Reasons, c.report.LeftOut = map[Reason]int64{}, make([]int64, len(o.Descriptors))
	switch {
	case o.Domain == "":
		return nil, errors.New("the domain is missing: set the domain of your rules")
	case len(o.Descriptors) == 0 || len(o.Descriptors) > decide.MaxDescriptors:
		return nil, fmt.Errorf("want 1 to %d descriptors, got %d", decide.MaxDescriptors, len(o.Descriptors))
	}
	for i, d := range o.Descriptors {
		if len(d) == 0 || len(d) > decide.MaxEntries {
			return nil, fmt.Errorf("descriptor %d: want 1 to %d entries, got %d", i+1, decide.MaxEntries, len(d))
		}
		for _, e := range d {
			c.addFields(e.Value)
		}
	}
	if o.Hits != nil {
		c.addFields(o.Hits)
	}
	if o.Status != "" {
		c.fields[o.Status] = new(int64)
	}
	return c, nil
}

// addFields records the fields that a template needs.
func (c *Converter) addFields(t *Template) {
	for _, p := range t.parts {
		if p.field != "" {
			c.fields[p.field] = new(int64)
		}
	}
}

// add adds the request of a record. It returns an error if a temporary file cannot be written.
func (c *Converter) add(p parser) (Reason, error) {
	at, reason := c.times.startOf(p.field)
	if reason != "" {
		return reason, nil
	}
	hits, valid := c.hits(p)
	if !valid {
		return BadHits, nil
	}
	for name, lines := range c.fields {
		if _, ok := p.field(name); ok {
			*lines++
		}
	}
	c.line = recording.Line{At: at, Request: decide.Request{Domain: c.o.Domain, Descriptors: c.line.Request.Descriptors[:0]}}
	c.line.Allowed, c.line.HasAllowed = c.isAllowed(p)
	var leftOut []int // indexes of Options.Descriptors
	for i, d := range c.o.Descriptors {
		if entries, complete := c.entries(d, p); complete {
			c.line.Request.Descriptors = append(c.line.Request.Descriptors, decide.Descriptor{Entries: entries, Hits: hits})
		} else {
			leftOut = append(leftOut, i)
		}
	}
	if len(c.line.Request.Descriptors) == 0 {
		c.report.NoDescriptors++
		return "", nil
	}
	const maxRecordedBytes = 1 << 20 // the default of recording.ReaderOptions.MaxLineBytes
	c.text = recording.AppendLine(c.text[:0], &c.line)
	if len(c.text) > maxRecordedBytes {
		return BadValue, nil
	}
	for _, i := range leftOut {
		c.report.LeftOut[i]++
	}
	c.report.addWritten(at)
	return "", c.sorter.add(c.text)
}

// hits returns the hits of a record. It reports false if the field is not a whole number.
func (c *Converter) hits(p parser) (int64, bool) {
	if c.o.Hits == nil {
		return 1, true
	}
	text, ok := c.o.Hits.value(p.field)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && err == nil && n >= 0
}

// isAllowed reports whether the request was allowed, from the status of the record. known is false
// if the status is unknown.
func (c *Converter) isAllowed(p parser) (allowed, known bool) {
	text, found := fieldValue(p.field, c.status)
	status, err := strconv.Atoi(text)
	known = found && err == nil && status >= 100 && status <= 599
	return known && status != c.o.Denied, known
}

// entries returns the entries of d for a record. It reports false if a value is missing.
func (c *Converter) entries(d Descriptor, p parser) ([]descriptors.Entry, bool) {
	entries := make([]descriptors.Entry, 0, len(d))
	for _, e := range d {
		value, ok := e.Value.value(p.field)
		if !ok {
			return nil, false
		}
		entries = append(entries, descriptors.Entry{Key: e.Key, Value: c.escaped(value)})
	}
	return entries, true
}

// escaped returns the value that the server would make of value, which may be invalid UTF-8.
func (c *Converter) escaped(value string) string {
	if c.o.Format == JSON && utf8.ValidString(value) {
		return value // jsonLog has escaped it
	}
	return descriptors.EscapeInvalidUTF8(value)
}

// WriteRecording writes the recording in the order of the times. Requests of equal times are in the
// order of the logs. It fails if w or a temporary file fails.
func (c *Converter) WriteRecording(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	return cmp.Or(c.sorter.write(out), out.Flush()) // both have the error of w
}

// Close removes the temporary files.
func (c *Converter) Close() error { return c.sorter.close() }
