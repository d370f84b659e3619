package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// check finds the faults of rules without serving them.
type check struct {
	Strict  bool     `help:"Fail on warnings too."`
	Merge   bool     `env:"MERGE_DOMAIN_CONFIG" name:"merge-domain-config" help:"Several files may have the same domain."`
	Overlay string   `env:"CONFIG_OVERLAY" placeholder:"FILE|DIR" help:"The overlay that the rules are to be served with."`
	Paths   []string `arg:"" name:"path" help:"YAML files, or folders of them. All that is named is checked together."`
}

// Run prints every fault, and fails if there is one.
func (c *check) Run(to streams) error {
	options := rulesfile.Options{MergeDomains: c.Merge}
	if c.Overlay != "" {
		files, err := (&sources.File{Path: c.Overlay}).Read()
		if err != nil {
			return err
		}
		if options.Overlay, err = rulesfile.ParseOverlay(files...); err != nil {
			fmt.Fprintln(to.err, err)
			return errSaid
		}
	}
	var files []rulesfile.File
	for _, path := range c.Paths {
		found, err := (&sources.File{Path: path}).Read()
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	rules, warnings, err := rulesfile.ParseWith(options, files...)
	if err != nil {
		fmt.Fprintln(to.err, err)
		return errSaid
	}
	for _, w := range warnings {
		fmt.Fprintf(to.err, "warning: %v\n", w)
	}
	if c.Strict && len(warnings) > 0 {
		return errSaid
	}
	domains, n := rules.Counts()
	fmt.Fprintf(to.out, "ok: rules %d, domains %d, files %d\n", n, domains, len(files))
	return nil
}

type version struct{}

// Run prints the version, the commit and the version of Go.
func (version) Run(to streams) error {
	_, err := fmt.Fprintln(to.out, "weir", versionOf(), runtime.Version())
	return err
}

// versionOf is the version that the module was built as, with the commit where the build knows it.
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
