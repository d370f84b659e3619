package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/settings"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

// docs/settings.md is made of the settings themselves, so that it cannot say something else.
func TestTheTableOfSettingsIsThatOfTheCode(t *testing.T) {
	const path = "../../docs/settings.md"
	want := settingsTable(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the code says (%v): go test ./cmd/server -run Table -update", path, err)
	}
}

func settingsTable(t *testing.T) string {
	t.Helper()
	var cli commands
	parser, err := newParser(&cli)
	if err != nil {
		t.Fatal(err)
	}
	byGroup := map[string][]*kong.Flag{}
	for _, node := range parser.Model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, f := range node.Flags {
			if f.Group != nil {
				byGroup[f.Group.Key] = append(byGroup[f.Group.Key], f)
			}
		}
	}
	b := &strings.Builder{}
	fmt.Fprint(b, "# Settings\n\n<!-- Made of internal/settings by a test: go test ./cmd/server -run Table -update -->\n\n"+
		"Each is an environment variable, and a flag of `weir serve`. The flag goes before the variable.\n"+
		"The Go runtime's own variables work as ever. Without `GOGC` garbage may be 128 MB or twice what is live, but not\n"+
		"above 512 MB, or half of what is live; without `GOMEMLIMIT` the limit is nine tenths of the cgroup's, if it has one\n"+
		"(`AUTOMEMLIMIT` sets another part, or `off`).\n")
	for _, g := range settings.Groups {
		fmt.Fprintf(b, "\n## %s\n\n| variable | flag | default | |\n|---|---|---|---|\n", strings.TrimSuffix(g.Title, ":"))
		for _, f := range byGroup[g.Key] {
			flag := "--" + f.Name
			if f.PlaceHolder != "" {
				flag += "=" + f.PlaceHolder
			}
			fmt.Fprintf(b, "| `%s` | `%s` | %s | %s |\n", strings.Join(f.Envs, " "), cell(flag), code(f.Default), cell(f.Help))
		}
	}
	fmt.Fprint(b, "\n## Without effect\n\nVariables of envoyproxy/ratelimit that are accepted, and have nothing left to set. "+
		"Weir says so at start, once for each that is set.\n\n| variable | why |\n|---|---|\n")
	for _, v := range settings.Inert {
		fmt.Fprintf(b, "| `%s` | %s |\n", v.Variable, v.Why)
	}
	return b.String()
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}
