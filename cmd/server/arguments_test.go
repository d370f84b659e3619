package main

import (
	"bytes"
	"strings"
	"testing"
)

// An error names the argument and the fault. It does not quote an argument that may be the value.
func TestInvalidArgumentsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--port=http":                    `--port: expected a valid 16 bit uint but got "http"`,
		"--top-keys=many":                `--top-keys: expected a valid 64 bit int but got "many"`,
		"--near-limit-ratio=half":        `--near-limit-ratio: expected a float but got "half" (string)`,
		"--store-timeout=15":             `--store-timeout: expected duration but got "15": time: missing unit in duration "15"`,
		"--shadow-mode=perhaps":          `--shadow-mode: cannot read "perhaps": want true or false`,
		"test -o yaml":                   `--output must be one of "text","json","junit" but got "yaml"`,
		"--port":                         "--port: needs a value: write --port=VALUE",
		"--drain-delay":                  "--drain-delay: needs a value: write --drain-delay=VALUE",
		"explain --config":               `--config: missing value, expecting "<arg>"`,
		"--log-level --shadow-mode":      "--log-level: needs a value: write --log-level=VALUE",
		"explain --config --domain shop": "--config: needs a value: write --config=VALUE",
		"gen":                            `expected one of "envoy", "envoyfilter"`,
		"gen envyo":                      `unexpected argument envyo, did you mean "envoy"?`,
	} {
		t.Run(args, func(t *testing.T) {
			if got := rejection(t, strings.Fields(args)...); got != want {
				t.Errorf("printed %s\nwant    %s", got, want)
			}
		})
	}
}

// The user set the variable, so an error names the variable too.
func TestInvalidVariablesAreNamed(t *testing.T) {
	for variable, test := range map[string]struct{ value, want string }{
		"PORT":          {"99999", `--port: expected a valid 16 bit uint but got "99999" (from envar PORT="99999")`},
		"STORE_TIMEOUT": {"15", `--store-timeout: expected duration but got "15": time: missing unit in duration "15" (from envar STORE_TIMEOUT="15")`},
		"SHADOW_MODE":   {"perhaps", `--shadow-mode: cannot read "perhaps": want true or false (from envar SHADOW_MODE="perhaps")`},
		"LOG_LEVEL":     {"loud", `serve: LOG_LEVEL: unknown level "loud": want debug, info, warn or error`},
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, test.value)
			if got := rejection(t); got != test.want {
				t.Errorf("printed %s\nwant    %s", got, test.want)
			}
		})
	}
}

// rejection returns the error of arguments that Weir does not accept.
func rejection(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), "weir", args, &out, &errs); code != 2 {
		t.Errorf("%v: exit code %d, want 2", args, code)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(errs.String(), "weir: "), "\n")
	return text
}
