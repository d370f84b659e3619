package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-rls/weir/internal/cli"
)

// No input makes the check panic. Each diagnostic has an id, a position in the file, and an excerpt
// without control characters.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{clean, zero, "domain: [", "domain: d\ndescriptors:\n\t- {key: 日本, value: *}\n", "# weir:ignore x\r\n--- 7\n--- 8\n",
		"domain: d\ndescriptors: [{key: a, cidr: [10.0.0.0/9, 10.128.0.0/9]}, {key: a, cidr: [10.0.0.0/8]}, {key: a, value: '*'}, {key: a}]\n",
		"domain: d\non_store_error: local\ndescriptors: &a\n- {key: k, value: ^a$, descriptors: [{key: x, rate_limit: &l {unit: day}}]}\n- {key: k, descriptors: [{key: y, rate_limit: *l}]}\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, out, _ := check(t, cli.Check{Format: "json"}, text)
		var all []struct {
			Line, Column          int
			ID, Severity, Excerpt string
		}
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("the output is no JSON list: %v\n%s", err, out)
		}
		lines := strings.Count(text, "\n") + 2 // the library puts an empty last document behind the end
		for _, found := range all {
			if found.ID == "" || found.Line < 1 || found.Column < 1 || found.Line > lines && utf8.ValidString(text) && !strings.ContainsAny(text, "\r\u0085\u2028\u2029") {
				t.Errorf("%q: %+v in %d lines", text, found, lines)
			}
			if strings.ContainsAny(found.Excerpt, "\x1b\r\n") {
				t.Errorf("%q: the excerpt is %q", text, found.Excerpt)
			}
		}
		code, _, _ := check(t, cli.Check{Format: "text"}, text)
		if other, _, _ := check(t, cli.Check{Format: "github"}, text); other != code {
			t.Errorf("%q: exit codes %d and %d", text, code, other)
		}
	})
}
