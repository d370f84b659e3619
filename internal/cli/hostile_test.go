package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Names in rules, such as those of a pull request, reach a terminal without control characters.
func TestNamesInRulesDoNotReachTheTerminalAsCommands(t *testing.T) {
	rules, recording := filepath.Join(t.TempDir(), "rules.yaml"), filepath.Join(t.TempDir(), "r.ndjson")
	for path, text := range map[string]string{
		rules:     "domain: \"d\\e[31m\"\ndescriptors: [{key: \"k\\e[32m\", rate_limit: {unit: hour, requests_per_unit: 3, name: \"n\\e[34m\"}}]\n",
		recording: `{"t":1795341600000000,"domain":"d\u001b[31m","descriptors":[[["k\u001b[32m","v"]]]}` + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := rulesFlags{Config: []string{rules}}
	var out, errs bytes.Buffer
	to := Streams{In: strings.NewReader(""), Out: &out, Err: &errs}
	suggest := Suggest{rulesFlags: flags, Recordings: []string{recording}, Headroom: 20, MaxMemory: 64, Output: "text"}
	_ = suggest.Run(t.Context(), to) // nothing may be recommended
	plan := Plan{rulesFlags: flags, Users: 100, Replicas: 1, Probability: 0.001, Output: "text"}
	if err := plan.Run(to); err != nil {
		t.Errorf("%v: %s", err, &errs)
	}
	if !strings.Contains(out.String(), `k\x1b`) || strings.Contains(out.String()+errs.String(), "\x1b") {
		t.Errorf("printed %q, %q", &out, &errs)
	}
}
