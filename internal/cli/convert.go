package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/accesslog"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Convert converts access logs to a recording.
type Convert struct {
	Format    string   `enum:"envoy,nginx,json,csv," default:"" placeholder:"FORMAT" help:"The format of the logs: envoy or nginx (lines of text), json or csv."`
	LogFormat string   `name:"log-format" placeholder:"TEXT" help:"The format string of the log: Envoy's text_format, or nginx's log_format. Default: Envoy's default format, or combined."`
	Columns   []string `placeholder:"NAME" help:"The columns of a CSV without a header."`
	Comma     string   `default:"," placeholder:"CHARACTER" help:"The character between the columns of a CSV, such as ';', or the word tab."`

	Domain      string   `placeholder:"NAME" help:"The domain of the rules."`
	Descriptors []string `name:"descriptor" sep:"none" placeholder:"ENTRIES" help:"A descriptor of each request, such as 'user_id=%{x-user-id},action=%{path|segment 1}'. May be repeated."`
	Hits        string   `placeholder:"VALUE" help:"The hits of a request, such as '%{tokens}'. Default: 1."`

	Time         string `name:"time" placeholder:"FIELD" help:"The field with the time at which the request started."`
	EndTime      string `name:"end-time" placeholder:"FIELD" help:"The field with the time at which the request ended, if no field has its start."`
	Duration     string `placeholder:"FIELD" help:"With --end-time: the field with the time that the request took."`
	DurationUnit string `enum:"s,ms,us,ns" default:"ms" placeholder:"UNIT" help:"The unit of --duration: s, ms, us or ns."`
	TimeZone     string `name:"time-zone" placeholder:"ZONE" help:"The time zone of times without a zone, such as UTC or Europe/Berlin."`
	StatusField  string `name:"status-field" placeholder:"FIELD" help:"The field with the status of the response."`
	DeniedStatus int    `name:"denied-status" default:"429" placeholder:"CODE" help:"The status of requests that were denied."`

	Out   string   `placeholder:"FILE" help:"The recording. It is compressed with zstd if its name ends with .zst. Default: standard output."`
	Paths []string `arg:"" optional:"" name:"log" help:"Logs, plain or compressed with gzip or zstd. - is standard input."`
}

// Help returns the text after the flags in the command's help.
func (*Convert) Help() string {
	return `Examples:
  weir convert --format envoy --domain ugc --descriptor 'path=%{path|path}' --out day.ndjson.zst access.log
  weir convert --format json --domain ugc --descriptor 'user_id=%{x-user-id}' --out day.ndjson.zst access.log.*.gz
  weir convert --format nginx --domain ugc --descriptor 'remote_address=%{remote_addr}' < access.log
  weir convert --format csv --time at --domain ugc --descriptor 'user_id=%{user},plan=free' requests.csv

A value is a string with fields as %{name}. Filters change a field: %{path|segment 1}, %{path|path}, %{path|query user},
%{x-forwarded-for|item -1}, %{address|host}, %{method|lower}, %{path|match ^/u/(\d+)}. docs/convert.md describes all filters.

The exit code is 0 if every line was read, 1 if some lines could not be read, and 2 after an error.`
}

// Run writes the recording, and a report on standard error. It returns [Failed] if some lines were
// unreadable.
func (c *Convert) Run(ctx context.Context, streams Streams) error {
	report, err := c.convert(ctx, streams)
	if err != nil {
		return err
	}
	if report.Unreadable > 0 || len(report.Broken) > 0 {
		return Failed
	}
	return nil
}

func (c *Convert) convert(ctx context.Context, streams Streams) (*accesslog.Report, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	if c.writesFile() {
		if err := cmp.Or(checkWritable(c.Out), checkNoInput(c.Out, c.Paths...)); err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
	}
	converter, err := accesslog.New(options)
	if err != nil {
		return nil, err
	}
	defer converter.Close()
	paths := c.Paths
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	if err := c.read(ctx, paths, converter, streams); err != nil {
		return nil, err
	}
	report := converter.Report()
	printConversion(streams.Err, &report, c.Descriptors)
	if report.Written == 0 {
		return nil, errors.New("no line yields a request: nothing is written")
	}
	return &report, c.write(converter, streams.Out)
}

// options returns the options that the flags set.
func (c *Convert) options() (accesslog.Options, error) {
	o := accesslog.Options{
		Format: accesslog.Format(c.Format), Layout: c.LogFormat, Columns: c.Columns, Domain: c.Domain, Time: c.Time, EndTime: c.EndTime,
		Duration: c.Duration, DurationUnit: c.DurationUnit, Status: c.StatusField, Denied: c.DeniedStatus,
	}
	err := c.check()
	if err != nil {
		return o, err
	}
	comma := []rune(strings.Replace(c.Comma, "tab", "\t", 1))
	if len(comma) != 1 || strings.ContainsRune("\"\r\n\ufffd", comma[0]) {
		return o, fmt.Errorf("--comma %q: want one character, or tab", c.Comma)
	}
	o.Comma = comma[0]
	if c.TimeZone != "" {
		o.Zone, err = time.LoadLocation(c.TimeZone)
		if err != nil {
			return o, fmt.Errorf("--time-zone %q: unknown zone: want UTC, or a name such as Europe/Berlin", c.TimeZone)
		}
	}
	for _, text := range c.Descriptors {
		d, err := parseDescriptor(text)
		if err != nil {
			return o, err
		}
		o.Descriptors = append(o.Descriptors, d)
	}
	if c.Hits != "" {
		o.Hits, err = accesslog.ParseTemplate(c.Hits)
		if err != nil {
			return o, fmt.Errorf("--hits: %w", err)
		}
	}
	return o, nil
}

// check reports missing and conflicting flags.
func (c *Convert) check() error {
	switch format := accesslog.Format(c.Format); {
	case format == "":
		return errors.New("convert needs --format envoy, nginx, json or csv")
	case c.Domain == "":
		return errors.New("convert needs --domain with the domain of the rules")
	case c.DeniedStatus < 100 || c.DeniedStatus > 599:
		return fmt.Errorf("--denied-status=%d: want an HTTP status, from 100 to 599", c.DeniedStatus)
	case len(c.Descriptors) == 0:
		return errors.New("convert needs --descriptor, for example: --descriptor 'user_id=%{x-user-id}'")
	case c.LogFormat != "" && format != accesslog.Envoy && format != accesslog.Nginx:
		return errors.New("--log-format needs --format envoy or nginx")
	case len(c.Columns) > 0 && format != accesslog.CSV:
		return errors.New("--columns needs --format csv")
	case c.Time != "" && (c.EndTime != "" || c.Duration != ""):
		return errors.New("--end-time and --duration cannot be used with --time: remove them")
	case c.Duration != "" && c.EndTime == "":
		return errors.New("--duration needs --end-time")
	}
	return checkDomain(c.Domain)
}

// parseDescriptor reads a --descriptor.
func parseDescriptor(text string) (accesslog.Descriptor, error) {
	entries, err := descriptors.ParseEntries(text)
	if err != nil {
		return nil, fmt.Errorf("--descriptor %q: %w", text, err)
	}
	var d accesslog.Descriptor
	constant := true
	for _, e := range entries {
		value, err := accesslog.ParseTemplate(e.Value)
		if err != nil {
			return nil, fmt.Errorf("--descriptor: the value of %s: %w", e.Key, err)
		}
		d = append(d, accesslog.Entry{Key: e.Key, Value: value})
		constant = constant && value.Constant() && e.Key != "generic_key"
	}
	if constant {
		return nil, fmt.Errorf("--descriptor %q is the same for every line: write %%{field} for the value of a field; only generic_key "+
			"has a constant by itself", text)
	}
	return d, nil
}

// read reads all logs.
func (c *Convert) read(ctx context.Context, paths []string, converter *accesslog.Converter, streams Streams) error {
	in := &logReader{ctx: ctx, bar: newProgressBar(streams.Err)}
	defer in.bar.clear()
	infos := map[string]os.FileInfo{} // by path
	for i, path := range paths {
		switch {
		case slices.Contains(paths[:i], path):
			return fmt.Errorf("%s is given twice: remove one", path)
		case path == "-":
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return ReadError(err)
		}
		for _, other := range paths[:i] {
			if os.SameFile(info, infos[other]) {
				return fmt.Errorf("%s and %s are one file: remove one", other, path)
			}
		}
		infos[path] = info
		if info.IsDir() {
			return fmt.Errorf("%s is a folder: name the files in it", path)
		}
		in.total += info.Size()
	}
	for _, path := range paths {
		if err := in.read(path, converter, streams.In); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// A logReader reads logs and shows the progress.
type logReader struct {
	io.Reader
	ctx         context.Context
	bar         progressBar
	done, total int64
}

func (r *logReader) read(path string, converter *accesslog.Converter, stdin io.Reader) error {
	r.Reader = stdin
	name := "standard input"
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return ReadError(err)
		}
		defer file.Close()
		r.Reader, name = file, path
	}
	return converter.Read(name, r)
}

func (r *logReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.Reader.Read(b)
	r.done += int64(n)
	if r.bar.due() {
		r.bar.show(r.done, r.total)
	}
	return n, err
}

// writesFile reports whether the recording goes to a file, and not to standard output.
func (c *Convert) writesFile() bool { return c.Out != "" && c.Out != "-" }

// write writes the recording.
func (c *Convert) write(converter *accesslog.Converter, stdout io.Writer) error {
	if !c.writesFile() {
		return converter.WriteRecording(stdout)
	}
	if err := writeRecording(c.Out, converter.WriteRecording); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

var reasonTexts = map[accesslog.Reason]string{
	accesslog.TooLong: "longer than 256 KiB", accesslog.NotInFormat: "not in the format of the log (--log-format)",
	accesslog.Ambiguous: "a field has the characters that separate fields", accesslog.NotJSON: "not a JSON object",
	accesslog.BadCSV:  "another number of columns than the header, or a quote without an end",
	accesslog.NoTime:  "the time is missing (--time or --end-time)",
	accesslog.BadTime: "the time is in no known format, or out of range", accesslog.NoZone: "the time has no zone (--time-zone)",
	accesslog.BadDuration: "the duration is missing or no number", accesslog.BadHits: "the hits are missing or no whole number",
	accesslog.BadValue: "the request is longer than a line of a recording",
}

// printConversion prints the report.
func printConversion(w io.Writer, r *accesslog.Report, descriptors []string) {
	fmt.Fprintf(w, "weir: lines %d, requests %d, unreadable lines %d, lines without a descriptor %d\n", r.Lines, r.Written,
		r.Unreadable, r.NoDescriptors)
	if r.Written > 0 {
		fmt.Fprintf(w, "weir: from %s to %s\n", r.From.Format(time.RFC3339Nano), r.To.Format(time.RFC3339Nano))
	}
	for i, n := range r.LeftOut {
		if n > 0 {
			fmt.Fprintf(w, "weir: left out in %d requests, because a value is missing: %s\n", n, terminal.Printable(descriptors[i]))
		}
	}
	for _, name := range r.Unknown {
		warn(w, "no line has the field %s", name)
	}
	for _, err := range r.Broken {
		warn(w, "not read to the end: %v", err)
	}
	for _, hint := range r.Hints {
		warn(w, "%s", hint)
	}
	for _, u := range r.First {
		fmt.Fprintf(w, "%s:%d: %s\n", terminal.Printable(u.File), u.Line, reasonTexts[u.Reason])
	}
	if int64(len(r.First)) == r.Unreadable {
		return
	}
	fmt.Fprintf(w, "weir: the first %d unreadable lines are listed; in all:\n", len(r.First))
	for _, reason := range slices.SortedFunc(maps.Keys(r.Reasons), func(a, b accesslog.Reason) int {
		return cmp.Or(cmp.Compare(r.Reasons[b], r.Reasons[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(w, "  %d %s: %s\n", r.Reasons[reason], reason, reasonTexts[reason])
	}
}
