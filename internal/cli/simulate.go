package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/internal/offline/simulate/report"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

// Simulate runs rules over recordings, or over a synthetic load.
type Simulate struct {
	rulesFlags       `embed:""`
	allOrNothingFlag `embed:""`

	Clients     []string `default:"drop,obey,hammer" enum:"drop,obey,hammer" placeholder:"MODEL" help:"How clients react to a denial: drop, obey, hammer. drop is always simulated."`
	SampleShare float64  `placeholder:"FRACTION" help:"The fraction of all keys that the recording contains, such as 0.1. The results then include estimates for all traffic."`
	Synthetic   string   `placeholder:"LOAD" help:"A load instead of recordings, such as 'poisson rate=50 users=1000 zipf=1.1 duration=1h seed=1 descriptor=user_id={user}'."`
	Write       string   `placeholder:"FILE" help:"With --synthetic: also write the load as a recording, compressed if the name ends with .zst. - is standard output, and then nothing is simulated."`
	Output      string   `short:"o" enum:"text,json" default:"text" help:"The format of the output: text or json."`
	HTML        string   `name:"html" placeholder:"FILE" help:"Also write a report with charts: one HTML file that needs no network."`

	Recordings []string `arg:"" optional:"" name:"recording" help:"Recordings, plain or compressed with zstd, or folders of RECORD_PATH, read as one. - is standard input."`
}

// Help returns the text after the flags in the command's help.
func (*Simulate) Help() string {
	return `Examples:
  weir simulate --config rules.yaml recording.ndjson.zst
  weir simulate --config rules.yaml -o json /var/lib/weir/recording
  weir simulate --config rules.yaml --synthetic 'poisson rate=50 users=1000 zipf=1.1 descriptor=user_id={user}'
  weir simulate --config rules.yaml --html report.html recording.ndjson.zst

The exit code is 0, or 2 after an error. Lines that cannot be replayed are skipped, counted and reported on standard error.`
}

// Validate reports missing and conflicting arguments.
func (s *Simulate) Validate() error {
	switch {
	case len(s.Config) == 0:
		return errors.New("needs --config with the rules, for example: weir simulate --config rules.yaml recording.ndjson")
	case len(s.Recordings) == 0 && s.Synthetic == "":
		return errors.New("needs a recording, or --synthetic with a load (- is standard input)")
	case len(s.Recordings) > 0 && s.Synthetic != "":
		return errors.New("--synthetic cannot be used with recordings: remove one of them")
	case s.Write != "" && s.Synthetic == "":
		return errors.New("--write needs --synthetic with the load to write")
	case s.Write == "-" && s.HTML != "":
		return errors.New("--html cannot be used with --write -, which simulates nothing: write to a file")
	case s.HTML == "-":
		return errors.New("--html cannot be standard output: name a file")
	case s.Write != "" && filepath.Clean(s.Write) == filepath.Clean(s.HTML):
		return errors.New("--html and --write name one file: name two")
	case s.SampleShare != 0 && !validShare(s.SampleShare):
		return fmt.Errorf("--sample-share must be from %v to 1", minShare)
	}
	for flag, path := range map[string]string{"--html": s.HTML, "--write": s.Write} {
		if path == "" || path == "-" {
			continue
		}
		err := cmp.Or(checkWritable(path), checkNoInput(path, slices.Concat(s.Config, s.Recordings, []string{s.Overlay})...))
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return s.checkStdin(s.Config, input{"the recordings", s.Recordings})
}

// Run prints the result.
func (s *Simulate) Run(ctx context.Context, streams Streams) error {
	result, err := s.simulate(ctx, streams)
	if err == nil && result != nil && s.HTML != "" {
		err = writeAtomically(s.HTML, func(w io.Writer) error { return report.Write(w, result) })
		if err != nil {
			err = fmt.Errorf("--html: %w", err)
		}
	}
	if err != nil || result == nil {
		return err
	}
	return printResult(streams.Out, s.Output, result, func() string { return simulationText(result, colored(streams.Out)) })
}

func (s *Simulate) simulate(ctx context.Context, streams Streams) (*simulate.Result, error) {
	rules, err := s.load(streams.In)
	if err != nil {
		return nil, err
	}
	options := simulate.Options{Replay: replay.Options{Decide: decide.Options{CalendarMonths: s.Months, AllOrNothing: s.AllOrNothing}}}
	for _, m := range s.Clients {
		options.Clients = append(options.Clients, simulate.Model(m))
	}
	if s.Synthetic != "" {
		options.SampleShare = func() (float64, error) { return cmp.Or(s.SampleShare, 1), nil }
		return s.synthetic(ctx, rules, options, streams)
	}
	r, err := openRecordings(s.Recordings, streams)
	if err != nil {
		return nil, err
	}
	options.SampleShare = func() (float64, error) { return r.sampleShare(s.SampleShare) }
	result, err := simulate.Run(ctx, rules, r, options)
	err = errors.Join(err, r.finish(streams.Err))
	if err != nil {
		return nil, err
	}
	result.Lines = r.Lines()
	result.Skipped = append(result.Skipped, r.Skipped()...)
	return result, nil
}

// synthetic simulates a load, or writes it to standard output. Then the result is nil.
func (s *Simulate) synthetic(ctx context.Context, rules *descriptors.Rules, o simulate.Options, streams Streams) (*simulate.Result, error) {
	load, err := simulate.ParseSynthetic(s.Synthetic, rules)
	if err != nil {
		return nil, fmt.Errorf("--synthetic: %w", err)
	}
	if s.Write == "-" {
		return nil, copyLoad(ctx, &recordedLoad{Synthetic: load, to: bufio.NewWriter(streams.Out)})
	}
	var result *simulate.Result
	if s.Write == "" {
		result, err = simulate.Run(ctx, rules, load, o)
	} else {
		err = writeRecording(s.Write, func(w io.Writer) (err error) {
			recorded := &recordedLoad{Synthetic: load, to: bufio.NewWriter(w)}
			result, err = simulate.Run(ctx, rules, recorded, o)
			return cmp.Or(err, recorded.to.Flush()) // both have the error of w
		})
	}
	if err != nil {
		return nil, err
	}
	result.Synthetic = load.String()
	return result, nil
}

// copyLoad writes a load without simulating it.
func copyLoad(ctx context.Context, load *recordedLoad) error {
	var err error
	for err == nil && ctx.Err() == nil {
		err = load.Next(&recording.Line{})
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return cmp.Or(err, context.Cause(ctx), load.to.Flush()) // the first and the last have the error of the output
}

// A recordedLoad writes each request of a load as a line of a recording.
type recordedLoad struct {
	*simulate.Synthetic
	to   *bufio.Writer
	line []byte
}

// Next implements [simulate.LineReader].
func (s *recordedLoad) Next(into *recording.Line) error {
	if err := s.Synthetic.Next(into); err != nil {
		return err
	}
	s.line = recording.AppendLine(s.line[:0], into)
	_, err := s.to.Write(s.line)
	return err
}
