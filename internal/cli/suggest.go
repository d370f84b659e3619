package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/weir-rls/weir/internal/offline/suggest"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Suggest finds limits for the traffic of a recording.
type Suggest struct {
	rulesFlags `embed:""`

	Domain string   `help:"With --config: the only domain to find limits for. With --path: the domain of the requests."`
	Path   []string `sep:"none" placeholder:"KEY,KEY=VALUE" help:"A key path that has no rule, such as user_id,action=login. May be repeated. Escape a comma in a value with a backslash."`

	Headroom    float64 `default:"20" placeholder:"PERCENT" help:"How far a recommended limit is above the busiest ordinary key. Default: 20."`
	Algorithm   string  `enum:",fixed_window,sliding_log,funnel" default:"" placeholder:"NAME" help:"With --path: the algorithm to recommend: fixed_window, sliding_log or funnel."`
	Window      string  `enum:",second,minute,hour,day" default:"" placeholder:"UNIT" help:"With --path: the window to recommend: second, minute, hour or day."`
	SampleShare float64 `placeholder:"FRACTION" help:"The fraction of all keys that the recording contains, such as 0.1. Default: the fraction that the recording states."`
	MaxMemory   int64   `default:"512" placeholder:"MIB" help:"The memory for the times of requests. Above it, the command keeps a fraction of the keys. Default: 512."`
	Output      string  `short:"o" enum:"text,json,yaml" default:"text" help:"The format of the output: text, json or yaml."`

	Recordings []string `arg:"" optional:"" name:"recording" help:"Recordings, plain or compressed with zstd, or folders of RECORD_PATH, read as one. - is standard input."`
}

// Help returns the text after the flags in the command's help.
func (*Suggest) Help() string {
	return `Examples:
  weir suggest --config rules.yaml recording.ndjson.zst
  weir suggest --domain shop --path user_id,action recording.ndjson
  weir suggest --config rules.yaml --domain shop -o yaml recording.ndjson > suggested.yaml

The exit code is 0 if at least one limit is recommended, 1 if none is, and 2 after an error.`
}

// Validate reports missing and conflicting arguments.
func (s *Suggest) Validate() error {
	switch {
	case len(s.Recordings) == 0:
		return errors.New("needs a recording, for example: weir suggest --config rules.yaml recording.ndjson.zst")
	case len(s.Config) == 0 && len(s.Path) == 0:
		return errors.New("needs --config with the rules, or --domain and --path with a key path, for example: " +
			"weir suggest --domain shop --path user_id recording.ndjson")
	case len(s.Path) > 0 && s.Domain == "":
		return errors.New("--path needs --domain with the domain of the requests")
	case len(s.Path) == 0 && (s.Algorithm != "" || s.Window != ""):
		return errors.New("--algorithm and --window need --path: a recommendation for a rule keeps those of the rule")
	case !(s.Headroom >= 0 && s.Headroom <= 1000):
		return errors.New("--headroom must be from 0 to 1000")
	case s.SampleShare != 0 && !validShare(s.SampleShare):
		return fmt.Errorf("--sample-share must be from %v to 1", minShare)
	case s.MaxMemory < 1 || s.MaxMemory > math.MaxInt64>>20:
		return errors.New("--max-memory must be above 0, in MiB")
	}
	return s.checkStdin(s.Config, input{"the recordings", s.Recordings})
}

// Run prints limits for the traffic of the recordings. The exit code is [Failed] if none is
// recommended.
func (s *Suggest) Run(ctx context.Context, streams Streams) error {
	report, err := s.report(ctx, streams)
	if err != nil {
		return err
	}
	recommended := slices.ContainsFunc(report.Rules, func(r *suggest.RuleReport) bool { return len(r.Recommendations) > 0 })
	if !recommended {
		s.hint(report, streams.Err)
	}
	err = s.print(report, streams.Out)
	switch {
	case recommended:
		return err
	case err == nil:
		return Failed
	case errors.Is(err, suggest.ErrNoYAML):
		return failedError{err}
	}
	return err
}

func (s *Suggest) print(report *suggest.Report, out io.Writer) (err error) {
	var text string
	switch s.Output {
	case "json":
		return printJSON(out, report)
	case "yaml":
		text, err = report.YAML()
	default:
		text, err = report.Text()
		text = terminal.PrintableLines(text)
	}
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

// hint prints the key paths of a recording that has no request for the rules or paths.
func (s *Suggest) hint(report *suggest.Report, errs io.Writer) {
	if report.Requests == 0 {
		return
	}
	fmt.Fprintln(errs, "weir: no limit is recommended. The recording has descriptors with these keys:")
	for _, p := range report.Paths {
		if p.Path == "" {
			continue // descriptors without entries
		}
		fmt.Fprintf(errs, "  --domain %s --path %s  (%d)\n", terminal.Printable(p.Domain), terminal.Printable(p.Path), p.Requests)
	}
}

func (s *Suggest) report(ctx context.Context, streams Streams) (*suggest.Report, error) {
	o := suggest.Options{
		Decide: decide.Options{CalendarMonths: s.Months}, Domain: s.Domain, Unit: descriptors.ParseUnit(s.Window), Algorithm: s.Algorithm,
		Headroom: s.Headroom / 100, MaxBytes: s.MaxMemory << 20,
	}
	var err error
	if len(s.Config) > 0 {
		o.Rules, err = s.load(streams.In)
		if err != nil {
			return nil, err
		}
		if s.Domain != "" && len(s.Path) == 0 && o.Rules.Domain(s.Domain) == nil {
			return nil, fmt.Errorf("the rules have no domain %q: correct --domain", s.Domain)
		}
	}
	for _, text := range s.Path {
		levels, err := descriptors.ParsePath(text)
		if err != nil {
			return nil, fmt.Errorf("--path %s: %w", text, err)
		}
		o.Paths = append(o.Paths, suggest.Path{Domain: s.Domain, Nodes: levels})
	}
	collector, err := suggest.New(o)
	if err != nil {
		return nil, err
	}
	share, err := s.read(ctx, collector, streams)
	if err != nil {
		return nil, err
	}
	return collector.Report(ctx, share)
}

// read reads the recordings into a collector. It returns the share of all keys that they have.
func (s *Suggest) read(ctx context.Context, collector *suggest.Collector, streams Streams) (share float64, err error) {
	lines, err := openRecordings(s.Recordings, streams)
	if err != nil {
		return 0, err
	}
	err = lines.each(ctx, collector.Add)
	if err == nil {
		share, err = lines.sampleShare(s.SampleShare)
	}
	return share, errors.Join(err, lines.finish(streams.Err))
}
