package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// An invalid value of each type is rejected with the name of its flag or variable, and with the
// form that it must have.
func TestInvalidValuesNameTheRemedy(t *testing.T) {
	for args, want := range map[string]string{
		"--port=http":                    `--port must be a whole number from 0 to 65535, not "http"`,
		"--port=65536":                   `--port must be a whole number from 0 to 65535, not "65536"`,
		"--store-max-batch=many":         `--store-max-batch must be a whole number such as 10, not "many"`,
		"--top-keys=many":                `--top-keys must be a whole number such as 10, not "many"`,
		"--memory-max-keys=1e6":          `--memory-max-keys must be a whole number such as 10, not "1e6"`,
		"--near-limit-ratio=half":        `--near-limit-ratio must be a number such as 0.5, not "half"`,
		"--denial-log=half":              `--denial-log must be a number such as 0.5, not "half"`,
		"--store-timeout=15":             `--store-timeout: "15" has no unit: want 15ms or 15s`,
		"--store-timeout=soon":           `--store-timeout: cannot read "soon": want a duration such as 15ms, 2s or 1h30m`,
		"--shadow-mode=perhaps":          `--shadow-mode: cannot read "perhaps": want true or false`,
		"test -o yaml":                   `--output must be text, json or junit, not "yaml"`,
		"simulate --clients drop,wait":   `--clients must be drop, obey or hammer, not "wait"`,
		"gen envoy --part all":           `--part must be filter, route or cluster, not "all"`,
		"--port":                         "--port needs a value",
		"explain -o":                     "--output needs a value",
		"explain --config":               "--config needs a value",
		"convert --columns":              "--columns needs a value",
		"--log-level --shadow-mode":      "--log-level needs a value: write --log-level=VALUE if the next argument is the value",
		"gen envoy --trusted-hops -1":    "--trusted-hops needs a value: write --trusted-hops=VALUE if the next argument is the value",
		"explain --config --domain shop": "--config needs a value: write --config=VALUE if the next argument is the value",
		"gen":                            "gen needs envoy or envoyfilter",
		"import":                         "import needs limitador, nginx, kong or envoy-gateway",
	} {
		t.Run(args, func(t *testing.T) {
			if got := rejection(t, strings.Fields(args)...); got != want {
				t.Errorf("printed %s\nwant    %s", got, want)
			}
		})
	}
}

// An argument that becomes a key or a file of UTF-8 is rejected with any other bytes, which JSON
// would replace with U+FFFD.
func TestArgumentsThatAreNotUTF8AreRejected(t *testing.T) {
	rules := rulesFile(t)
	descriptor := `"user_id=\xff", is not UTF-8: write each invalid byte as U+FFFD and its two hexadecimal digits, as Weir does`
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"peek", "user_id=\xff"}, descriptor},
		{[]string{"reset", "user_id=\xff"}, descriptor},
		{[]string{"reset", "--domain=ugc", "--yes", "--entry", "user_id=\xff"}, descriptor},
		{[]string{"peek", "--domain=\xff", "user_id=a"}, `--domain "\xff" is not UTF-8`},
		{[]string{"tail", "--entry", "user_id=\xff"}, descriptor},
		{[]string{"explain", "--config", rules, "user_id=\xff"}, descriptor},
		{[]string{"convert", "--format=csv", "--domain=ugc", "--descriptor", "a=%{a},user_id=\xff"}, descriptor},
		{[]string{"convert", "--format=csv", "--domain=\xff", "--descriptor", "a=%{a}"}, `--domain "\xff" is not UTF-8`},
		{[]string{"gen", "envoy", "--config", rules, "--part=route", "--from", "user_id=query:\xff"}, `"user_id=query:\xff" is not UTF-8`},
		{[]string{"gen", "envoyfilter", "--config", rules, "--selector", "app=\xff"}, `"app=\xff" is not UTF-8`},
		{[]string{"--config-type=GRPC_XDS_SOTW", "--xds-node-id=\xff"}, "CONFIG_GRPC_XDS_NODE_ID: the value is not UTF-8"},
		{[]string{"--config-type=GRPC_XDS_SOTW", "--xds-node-metadata=a=\xff"}, "CONFIG_GRPC_XDS_NODE_METADATA: the value is not UTF-8"},
	} {
		if got := rejection(t, c.args...); !strings.Contains(got, c.want) {
			t.Errorf("%q: printed %s, want %s", c.args, got, c.want)
		}
	}
}

// A file has a name of any bytes, and a secret has any bytes.
func TestFilesAndSecretsNeedNotBeUTF8(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r\xff.yaml")
	write(t, path, rules)
	hashed := map[string]bool{}
	for _, secret := range []string{strings.Repeat("\xf0\x80", 8), strings.Repeat("\xf1\xff", 8)} {
		t.Setenv("KEY_HASH_SECRET", secret)
		code, out := runWeir("explain", "--config", path, "user_id=1")
		_, key, found := strings.Cut(out, "    key  ")
		if code != 0 || !found {
			t.Fatalf("exit code %d: %s", code, out)
		}
		hashed[key] = true
	}
	if len(hashed) != 2 {
		t.Errorf("two secrets give the same hash: %v", hashed)
	}
	t.Setenv("KEY_HASH_SECRET", strings.Repeat("\xff", 6))
	if got := rejection(t, "--config", path); !strings.Contains(got, "a secret of 6 bytes") {
		t.Errorf("printed %s, want the error of a secret of 6 bytes", got)
	}
}

// The user set the variable, so an error names the variable and not its flag.
func TestInvalidVariablesAreNamed(t *testing.T) {
	for variable, test := range map[string]struct{ value, want string }{
		"PORT":             {"99999", ` must be a whole number from 0 to 65535, not "99999"`},
		"NEAR_LIMIT_RATIO": {`half" (from envar PORT="1`, ` must be a number such as 0.5, not "half\" (from envar PORT=\"1"`},
		"TOP_KEYS":         {"1\n2", ` must be a whole number such as 10, not "1\n2"`},
		"DRAIN_DELAY":      {"Inf", `: cannot read "Inf": want a duration such as 15ms, 2s or 1h30m`},
		"STORE_TIMEOUT":    {"15", `: "15" has no unit: want 15ms or 15s`},
		"SHADOW_MODE":      {"perhaps", `: cannot read "perhaps": want true or false`},
		"LOG_LEVEL":        {"loud", `: unknown level "loud": want debug, info, warn or error`},
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, test.value)
			if got := rejection(t); got != variable+test.want {
				t.Errorf("printed %s\nwant    %s%s", got, variable, test.want)
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
