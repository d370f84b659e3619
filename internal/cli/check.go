package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Check validates rules and settings without serving, and warns about valid rules that probably do
// not have the intended effect.
type Check struct {
	Settings     bool   `help:"Check the settings in the environment. The check reads no file that they name, and connects to nothing."`
	Strict       bool   `help:"Also exit with 1 after a warning."`
	Format       string `short:"o" enum:"text,json,github" default:"text" help:"The format of the output: text, json, or github for annotations in a GitHub workflow."`
	rulesOptions `embed:""`
	Replicas     string   `env:"REPLICAS" placeholder:"NUMBER" help:"The REPLICAS of the server. If neither REPLICAS nor REPLICAS_DNS is set, on_store_error: local causes a warning."`
	ReplicasDNS  string   `env:"REPLICAS_DNS" name:"replicas-dns" placeholder:"HOST" help:"The REPLICAS_DNS of the server."`
	Paths        []string `arg:"" optional:"" name:"path" help:"YAML files or folders of YAML files, checked together. - is standard input."`
}

// A SettingsChecker validates the settings in the environment.
type SettingsChecker func() SettingsReport

// A SettingsReport is the result of a SettingsChecker.
type SettingsReport struct {
	Faults   []string // why weir serve would not start
	Warnings []string
	InMemory bool // counters are in memory, so on_store_error: local has no effect
}

// Help returns the text after the flags in the command's help.
func (*Check) Help() string {
	return `Examples:
  weir check rules.yaml
  weir check --strict --format=github deploy/rules
  weir check --settings

The exit code is 1 after a fault, an unreadable file or, with --strict, a warning. It is 2 after invalid arguments, or if the output cannot
be written. Otherwise it is 0.`
}

// Validate reports a missing path and two readers of standard input.
func (c *Check) Validate() error {
	if len(c.Paths) == 0 && !c.Settings {
		return errors.New("needs a file or folder, for example: weir check rules.yaml (- reads standard input)")
	}
	return c.checkStdin(c.Paths)
}

// Run prints all faults and warnings. It returns [Failed] after a fault, or after a warning if
// Strict is set.
func (c *Check) Run(streams Streams, settings SettingsChecker) error {
	report := &checkReport{strict: c.Strict, diagnostics: []diagnostic{}, lines: map[string][][]byte{}}
	options := rulesfile.Options{MergeDomains: c.Merge, CalendarMonths: c.Months, ReplicasUnknown: c.Replicas == "" && c.ReplicasDNS == ""}
	if c.Settings {
		found := settings()
		options.ReplicasUnknown = options.ReplicasUnknown && !found.InMemory
		c.addSettings(report, found)
	}
	if len(c.Paths) > 0 {
		c.addRules(report, streams.In, options)
	}
	if err := report.print(streams, c.Format); err != nil {
		return err
	}
	if report.fails() {
		return Failed
	}
	return nil
}

func (c *Check) addSettings(report *checkReport, found SettingsReport) {
	for _, message := range found.Faults {
		report.add(diagnostic{Severity: fault, ID: "setting", Message: message})
	}
	for _, message := range found.Warnings {
		report.add(diagnostic{Severity: warning, ID: "setting", Message: message})
	}
	if !report.fails() {
		report.results = append(report.results, "ok: settings")
	}
}

func (c *Check) addRules(report *checkReport, stdin io.Reader, options rulesfile.Options) {
	if c.Overlay != "" {
		files, err := readRules(stdin, c.Overlay)
		report.addTexts(files)
		if err == nil {
			options.Overlay, err = rulesfile.ParseOverlay(files...)
		}
		if err != nil {
			report.addError(err)
			return
		}
	}
	files, err := readRules(stdin, c.Paths...)
	if err != nil {
		report.addError(err)
		return
	}
	report.addTexts(files)
	rules, warnings, err := rulesfile.ParseWith(options, files...)
	if err != nil {
		report.addError(err)
		return
	}
	for _, w := range warnings {
		report.addAt(w, warning)
	}
	if len(warnings) == 0 || !c.Strict {
		domains, n := rules.Counts()
		report.results = append(report.results, fmt.Sprintf("ok: rules %d, domains %d, files %d", n, domains, len(files)))
	}
}
