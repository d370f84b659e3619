package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

var update = flag.Bool("update", false, "write docs/settings.md")

// docs/settings.md is generated from the settings.
func TestSettingsTableMatchesTheCode(t *testing.T) {
	const path = "../../docs/settings.md"
	want := settingsTable(t)
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): go test ./cmd/server -run Table -update", path, err)
	}
}

func settingsTable(t *testing.T) string {
	t.Helper()
	var cli commands
	parser, err := newParser(&cli)
	must.Succeed(t, err)
	byGroup := map[string][]*kong.Flag{}
	helps := map[string]string{} // by variable
	for _, node := range parser.Model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, f := range node.Flags {
			if f.Group != nil {
				byGroup[f.Group.Key] = append(byGroup[f.Group.Key], f)
			}
			for _, variable := range f.Envs {
				helps[variable] = f.Help
			}
		}
	}
	ofRatelimit := must.Read(t, "../../internal/settings/testdata/ratelimit.txt")
	shared := strings.Fields(string(ofRatelimit))
	b := &strings.Builder{}
	fmt.Fprint(b, "# Settings\n\n<!-- Generated from internal/settings by go test ./cmd/server -run Table -update -->\n\n"+
		"This page is for operators who configure Weir. It lists every setting with its default and meaning. Most installations set only these:\n\n")
	for i, variable := range settings.Basic {
		if i > 0 {
			fmt.Fprint(b, ", ")
		}
		fmt.Fprintf(b, "`%s`", variable)
	}
	fmt.Fprint(b, ".\n\n"+
		"Each setting is an environment variable and a flag of `weir serve`, and a flag takes precedence over its variable. Durations need a unit, such as\n"+
		"`15ms`, `2s` or `1h30m`. `weir serve --help=all` prints the same list.\n\n"+
		"A current envoyproxy/ratelimit has the same settings, except those marked †. [switching.md](switching.md) lists the other differences.\n\n"+
		"To check the variables of an environment before you start Weir, run `weir check --settings`. At startup, Weir warns about an unknown variable that is one\n"+
		"typing mistake away from a setting, or that begins like a setting, such as `XDS_CLIENT_`.\n")
	for _, g := range settings.Groups {
		fmt.Fprintf(b, "\n## %s\n\n| variable | flag | default | meaning |\n|---|---|---|---|\n", strings.TrimSuffix(g.Title, ":"))
		for _, f := range byGroup[g.Key] {
			flag := "--" + f.Name
			if f.PlaceHolder != "" {
				flag += "=" + f.PlaceHolder
			}
			otherwise, meaning := defaultOf(f)
			if first := strings.Replace(f.Envs[0], "REDIS_PERSECOND_", "REDIS_", 1); first != f.Envs[0] && strings.ReplaceAll(f.Help, "REDIS_PERSECOND", "REDIS") == helps[first] {
				meaning = "As " + first + ", for the second Redis."
			}
			if !slices.ContainsFunc(f.Envs, func(variable string) bool { return slices.Contains(shared, variable) }) {
				meaning = "† " + meaning
			}
			fmt.Fprintf(b, "| `%s` | `%s` | %s | %s |\n", strings.Join(f.Envs, " "), cell(flag), otherwise, prose(meaning))
		}
	}
	fmt.Fprint(b, "\n## The Go runtime\n\nThe Go runtime's variables apply too. If `GOGC` is unset, Weir limits garbage to 512 MiB or half of the live bytes, whichever is more. If\n"+
		"`GOMEMLIMIT` is unset, Weir sets it to 0.9 of the cgroup's memory. `AUTOMEMLIMIT=0.8` sets another fraction, and `AUTOMEMLIMIT=off` no limit.\n"+
		"Weir does not start with another value of `AUTOMEMLIMIT`, such as `90%`.\n"+
		"\n## Without effect\n\nWeir accepts these variables of envoyproxy/ratelimit, so that a deployment need not change. It ignores them, "+
		"and logs each one that is set.\n\n| variables | why |\n|---|---|\n")
	var reasons []string
	variables := map[string][]string{}
	for _, v := range settings.IgnoredVariables {
		if variables[v.Why] == nil {
			reasons = append(reasons, v.Why)
		}
		variables[v.Why] = append(variables[v.Why], "`"+v.Variable+"`")
	}
	for _, why := range reasons {
		fmt.Fprintf(b, "| %s | %s |\n", strings.Join(variables[why], ", "), why)
	}
	return b.String()
}

// pageName matches the name of a page in a help text.
var pageName = regexp.MustCompile(`\bdocs/([a-z-]+\.md)`)

// codeName matches the name of a setting, a metric or a YAML key in a help text, with its value.
var codeName = regexp.MustCompile(`[\w<>]*_[\w<>]+(=\w+|: local)?|\bREPLICAS\b`)

// zeroMeaning matches the sentence of a help text that states the value which 0 stands for.
var zeroMeaning = regexp.MustCompile(` 0 means ([^.]+)\.`)

// prose returns a help text as a cell of the table, with names as code.
func prose(text string) string {
	keys := rulesfile.OverlayKeys()
	before, after, listed := strings.Cut(text, strings.Join(keys, ", "))
	text = codeName.ReplaceAllString(before, "`$0`")
	if listed {
		text += "`" + strings.Join(keys, "`, `") + "`" + after
	}
	return cell(text)
}

// cell returns text as a cell of the table.
func cell(text string) string {
	return pageName.ReplaceAllString(strings.ReplaceAll(text, "|", "\\|"), "[$1]($1)")
}

// defaultOf returns the default of a flag, and its help without the sentence that states the
// default, or what a default of 0 stands for.
func defaultOf(f *kong.Flag) (otherwise, meaning string) {
	if zero := zeroMeaning.FindStringSubmatch(f.Help); zero != nil && strings.TrimSuffix(f.Default, "s") == "0" {
		return "`" + f.Default + "`: " + codeName.ReplaceAllString(zero[1], "`$0`"), strings.Replace(f.Help, zero[0], "", 1)
	}
	if f.Default != "" {
		return "`" + cell(f.Default) + "`", f.Help
	}
	if f.IsBool() {
		return "`false`", f.Help
	}
	before, text, stated := strings.Cut(f.Help, " Default: ")
	if !stated {
		return "none", f.Help
	}
	text, after, _ := strings.Cut(text+" ", ". ")
	return cell(text), strings.TrimSpace(before + " " + after)
}

// docs/commands.md lists every command, and the exit codes of every command.
func TestCommandsPageListsEveryCommand(t *testing.T) {
	page := must.Read(t, "../../docs/commands.md")
	table, codes, found := strings.Cut(string(page), "## Exit codes")
	if !found {
		t.Fatal("docs/commands.md has no section for exit codes")
	}
	parser, err := newParser(&commands{})
	must.Succeed(t, err)
	for _, command := range parser.Model.Children {
		if name := "`weir " + command.Name + "`"; !strings.Contains(table, "| ["+name+"](") || !strings.Contains(codes, name) {
			t.Errorf("docs/commands.md does not list %s, or not its exit codes", name)
		}
	}
}
