package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/must"
)

// fileCommands are the commands that read files and start no server.
type fileCommands struct {
	Check    cli.Check    `cmd:""`
	Gen      cli.Gen      `cmd:""`
	Test     cli.Test     `cmd:""`
	Diff     cli.Diff     `cmd:""`
	Import   cli.Import   `cmd:""`
	Explain  cli.Explain  `cmd:""`
	Plan     cli.Plan     `cmd:""`
	Suggest  cli.Suggest  `cmd:""`
	Simulate cli.Simulate `cmd:""`
}

func TestStandardInputIsNotReadTwice(t *testing.T) {
	const both = "the rules and the overlay cannot both be standard input: name a file"
	for args, want := range map[string]string{
		"check --overlay - -":                                   both,
		"check - -":                                             "only one of the rules can be standard input: name files",
		"plan --config - --overlay - --users 5":                 both,
		"plan --config - --config - --users 5":                  "only one of the rules can be standard input",
		"gen envoy --config - --overlay - --upstream shop:8080": both,
		"gen envoyfilter --config - --overlay -":                both,
		"simulate --config - --overlay - day.ndjson":            both,
		"simulate --config rules.yaml --overlay - -":            "the overlay and the recordings cannot both be standard input",
		"suggest --config - --overlay - day.ndjson":             both,
		"suggest --config - -":                                  "the rules and the recordings cannot both be standard input",
		"explain --config - --overlay - a=1":                    both,
		"explain --config - --overlay - --receipt r --keys k":   both,
		"explain --config rules.yaml --overlay - --request -":   "the overlay and the request cannot both be standard input",
		"explain --config - --envoy -":                          "the rules and the Envoy configuration cannot both be standard input",
		"diff old.yaml new.yaml --overlay - --against -":        "only one of the rules, the overlays and the recordings can be standard input",
		"diff old.yaml new.yaml --old-overlay - --overlay - --against day.ndjson": "only one of the rules, the overlays and the recordings " +
			"can be standard input",
	} {
		words := strings.Fields(args)
		if code, _, errs := runCommand(t, &fileCommands{}, words[0], "", words[1:]); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("weir %s: exit code %d, want 2, and %q, want %q", args, code, errs, want)
		}
	}
}

// Without --old-overlay, the overlay applies to the old rules and the new ones.
func TestDiffAppliesAnOverlayFromStandardInputToBothRules(t *testing.T) {
	dir := folder(t, map[string]string{"day.ndjson": twoLines})
	rules, old := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "old.yaml")
	const overlay = "domain: ugc\ndescriptors: [{key: user_id, rate_limit: {requests_per_unit: %}}]\n"
	must.Write(t, old, strings.ReplaceAll(overlay, "%", "2"))
	args := []string{rules, rules, "--against", filepath.Join(dir, "day.ndjson"), "--overlay", "-"}
	code, out, errs := runCommand(t, &fileCommands{}, "diff", strings.ReplaceAll(overlay, "%", "1"), args)
	if code != 0 || !strings.Contains(out, "no change") {
		t.Errorf("exit code %d, want 0 and no change, printed\n%s%s", code, out, errs)
	}
	code, out, errs = runCommand(t, &fileCommands{}, "diff", strings.ReplaceAll(overlay, "%", "1"), append(args, "--old-overlay", old))
	if code != 2 || !strings.Contains(out, "newly denied: 1 key, 1 request") {
		t.Errorf("another old overlay: exit code %d, want 2 and one newly denied request, printed\n%s%s", code, out, errs)
	}
}
