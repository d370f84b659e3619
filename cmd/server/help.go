package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/settings"
)

// helpArgs rewrites common spellings of help and version to those of kong. It reports whether
// --help=all was given. Started as ratelimit, -v is a flag to ignore, and not a request.
func helpArgs(args []string, asRatelimit bool) (_ []string, all bool) {
	if len(args) == 0 {
		return args, false
	}
	switch first := args[0]; {
	case first == "help":
		args = append(slices.Clone(args[1:]), "--help")
	case !asRatelimit && (first == "-v" || first == "--version"):
		args = []string{"version"}
	}
	if i := slices.Index(args, "--help=all"); i >= 0 {
		args, all = slices.Clone(args), true
		args[i] = "--help"
	}
	return args, all
}

// help prints the most common settings of serve, or all of them if all is true. Other commands use
// kong's printer.
func help(all bool) kong.HelpPrinter {
	return func(o kong.HelpOptions, ctx *kong.Context) error {
		node := ctx.Selected()
		if all || node == nil || node.Name != "serve" {
			return kong.DefaultHelpPrinter(o, ctx)
		}
		return printBasic(ctx.Stdout, node)
	}
}

func printBasic(w io.Writer, node *kong.Node) error {
	var b strings.Builder
	b.WriteString(`Usage: weir [serve] [--config=FILE] [flags]

Serve the rate limit service for Envoy on :8081, and /healthcheck, /metrics and /json on :8080.

Settings that most users need, as flag and environment variable:
`)
	byVariable := map[string]*kong.Flag{}
	for _, f := range node.Flags {
		for _, variable := range f.Envs {
			byVariable[variable] = f
		}
	}
	for _, variable := range settings.Basic {
		f := byVariable[variable]
		name := "--" + f.Name
		if !f.IsBool() {
			name += "=" + strings.Trim(f.FormatPlaceHolder(), `"`)
		}
		fmt.Fprintf(&b, "\n  %s (%s)\n", name, variable)
		for _, line := range wrap(f.Help, 74) {
			fmt.Fprintf(&b, "      %s\n", line)
		}
	}
	b.WriteString(`
Examples:
  weir --config rules.yaml                                   counters in memory, for one replica
  weir --config rules.yaml --redis-url localhost:6379        counters in Redis, for several
  weir --config rules.yaml --host=127.0.0.1 --grpc-host=127.0.0.1      for this machine only

weir serve --help=all shows all settings. weir check rules.yaml checks rules.
weir explain --config rules.yaml user_id=42 shows which limits apply to a request, and why.
`)
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap breaks text into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
