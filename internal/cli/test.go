package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/offline/rulestest"
	"github.com/weir-rls/weir/internal/terminal"
)

// Test runs tests of rules, or writes a first file of them.
type Test struct {
	Only        string  `name:"run" placeholder:"REGEXP" help:"Run only the tests whose names match."`
	Output      string  `short:"o" enum:"text,json,junit" default:"text" help:"The format of the output: text, json or junit."`
	JUnit       string  `name:"junit" placeholder:"FILE" help:"Also write the results to a file as JUnit XML."`
	Coverage    bool    `help:"Print how often each limit was reached, and how often it denied."`
	MinCoverage float64 `placeholder:"PERCENT" help:"Fail if the tests cover a smaller percentage of the limits. A test covers a limit if the limit denies one of its requests."`

	Init    string `placeholder:"RULES" help:"Write a first test file for these rules to FILE, which must not exist, or to standard output."`
	Overlay string `placeholder:"FILE|DIR" help:"With --init: the overlay of the rules."`
	Merge   bool   `name:"merge-domain-config" help:"With --init: accept several files with the same domain, and merge their rules."`
	Months  bool   `name:"use-calendar-month-rate-limit" help:"With --init: make the unit month a calendar month in UTC instead of 30 days."`

	Files []string `arg:"" optional:"" name:"file" help:"Test files."`
}

// Help returns the text after the flags in the command's help.
func (*Test) Help() string {
	return `Examples:
  weir test rules_test.yaml
  weir test --coverage --min-coverage 100 tests/*.yaml
  weir test --init rules.yaml rules_test.yaml

The exit code is 0 if every test passed, 1 if a test failed or the coverage is too low, and 2 after an error.`
}

// Validate reports arguments that have no meaning together.
func (t *Test) Validate() error {
	switch {
	case t.Init == "" && len(t.Files) == 0:
		return errors.New("needs a test file, for example: weir test rules_test.yaml (weir test --init rules.yaml writes a first one)")
	case t.Init == "" && (t.Overlay != "" || t.Merge || t.Months):
		return errors.New("--overlay, --merge-domain-config and --use-calendar-month-rate-limit need --init: in a test file, write " +
			"them under 'overlay' and 'options'")
	case t.Init != "" && len(t.Files) > 1:
		return errors.New("--init writes one file: name one")
	case t.JUnit == "-":
		return errors.New("--junit cannot be standard output: use -o junit, or name a file")
	case !(t.MinCoverage >= 0 && t.MinCoverage <= 100): // rejects NaN too
		return errors.New("--min-coverage must be from 0 to 100")
	}
	_, err := compile("--run", t.Only)
	return err
}

// Run runs the tests of all files. Its error is [Failed] if a test fails or the coverage is too
// low, and [Error] if a file has a fault, which it has printed.
func (t *Test) Run(ctx context.Context, streams Streams) error {
	if t.Init != "" {
		return t.writeFirst(streams)
	}
	var suites []*rulestest.Suite
	inputs := slices.Clone(t.Files)
	unusable := false
	for _, name := range t.Files {
		suite, err := rulestest.Load(name)
		if err != nil {
			printError(err, streams.Err)
			unusable = true
			continue
		}
		suites = append(suites, suite)
		inputs = append(inputs, suite.Inputs...)
	}
	if unusable {
		return Error
	}
	if err := checkNoInput(t.JUnit, inputs...); err != nil {
		return fmt.Errorf("--junit: %w", err)
	}
	report := &rulestest.Report{Coverage: &rulestest.Coverage{}}
	options := rulestest.Options{Only: regexp.MustCompile(t.Only), Coverage: report.Coverage}
	for _, suite := range suites {
		results, err := suite.Run(ctx, options)
		report.Results = append(report.Results, results...)
		if err != nil {
			return err
		}
	}
	if len(report.Results) == 0 {
		return fmt.Errorf("no test has a name that matches %q: correct --run", t.Only)
	}
	for _, result := range report.Results {
		for _, w := range result.Warnings {
			fmt.Fprintf(streams.Err, "%s:%d: warning: no rule limits %s: %s (write 'reason: no_rule' under expect if this is right)\n",
				terminal.Printable(result.File), w.Line, terminal.Printable(w.Request), terminal.Printable(w.Reason))
		}
	}
	return t.print(report, streams)
}

func (t *Test) print(report *rulestest.Report, streams Streams) error {
	if t.JUnit != "" {
		if err := writeFile(t.JUnit, os.O_CREATE|os.O_TRUNC, report.WriteJUnit); err != nil {
			return err
		}
	}
	var err error
	if t.Output == "junit" {
		err = report.WriteJUnit(streams.Out)
	} else {
		err = printResult(streams.Out, t.Output, report, func() string { return t.text(report) })
	}
	if err != nil {
		return err
	}
	low := report.Coverage.Percent() < t.MinCoverage
	if low {
		fmt.Fprintf(streams.Err, "weir: the coverage is %.1f%%, less than %g%%: weir test --coverage lists the limits\n",
			report.Coverage.Percent(), t.MinCoverage)
	}
	if _, failed := report.Counts(); failed > 0 || low {
		return Failed
	}
	return nil
}

func (t *Test) text(r *rulestest.Report) string {
	var b strings.Builder
	for _, result := range r.Results {
		if !result.Passed() {
			fmt.Fprintf(&b, "FAIL %s:%d: %s\n", terminal.Printable(result.File), result.Line, terminal.Printable(result.Name))
			for line := range strings.Lines(terminal.PrintableLines(result.FailureText())) {
				b.WriteString("  " + line)
			}
		}
	}
	if t.Coverage {
		printCoverage(&b, r.Coverage)
	}
	passed, failed := r.Counts()
	covered, limits := r.Coverage.Counts()
	word := "ok"
	if failed > 0 {
		word = "FAIL"
	}
	fmt.Fprintf(&b, "%s: tests %d, failed %d, requests %d, coverage %.0f%% (%d of %d limits)\n",
		word, passed+failed, failed, r.Requests(), r.Coverage.Percent(), covered, limits)
	return b.String()
}

func printCoverage(b *strings.Builder, c *rulestest.Coverage) {
	rows := []string{"SOURCE\tDOMAIN\tRULE\tLIMIT\tREACHED\tDENIED\t"}
	for _, l := range c.Limits() {
		limit, denied, note := l.Limit, fmt.Sprint(l.Denied), ""
		if l.Unlimited {
			limit, denied = "unlimited", "-"
		}
		if !l.Covered() {
			note = "not covered"
		}
		rows = append(rows, terminal.Row(l.Source, l.Domain, l.Rule, limit, l.Reached, denied, note))
	}
	b.WriteString(terminal.Table(rows...))
}

// writeFirst writes a first test file.
func (t *Test) writeFirst(streams Streams) error {
	options := rulestest.InitOptions{Rules: t.Init, Overlay: t.Overlay, MergeDomains: t.Merge, CalendarMonths: t.Months}
	file := ""
	if len(t.Files) > 0 {
		file = t.Files[0]
	}
	text, err := rulestest.Init(options, file)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
	if file == "" {
		return write(streams.Out)
	}
	if err := writeFile(file, os.O_CREATE|os.O_EXCL, write); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("%s exists: remove it, or choose another name", file)
		}
		return err
	}
	fmt.Fprintf(streams.Err, "wrote %s: run weir test %s\n", file, file)
	return nil
}
