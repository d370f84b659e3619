package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// check reports the faults of rules and settings without serving.
type check struct {
	Settings bool     `help:"Check the settings in the environment. Weir then reads no file and makes no connection for them."`
	Strict   bool     `help:"Treat warnings as faults."`
	Merge    bool     `env:"MERGE_DOMAIN_CONFIG" name:"merge-domain-config" help:"Several files may have the same domain."`
	Months   bool     `env:"USE_CALENDAR_MONTH_RATE_LIMIT" name:"use-calendar-month-rate-limit" help:"The unit month is a calendar month in UTC."`
	Overlay  string   `env:"CONFIG_OVERLAY" placeholder:"FILE|DIR" help:"Check the rules with this overlay."`
	Paths    []string `arg:"" optional:"" name:"path" help:"YAML files, or folders of them, which are checked together. - is standard input."`
}

// Validate reports a missing path.
func (c *check) Validate() error {
	if len(c.Paths) == 0 && !c.Settings {
		return errors.New("want a file or folder, for example: weir check rules.yaml (- reads standard input)")
	}
	return nil
}

// Run prints every fault. Its error is [cli.Failed] if there is one.
func (c *check) Run(to cli.Streams) error {
	if c.Settings {
		if err := c.checkSettings(to); err != nil || len(c.Paths) == 0 {
			return err
		}
	}
	return c.checkRules(to)
}

// checkSettings prints what weir serve would report about the settings of the environment.
func (c *check) checkSettings(to cli.Streams) error {
	var parsed commands
	parser, err := newParser(&parsed)
	if err != nil {
		return err
	}
	if _, err := parser.Parse([]string{"serve"}); err != nil {
		fmt.Fprintln(to.Err, argumentError(err))
		return cli.Failed
	}
	inert, err := settings.InertSet()
	if err != nil {
		fmt.Fprintln(to.Err, err)
		return cli.Failed
	}
	warnings := parsed.Serve.warnings()
	for _, w := range append(inert, warnings...) {
		fmt.Fprintf(to.Err, "%s%s has no effect: %s\n", c.label(), w.Variable, w.Reason)
	}
	if c.Strict && len(inert)+len(warnings) > 0 {
		return cli.Failed
	}
	fmt.Fprintln(to.Out, "ok: settings")
	return nil
}

// label returns what precedes a warning.
func (c *check) label() string {
	if c.Strict {
		return ""
	}
	return "warning: "
}

func (c *check) checkRules(to cli.Streams) error {
	options := rulesfile.Options{MergeDomains: c.Merge, CalendarMonths: c.Months}
	if c.Overlay != "" {
		files, err := (&sources.File{Path: c.Overlay}).Read()
		if err != nil {
			return err
		}
		if options.Overlay, err = rulesfile.ParseOverlay(files...); err != nil {
			fmt.Fprintln(to.Err, err)
			return cli.Failed
		}
	}
	var files []rulesfile.File
	for _, path := range c.Paths {
		found, err := readRules(path, to.In)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	rules, warnings, err := rulesfile.ParseWith(options, files...)
	if err != nil {
		fmt.Fprintln(to.Err, err)
		return cli.Failed
	}
	for _, w := range warnings {
		fmt.Fprintf(to.Err, "%s%v\n", c.label(), w)
	}
	if c.Strict && len(warnings) > 0 {
		return cli.Failed
	}
	domains, n := rules.Counts()
	fmt.Fprintf(to.Out, "ok: rules %d, domains %d, files %d\n", n, domains, len(files))
	return nil
}

// readRules reads a file, a folder, or standard input if path is "-".
func readRules(path string, stdin io.Reader) ([]rulesfile.File, error) {
	if path != "-" {
		return (&sources.File{Path: path}).Read()
	}
	data, err := io.ReadAll(io.LimitReader(stdin, sources.MaxFileSize+1))
	if err == nil && len(data) > sources.MaxFileSize {
		err = fmt.Errorf("larger than %d bytes, the maximum for a rules file", sources.MaxFileSize)
	}
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return []rulesfile.File{{Name: "stdin", Data: data}}, nil
}

type version struct{}

// Run prints the version, the commit and the Go version.
func (version) Run(to cli.Streams) error {
	_, err := fmt.Fprintln(to.Out, "weir", versionOf(), runtime.Version())
	return err
}

// versionOf returns the version of the module, and the commit if the build recorded it.
func versionOf() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text
}
