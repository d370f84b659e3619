package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/settings"
)

// checkSettings validates the environment as weir serve does.
func checkSettings() cli.SettingsReport {
	var parsed commands
	parser, err := newParser(&parsed)
	if err != nil {
		return cli.SettingsReport{Fault: err.Error()}
	}
	if _, err := parser.Parse([]string{"serve"}); err != nil {
		return cli.SettingsReport{Fault: argumentError(err, nil)}
	}
	inert, err := settings.InertSet()
	if err != nil {
		return cli.SettingsReport{Fault: err.Error()}
	}
	report := cli.SettingsReport{InMemory: parsed.Serve.BackendType == settings.Memory}
	for _, w := range append(inert, parsed.Serve.warnings()...) {
		report.Warnings = append(report.Warnings, cli.Ineffective(w))
	}
	return report
}

type version struct{}

func (version) Run(to cli.Streams) error {
	_, err := fmt.Fprintln(to.Out, "weir", versionOf(), runtime.Version())
	return err
}

// versionOf returns the module version, with the commit if the build recorded it.
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
