package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestHelpAndArgumentErrors(t *testing.T) {
	t.Chdir(filepath.Dir(rulesFile(t)))
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--version", 0, []string{"weir "}},
		{"-v", 0, []string{"weir "}},
		{"help", 0, []string{"Usage: weir", "check", "version"}},
		{"help serve", 0, []string{"Usage: weir [serve]"}},
		{"serve --help", 0, []string{"--config=FILE|DIR (CONFIG_PATH)", "Examples:", "--help=all"}},
		{"serve --help=all", 0, []string{"xds-backoff-jitter", "OTEL_EXPORTER_OTLP_"}},
		{"", 1, []string{"neither --config nor CONFIG_PATH is set", "try weir --config rules.yaml"}},
		{"--overlay none/overlay.yaml", 1, []string{"the overlay none/overlay.yaml: "}},
		{"--config none", 1, []string{"no rules: ", "none: no such file", "set --config or CONFIG_PATH to a file or folder"}},
		{"check", 2, []string{"weir check rules.yaml"}},
		{"cehck", 2, []string{`unknown command "cehck": did you mean "check"?`}},
		{"lint rules.yaml", 2, []string{`unknown command "lint": did you mean "check"?`}},
		{"validate rules.yaml", 2, []string{`unknown command "validate": did you mean "check"?`}},
		{"import lint", 2, []string{`unknown command "import lint": the commands are limitador, `}},
		{"frobnicate", 2, []string{`unknown command "frobnicate": the commands are serve, version, check, explain, `}},
		{"--config rules.yaml --redis-type=foo", 2, []string{`REDIS_TYPE: unknown value "foo": want SINGLE, CLUSTER or SENTINEL`}},
		{"--config rules.yaml --store-timeout=15", 2, []string{`--store-timeout: "15" has no unit: want 15ms or 15s`}},
		{"--config rules.yaml --store-timeout=soon", 2, []string{`cannot read "soon": want a duration such as 15ms`}},
		{"--config rules.yaml --shadow-mode=perhaps", 2, []string{`cannot read "perhaps": want true or false`}},
	} {
		t.Run("weir "+c.args, func(t *testing.T) {
			code, said := runWeir(strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("printed %q, want %q", said, want)
				}
			}
		})
	}
}

func TestServeHelpFitsOnAScreen(t *testing.T) {
	_, said := runWeir("serve", "--help")
	if n := strings.Count(said, "\n"); n > 60 {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(said) {
		if len(line) > 100 {
			t.Errorf("too long: %s", line)
		}
	}
}

// Some manifests start /bin/ratelimit with flags of its forks, which envoyproxy/ratelimit ignores.
func TestUnknownArgumentsAsRatelimitAreIgnored(t *testing.T) {
	missing := "--config=" + t.TempDir() + "/none"
	for _, c := range []struct {
		name    string
		program string
		args    []string
		warns   bool
		code    int
	}{
		{"as weir", "weir", []string{"--quotaRateLimitServiceAddr=:1", missing}, false, 2},
		{"as ratelimit", "/bin/ratelimit", []string{"--quotaRateLimitServiceAddr=:1", missing}, true, 1},
		{"with a value of its own", "/bin/ratelimit", []string{"--quotaRateLimitServiceAddr", ":1", missing}, true, 1},
		{"an argument after the value", "/bin/ratelimit", []string{"--quotaRateLimitServiceAddr", ":1", "extra", missing}, true, 2},
		{"a value before an argument", "/bin/ratelimit", []string{"--quotaRateLimitServiceAddr=:1", "extra", missing}, true, 2},
		{"with a flag of another command", "/bin/ratelimit", []string{"--quotaRateLimitServiceAddr=:1", "--limit", "5", missing}, true, 1},
		{"with a short flag", "/bin/ratelimit", []string{"-v", "-json", "--quotaRateLimitServiceAddr=:1", missing}, true, 1},
		{"ratelimit as an argument", "weir", []string{"/bin/ratelimit", "--quotaRateLimitServiceAddr=:1", missing}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, err bytes.Buffer
			code := run(context.Background(), c.program, c.args, &out, &err)
			warned := strings.Contains(err.String(), "unknown argument --quotaRateLimitServiceAddr ignored")
			if code != c.code || warned != c.warns {
				t.Errorf("exit code %d, want %d; said %s", code, c.code, &err)
			}
		})
	}
}

func TestVariablesWithoutAUnitNameTheRemedy(t *testing.T) {
	t.Setenv("STORE_TIMEOUT", "15")
	code, said := runWeir("--config=" + rulesFile(t))
	if want := `weir: STORE_TIMEOUT: "15" has no unit: want 15ms or 15s` + "\n"; code != 2 || !strings.HasPrefix(said, want) {
		t.Errorf("exit code %d, want 2; printed %s, want %s", code, said, want)
	}
}

// With LOG_FORMAT=json every line of a failed start is JSON, and the last one has the error.
func TestFatalErrorIsLoggedAsJSON(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	write(t, bad, "domain: ''\n")
	for name, args := range map[string][]string{
		"no rules":          {},
		"faults of rules":   {"--config=" + bad},
		"a port not opened": {"--config=" + rulesFile(t), "--host=256.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, printed := runWeir(append(args, "--log-format=JSON")...)
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			var last struct {
				Level, Error string
				Message      string `json:"@message"`
			}
			for line := range strings.Lines(printed) {
				if err := json.Unmarshal([]byte(line), &last); err != nil {
					t.Errorf("%v in the line %s", err, line)
				}
			}
			if last.Level != "error" || last.Message != "exiting" || last.Error == "" {
				t.Errorf("want the error in the last line: %s", printed)
			}
		})
	}
}
