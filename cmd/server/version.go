package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/weir-rls/weir/internal/cli"
)

type version struct{}

func (version) Run(streams cli.Streams) error {
	_, err := fmt.Fprintln(streams.Out, "weir", buildVersion(), runtime.Version())
	return err
}

// buildVersion returns the module version, with the commit if the build recorded it.
func buildVersion() string {
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
