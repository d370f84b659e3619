package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-rls/weir/internal/offline/rulesdiff"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

// Diff compares two sets of rules over recorded requests.
type Diff struct {
	Against []string `sep:"none" placeholder:"RECORDING" help:"A recording of requests, plain or compressed with zstd, or a folder of RECORD_PATH. - is standard input. May be repeated. Arguments after OLD and NEW are recordings too."`
	FailIf  []string `name:"fail-if" sep:"none" placeholder:"CONDITION" help:"Exit with 2 only if a condition holds, such as 'newly_denied_keys > 10'. May be repeated."`
	Output  string   `short:"o" enum:"text,json,markdown" default:"text" help:"The format of the output: text, json, or markdown for a comment on a pull request."`
	Worst   int      `default:"10" placeholder:"N" help:"How many keys to list for each limit, worst first. 0: none, for a public comment."`
	MaxKeys int      `default:"1000000" placeholder:"N" help:"How many keys to count. If there are more, the counts of keys are lower bounds."`

	OldOverlay       string `name:"old-overlay" placeholder:"FILE|DIR" help:"The overlay of the old rules. Default: the overlay of the new rules."`
	rulesOptions     `embed:""`
	allOrNothingFlag `embed:""`

	Old        string   `arg:"" optional:"" placeholder:"OLD" help:"The old rules: a YAML file or a folder of YAML files."`
	New        string   `arg:"" optional:"" placeholder:"NEW" help:"The new rules."`
	Recordings []string `arg:"" optional:"" name:"recording" help:"Further recordings."`
}

// Exit codes of [Diff]. They follow the convention of similar tools in pipelines, in which changes
// are not an error, and so differ from those of other commands.
const (
	DiffFault   Exit = 1 // an error, such as invalid arguments
	diffChanges Exit = 2
)

// Help returns the text after the flags in the command's help.
func (*Diff) Help() string {
	return `Examples:
  weir diff old.yaml new.yaml --against day.ndjson.zst
  weir diff old/ new/ --against monday.ndjson.zst tuesday.ndjson.zst -o json
  weir diff old.yaml new.yaml --against day.ndjson.zst -o markdown --fail-if 'newly_denied_keys > 10'

The exit code is 0 if no verdict changes, 2 if a verdict changes or a new rule cannot be compared, and 1 after an error.
With --fail-if, it is 2 if a condition holds, and otherwise 0.`
}

// Validate reports missing rules and two readers of standard input.
func (d *Diff) Validate() error {
	if d.New == "" {
		return errors.New("needs two sets of rules, for example: weir diff old.yaml new.yaml --against day.ndjson.zst")
	}
	paths := append([]string{d.Old, d.New, d.Overlay, d.OldOverlay}, d.allRecordings()...)
	return onlyOneStdin(input{"the rules, the overlays and the recordings", paths})
}

// allRecordings returns the paths of all recordings.
func (d *Diff) allRecordings() []string { return slices.Concat(d.Against, d.Recordings) }

// Run prints the comparison. The exit code is 2 if there are changes, and 1 after an error.
func (d *Diff) Run(ctx context.Context, streams Streams) error {
	report, conditions, err := d.compare(ctx, streams)
	if err == nil {
		text := report.Text
		if d.Output == "markdown" {
			text = report.Markdown
		}
		err = printResult(streams.Out, d.Output, report, text)
	}
	if err != nil {
		return failedError{err}
	}
	if len(conditions) == 0 && report.Differs() {
		return diffChanges
	}
	failed, undecided := false, false
	for _, c := range conditions {
		switch holds, decided := c.Holds(report); {
		case holds:
			fmt.Fprintln(streams.Err, "weir: --fail-if:", c)
			failed = true
		case !decided:
			fmt.Fprintf(streams.Err, "weir: --fail-if: there are more than %d keys, so %q cannot be decided: raise --max-keys\n", d.MaxKeys, c)
			undecided = true
		}
	}
	switch {
	case failed:
		return diffChanges
	case undecided:
		return DiffFault
	}
	return nil
}

func (d *Diff) compare(ctx context.Context, streams Streams) (*rulesdiff.Report, []rulesdiff.Condition, error) {
	var conditions []rulesdiff.Condition
	for _, text := range d.FailIf {
		c, err := rulesdiff.ParseCondition(text)
		if err != nil {
			return nil, nil, fmt.Errorf("--fail-if: %w", err)
		}
		conditions = append(conditions, c)
	}
	switch {
	case len(d.Against) == 0:
		return nil, nil, errors.New("diff needs --against with a recording, for example: weir diff old.yaml new.yaml --against day.ndjson.zst")
	case d.Worst < 0 || d.MaxKeys < 1:
		return nil, nil, errors.New("--worst must be at least 0, and --max-keys at least 1")
	}
	before, after, err := d.rules(streams.In)
	if err != nil {
		return nil, nil, err
	}
	options := rulesdiff.Options{MaxKeys: d.MaxKeys, Worst: d.Worst}
	if d.Worst == 0 {
		options.Worst = -1
	}
	options.Replay.Decide = decide.Options{CalendarMonths: d.Months, AllOrNothing: d.AllOrNothing}
	comparison := rulesdiff.New(before, after, options)
	skipped, err := d.read(ctx, comparison, streams)
	if err != nil {
		return nil, nil, err
	}
	report := comparison.Report()
	report.Skipped = append([]recording.FileSkipCount{}, skipped...)
	return report, conditions, nil
}

// rules reads the old and the new rules. An overlay that both have is read once.
func (d *Diff) rules(stdin io.Reader) (before, after *descriptors.Rules, err error) {
	overlay, err := readOverlay(stdin, d.Overlay)
	if err != nil {
		return nil, nil, fmt.Errorf("the overlay: %w", err)
	}
	oldOverlay := overlay
	if d.OldOverlay != "" {
		oldOverlay, err = readOverlay(stdin, d.OldOverlay)
		if err != nil {
			return nil, nil, fmt.Errorf("the old overlay: %w", err)
		}
	}
	before, err = d.loadWith(oldOverlay, stdin, d.Old)
	if err != nil {
		return nil, nil, fmt.Errorf("the old rules: %w", err)
	}
	after, err = d.loadWith(overlay, stdin, d.New)
	if err != nil {
		return nil, nil, fmt.Errorf("the new rules: %w", err)
	}
	return before, after, nil
}

// read compares all requests of the recordings. It returns the lines that it skipped.
func (d *Diff) read(ctx context.Context, comparison *rulesdiff.Comparison, streams Streams) ([]recording.FileSkipCount, error) {
	in, err := openRecordings(d.allRecordings(), streams)
	if err != nil {
		return nil, err
	}
	err = in.each(ctx, comparison.Add)
	if err == nil {
		_, err = in.recordedShare() // only the error, because a comparison estimates nothing
	}
	return in.Skipped(), errors.Join(err, in.finish(streams.Err))
}
