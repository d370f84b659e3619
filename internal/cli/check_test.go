package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/must"
)

// check runs the command on standard input, or on the paths that are given.
func check(t *testing.T, c cli.Check, input string) (code int, out, err string) {
	t.Helper()
	if len(c.Paths) == 0 {
		c.Paths = []string{"-"}
	}
	var stdout, stderr bytes.Buffer
	failed := c.Run(cli.Streams{In: strings.NewReader(input), Out: &stdout, Err: &stderr}, func() cli.SettingsReport { return cli.SettingsReport{} })
	code = cli.ExitCode(failed, &stderr)
	return code, stdout.String(), stderr.String()
}

const (
	clean = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	zero  = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 0}}]\n"
)

func TestCheckPrintsExcerptAndCaret(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ name, text, want string }{
		{"plain", "domain: d\ndescriptors:\n  - {key: k, rate_limt: 1}\n",
			"stdin:3:14: fault: unknown key 'rate_limt' in a descriptor [invalid]\n  3 |   - {key: k, rate_limt: 1}\n    |              ^\n    = did you mean 'rate_limit'?\n"},
		{"tabs", "domain: d\ndescriptors:\n  - {key: k,\t\tvalu: 1}\n",
			"stdin:3:15: fault: unknown key 'valu' in a descriptor [invalid]\n  3 |   - {key: k,\t\tvalu: 1}\n    |             \t\t^\n    = did you mean 'value'?\n"},
		{"wide and combining characters", "domain: d\ndescriptors:\n  - {key: 日本e\u0301, valu: 1}\n",
			"stdin:3:17: fault: unknown key 'valu' in a descriptor [invalid]\n  3 |   - {key: 日本e\u0301, valu: 1}\n    |                  ^\n    = did you mean 'value'?\n"},
		{"wide characters before a syntax error", "domain: d\ndescriptors:\n  - {key: 日本, value: * }\n",
			"stdin:3:22: fault: a value cannot begin with '*' [syntax]\n  3 |   - {key: 日本, value: * }\n    |                        ^\n    = quote it: '* }'\n"},
		{"Windows line ends", "domain: d\r\nx: 1\r\n", "stdin:2:1: fault: unknown key 'x' in the file [invalid]\n  2 | x: 1\n    | ^\n"},
		{"the direction of text", "domain: d\nvalu: \"\u202ea\u2066\"\n", "stdin:2:1: fault: unknown key 'valu' in the file [invalid]\n  2 | valu: \"\uFFFDa\uFFFD\"\n    | ^\n"},
		{"control characters", "domain: d\nvalu: \"\x1b[31m\"\n", "stdin:2:1: fault: this is not valid YAML (control characters are not allowed) [syntax]\n  2 | valu: \"\uFFFD[31m\"\n    | ^\n"},
		{"a long line", "domain: d\n'" + long + "': {valu: " + long + "}\nx: 1\n", "\n  2 | '" + strings.Repeat("x", 159) + "...\n    | ^\n"},
		{"the end of a long line", "domain: d\ndescriptors: [{key: " + long + ", valu: 1}]\n", "\n  2 | ..." + strings.Repeat("x", 149) + ", valu: 1}]\n"},
		{"UTF-16", "\xff\xfe" + utf16LE(zero), "stdin:2:48: warning: the limit is 0 and denies every request [zero-limit]\n  2 | descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 0}}]\n"},
		{"a syntax error in UTF-16", "\xff\xfe" + utf16LE("a: b\nc: [\n"), "stdin:2:1: fault: the file is UTF-16 [syntax]\n  2 | c: [\n    | ^\n    = save it as UTF-8\n"},
		{"UTF-16 without a byte order mark", utf16LE(zero), "stdin:1:1: fault: the file is UTF-16 [syntax]\n  1 | domain: d\n    | ^\n    = save it as UTF-8\n"},
		{"UTF-16, big endian", strings.ReplaceAll(zero, "", "\x00"), "stdin:1:1: fault: the file is UTF-16 [syntax]\n  1 | domain: d\n    | ^\n    = save it as UTF-8\n"},
		{"a warning", zero, "stdin:2:48: warning: the limit is 0 and denies every request [zero-limit]\n  2 | descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 0}}]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := check(t, cli.Check{Format: "text"}, tt.text); !strings.Contains(err, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", err, tt.want)
			}
		})
	}
}

// utf16LE encodes ASCII as UTF-16, little endian.
func utf16LE(ascii string) string { return strings.ReplaceAll(ascii, "", "\x00")[1:] }

// docs/lint.md begins with an example of the output.
func TestCheckPrintsAsTheLintPageShows(t *testing.T) {
	page := must.Read(t, "../../docs/lint.md")
	_, shown, _ := strings.Cut(string(page), "```\n$ weir check rules.yaml\n")
	shown, _, found := strings.Cut(shown, "```")
	_, example, _ := strings.Cut(string(page), "\n### unreachable-rule\n")
	_, example, _ = strings.Cut(example, "```yaml warns\n")
	example, _, _ = strings.Cut(example, "```")
	_, out, text := check(t, cli.Check{Format: "text"}, example)
	if got := strings.ReplaceAll(text, "stdin:", "rules.yaml:") + out; got != shown || !found {
		t.Errorf("got\n%s\nwant\n%s", got, shown)
	}
}

func TestCheckExitCodes(t *testing.T) {
	for _, format := range []string{"text", "json", "github"} {
		for _, tt := range []struct {
			text   string
			strict bool
			want   int
		}{{clean, true, 0}, {zero, false, 0}, {zero, true, 1}, {"domain: [", false, 1}, {"domain: [", true, 1}} {
			if code, _, _ := check(t, cli.Check{Format: format, Strict: tt.strict}, tt.text); code != tt.want {
				t.Errorf("%s, strict %v, %q: exit code %d, want %d", format, tt.strict, tt.text, code, tt.want)
			}
		}
	}
	if code, _, _ := check(t, cli.Check{Format: "json", Paths: []string{filepath.Join(t.TempDir(), "none")}}, ""); code != 1 {
		t.Errorf("exit code %d for a missing file, want 1", code)
	}
}

func TestCheckPrintsJSON(t *testing.T) {
	if _, out, err := check(t, cli.Check{Format: "json"}, clean); out != "[]\n" || err != "" {
		t.Errorf("a clean file: %q, %q", out, err)
	}
	const text = "domain: d\ndescriptors:\n  - {key: a, value: '<^a>', rate_limit: {unit: day, requests_per_unit: 0}}\n"
	_, out, _ := check(t, cli.Check{Format: "json"}, text)
	const want = `[
  {
    "file": "stdin",
    "line": 3,
    "column": 53,
    "severity": "warning",
    "id": "zero-limit",
    "message": "the limit is 0 and denies every request",
    "hint": "write a number of at least 1, or '# weir:ignore zero-limit'",
    "excerpt": "  - {key: a, value: '<^a>', rate_limit: {unit: day, requests_per_unit: 0}}"
  }
]
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	for _, tt := range []struct{ path, text, severity, id string }{
		{"-", "domain: [", "fault", "syntax"}, {"-", "kind: ConfigMap\napiVersion: v1\n", "fault", "kubernetes-manifest"},
		{"-", "domain: d\nx: 1\n", "fault", "invalid"}, {filepath.Join(t.TempDir(), "none"), "", "fault", "unreadable"},
	} {
		_, out, _ := check(t, cli.Check{Format: "json", Paths: []string{tt.path}}, tt.text)
		var all []map[string]any
		if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || all[0]["severity"] != tt.severity || all[0]["id"] != tt.id {
			t.Errorf("%q: error %v, got %s, want one %s with the id %s", tt.text, err, out, tt.severity, tt.id)
		}
	}
}

func TestCheckPrintsAnnotations(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a,b:c%")
	must.Succeed(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "rules.yaml")
	must.Write(t, path, "domain: d\n100%: 1\n")
	escaped := strings.NewReplacer("%", "%25", ",", "%2C", ":", "%3A").Replace(path)
	for _, given := range []string{path, dir} {
		_, out, err := check(t, cli.Check{Format: "github", Paths: []string{given}}, "")
		want := "::error file=" + escaped + ",line=2,col=1,title=invalid::unknown key '100%25' in the file%0Awant one of domain, "
		if !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 || err != "" {
			t.Errorf("got %q, want %q; %q", out, want, err)
		}
	}
	_, out, _ := check(t, cli.Check{Format: "github", Strict: true}, zero)
	if want := "::warning file=stdin,line=2,col=48,title=zero-limit::the limit is 0 and denies every request%0Awrite"; !strings.HasPrefix(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestCheckNamesTheOverlay(t *testing.T) {
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	withOverlay := cli.Check{Format: "text"}
	withOverlay.Overlay = overlay
	for text, want := range map[string]string{
		"domain: d\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 0}}]\n": ":2:37: warning: the limit is 0 and denies every request [zero-limit]\n  2 | descriptors: [{key: k, rate_limit: {requests_per_unit: 0}}]\n",
		"domain: d\ndescriptors: [{key: k, rate_limit: {algorithm: gcra}}]\n":      ":2:48: fault: unknown algorithm 'gcra' [invalid]\n  2 | descriptors: [{key: k, rate_limit: {algorithm: gcra}}]\n",
	} {
		must.Write(t, overlay, text)
		if _, _, err := check(t, withOverlay, clean); !strings.HasPrefix(err, overlay+want) {
			t.Errorf("got %q, want %q", err, overlay+want)
		}
	}
}

func TestCheckPrintsABoundedNumber(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: d\n")
	for i := range 250 {
		fmt.Fprintf(&text, "x%d: 1\n", i)
	}
	for format, prefix := range map[string]string{"text": "stdin:", "github": "::error"} {
		_, out, err := check(t, cli.Check{Format: format}, text.String())
		if n := strings.Count("\n"+out+err, "\n"+prefix); n != 100 || !strings.HasSuffix(err, "150 more\n") {
			t.Errorf("%s: %d faults, and at the end %q", format, n, err[max(0, len(err)-20):])
		}
	}
}
