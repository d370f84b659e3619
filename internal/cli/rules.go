package cli

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// rulesFlags are the flags of commands that read rules as the server does.
type rulesFlags struct {
	Config  []string `sep:"none" placeholder:"FILE|DIR" help:"The rules: a YAML file or a folder of YAML files. - is standard input. It may repeat."`
	Overlay string   `env:"CONFIG_OVERLAY" placeholder:"FILE|DIR" help:"The overlay of the rules."`
	Merge   bool     `env:"MERGE_DOMAIN_CONFIG" name:"merge-domain-config" help:"Several files may have the same domain."`
	Months  bool     `env:"USE_CALENDAR_MONTH_RATE_LIMIT" name:"use-calendar-month-rate-limit" help:"The unit month is a calendar month in UTC."`
}

// fromStdin reports whether the rules or the overlay are standard input.
func (f *rulesFlags) fromStdin() bool { return slices.Contains(f.Config, "-") || f.Overlay == "-" }

// load reads the rules and the overlay. The error names file, line and remedy.
func (f *rulesFlags) load(stdin io.Reader) (*descriptors.Rules, error) {
	return f.loadFrom(f.Config, stdin)
}

// loadFrom is load with the rules at other paths.
func (f *rulesFlags) loadFrom(paths []string, stdin io.Reader) (*descriptors.Rules, error) {
	options := rulesfile.Options{MergeDomains: f.Merge, CalendarMonths: f.Months}
	if f.Overlay != "" {
		files, err := readRules(f.Overlay, stdin)
		if err != nil {
			return nil, err
		}
		if options.Overlay, err = rulesfile.ParseOverlay(files...); err != nil {
			return nil, err
		}
	}
	var files []rulesfile.File
	for _, path := range paths {
		found, err := readRules(path, stdin)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	rules, _, err := rulesfile.ParseWith(options, files...)
	return rules, err
}

// readRules reads a file, a folder, or standard input if path is "-". The names of files in a folder begin with path.
func readRules(path string, stdin io.Reader) ([]rulesfile.File, error) {
	if path != "-" {
		files, err := (&sources.File{Path: path}).Read()
		if info, e := os.Stat(path); e == nil && info.IsDir() {
			for i := range files {
				files[i].Name = filepath.Join(path, files[i].Name)
			}
		}
		return files, ReadError(err)
	}
	data, err := readAll(stdin, "standard input", sources.MaxFileSize)
	if err != nil {
		return nil, err
	}
	return []rulesfile.File{{Name: "stdin", Data: data}}, nil
}
