package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A commandTest is a command line and what it must print.
type commandTest struct {
	args     string
	code     int
	out, err []string
}

// test runs the command. No command may print the text "secret".
func (c commandTest) test(t *testing.T) {
	t.Helper()
	var out, err bytes.Buffer
	code := run(context.Background(), "weir", strings.Fields(c.args), &out, &err)
	if code != c.code {
		t.Errorf("%s: exit code %d, want %d\n%s%s", c.args, code, c.code, &out, &err)
	}
	for _, want := range c.out {
		if !strings.Contains(singleLine(out.String()), singleLine(want)) {
			t.Errorf("%s: printed %q, want %q", c.args, &out, want)
		}
	}
	for _, want := range c.err {
		if !strings.Contains(err.String(), want) {
			t.Errorf("%s: printed the error %q, want %q", c.args, &err, want)
		}
	}
	if strings.Contains(err.String(), "secret") {
		t.Errorf("%s: showed a password: %s", c.args, &err)
	}
}

// singleLine returns text on one line, without the lines of a tree. Where text breaks depends on
// the length of the folder's name.
func singleLine(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "│", " ")), " ")
}

// faultyRules are rules with four faults.
const faultyRules = "domain: ''\ndescriptors:\n  - key: a\n    rate_limit: {unit: fortnight, requests_per_unit: -1}\n    limits: 3\n"

func TestCheckCommandExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	good, bad, odd := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "odd.yaml")
	write(t, good, rules)
	write(t, bad, faultyRules)
	write(t, odd, "domain: odd\nunit: day\n")
	for _, c := range []commandTest{
		{"check " + good, 0, []string{"ok: rules 1, domains 1, files 1\n"}, nil},
		{"check " + odd + " " + good, 0, []string{"ok: rules 1, domains 2, files 2\n"}, []string{odd + ":2:1: warning: "}},
		{"check --strict " + odd, 1, nil, []string{odd + ":2:1: warning: key 'unit' has no effect in the file"}},
		{"check " + bad, 1, nil, []string{
			bad + ":1:9: fault: config file cannot have empty domain", bad + ":4:24: fault: invalid rate limit unit 'fortnight'",
			bad + ":4:54: fault: 'requests_per_unit' is -1", bad + ":5:5: fault: unknown key 'limits'",
		}},
		{"check " + filepath.Join(dir, "none"), 1, nil, []string{"none: no such file"}},
		{"check", 2, nil, []string{"weir: check needs a file or folder, for example: weir check rules.yaml"}},
		{"/bin/ratelimit check " + good, 0, []string{"ok: rules 1, domains 1, files 1\n"}, nil},
	} {
		c.test(t)
	}
}

func TestCheckReadsStandardInput(t *testing.T) {
	before := os.Stdin
	defer func() { os.Stdin = before }()
	for text, want := range map[string]struct {
		code int
		said string
	}{
		rules:           {0, "ok: rules 1, domains 1, files 1\n"},
		"domian: ugc\n": {1, "stdin:1:1: fault: unknown key 'domian' in the file [invalid]\n  1 | domian: ugc\n    | ^\n    = did you mean 'domain'?\n"},
	} {
		path := filepath.Join(t.TempDir(), "input")
		write(t, path, text)
		input, err := os.Open(path)
		must.Succeed(t, err)
		os.Stdin = input
		var out bytes.Buffer
		if code := run(t.Context(), "weir", []string{"check", "-"}, &out, &out); code != want.code || out.String() != want.said {
			t.Errorf("%q: exit code %d, %q, want %d, %q", text, code, &out, want.code, want.said)
		}
		_ = input.Close()
	}
}

func TestVersionIsPrinted(t *testing.T) {
	commandTest{"version", 0, []string{"weir ", " " + runtime.Version() + "\n"}, nil}.test(t)
}

func TestServeArgumentErrors(t *testing.T) {
	good, empty := rulesFile(t), filepath.Join(t.TempDir(), "empty")
	for _, c := range []commandTest{
		{"--no-such-flag", 2, nil, []string{"no-such-flag"}},
		{"--port=70000 --config " + good, 2, nil, []string{"port"}},
		{"--port=http --config " + good, 2, nil, []string{`weir: --port must be a whole number from 0 to 65535, not "http"` + "\n"}},
		{"--backend-type=memcache --log-level=loud --store-timeout=0s --config " + good, 2, nil,
			[]string{"BACKEND_TYPE: memcache is not supported", `LOG_LEVEL: unknown level "loud"`, "STORE_TIMEOUT must be above 0"}},
		{"--backend-type=redis --redis-auth=secret --redis-auth-file=" + empty + " --config " + good, 2, nil, []string{"REDIS_AUTH_FILE: REDIS_AUTH is set too"}},
	} {
		c.test(t)
	}
}

func TestServeStartErrors(t *testing.T) {
	dir, good := t.TempDir(), rulesFile(t)
	bad, empty := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "empty")
	write(t, bad, faultyRules)
	write(t, empty, "\n")
	for _, c := range []commandTest{
		{"--config " + bad, 1, nil, []string{"weir: the rules of ", "have faults:\n", bad + ":1:9: ", bad + ":5:5: "}},
		{"--config " + filepath.Join(dir, "none"), 1, nil, []string{"none: no such file", "--config"}},
		{"--grpc-server-use-tls --grpc-server-cert=c --grpc-server-key=k --grpc-client-ca=ca --grpc-client-san=envoy,*.edge --config " + good, 1, nil,
			[]string{`GRPC_CLIENT_TLS_SAN: "*.edge": write the whole name, without a wildcard`}},
		{"--backend-type=redis --redis-url=redis://me:secret@h:1/x --config " + good, 1, nil, []string{"REDIS_URL: the address names a database that is not a number"}},
		{"--backend-type=redis --redis-auth-file=" + empty + " --config " + good, 1, nil, []string{"REDIS_AUTH_FILE: ", empty + " is empty"}},
		{"--backend-type=redis --redis-sentinel-auth-file=" + dir + " --config " + good, 1, nil, []string{"REDIS_SENTINEL_AUTH_FILE: ", dir + " is not a regular file"}},
		{"--backend-type=redis --redis-persecond --redis-persecond-auth-file=/none --config " + good, 1, nil, []string{"REDIS_PERSECOND_AUTH_FILE: ", "/none: no such file"}},
	} {
		c.test(t)
	}
}

func TestCheckSettings(t *testing.T) {
	good, local := rulesFile(t), filepath.Join(t.TempDir(), "local.yaml")
	write(t, local, "domain: d\non_store_error: local\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	for _, c := range []struct {
		set  string
		test commandTest
	}{
		{"", commandTest{"check --settings", 0, []string{"ok: settings\n"}, nil}},
		{"", commandTest{"check --settings " + good, 0, []string{"ok: settings\n", "ok: rules 1, domains 1, files 1\n"}, nil}},
		{"LOG_LEVEL=loud BACKEND_TYPE=disk", commandTest{"check --settings " + good, 1, nil,
			[]string{`BACKEND_TYPE: unknown store "disk": want memory or redis`, `LOG_LEVEL: unknown level "loud"`}}},
		{"STORE_TIMEOUT=3 PORT=abc REDIS_TLS=abc REDIS_POOL_SIZE=-1 STORE_TIMOUT=1 BACKEND_TYPE=redis REDIS_URL=redis://h:99999 RUNTIME_WATCH_ROOT=perhaps",
			commandTest{"check --settings", 1, nil, []string{
				`STORE_TIMEOUT: "3" has no unit`, `PORT must be a whole number`, `REDIS_TLS: cannot read "abc"`, `REDIS_POOL_SIZE must be from 1`,
				`REDIS_URL: the address`, `RUNTIME_WATCH_ROOT: cannot read "perhaps"`, "warning: STORE_TIMOUT has no effect: ",
			}}},
		{"RUNTIME_WATCH_ROOT=perhaps", commandTest{"check --settings", 1, nil, []string{`RUNTIME_WATCH_ROOT: cannot read "perhaps"`}}},
		{"REDIS_AUHT=secret", commandTest{"check --settings", 0, []string{"ok: settings\n"},
			[]string{"warning: REDIS_AUHT has no effect: unknown setting: did you mean REDIS_AUTH?\n"}}},
		{"REDIS_AUHT=secret", commandTest{"check --settings --strict", 1, nil, []string{"REDIS_AUHT has no effect: "}}},
		{"GRPC_CLIENT_TLS_SAN=envoy", commandTest{"check --settings --strict", 1, nil, []string{"GRPC_CLIENT_TLS_SAN has no effect: "}}},
		{"AUTOMEMLIMIT=90%", commandTest{"check --settings", 1, nil, []string{"AUTOMEMLIMIT must be off, or above 0 and at most 1, not 90%"}}},
		{"AUTOMEMLIMIT=90%", commandTest{"--config " + good, 2, nil, []string{"AUTOMEMLIMIT must be off, or above 0 and at most 1, not 90%"}}},
		{"STORE_TIMEOUT=15", commandTest{"check --settings", 1, nil, []string{`STORE_TIMEOUT: "15" has no unit`}}},
		{"STORE_TIMEOUT=15", commandTest{"check --settings -o json", 1, []string{`"severity": "fault",` + "\n    " + `"id": "setting",`, `STORE_TIMEOUT: \"15\" has no unit`}, nil}},
		{"STORE_TIMEOUT=15", commandTest{"check --settings --format=github", 1, []string{`::error title=setting::STORE_TIMEOUT: "15" has no unit`}, nil}},
		{"BACKEND_TYPE=redis REDIS_PERSECOND=true REDIS_PERSECOND_URL=", commandTest{"check --settings", 1, nil, []string{"REDIS_PERSECOND_URL: an empty address: want host:port"}}},
		{"REDIS_URL=http://redis", commandTest{"check --settings", 1, nil, []string{"REDIS_URL: the address has an unknown scheme: want host:port"}}},
		{"BACKEND_TYPE=memory REDIS_URL=http://redis REDIS_PERSECOND_URL=", commandTest{"check --settings", 0, []string{"ok: settings"}, nil}},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_CACERT=ca GRPC_CLIENT_TLS_SAN=*.edge",
			commandTest{"check --settings", 1, nil, []string{`GRPC_CLIENT_TLS_SAN: "*.edge": write the whole name, without a wildcard`}}},
		{"USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=A DOG_STATSD_MOGRIFIER_A_PATTERN=(",
			commandTest{"check --settings", 1, nil, []string{"DOG_STATSD_MOGRIFIER_A_PATTERN: error parsing regexp: missing closing ): `(`"}}},
		{"", commandTest{"check --strict " + local, 1, nil, []string{local + ":2:1: warning: 'on_store_error: local' without a number of replicas"}}},
		{"", commandTest{"check --strict --replicas=3 " + local, 0, []string{"ok: rules 1"}, nil}},
		{"REPLICAS=3", commandTest{"check --strict " + local, 0, []string{"ok: rules 1"}, nil}},
		{"REPLICAS_DNS=weir", commandTest{"check --strict " + local, 0, []string{"ok: rules 1"}, nil}},
		{"BACKEND_TYPE=memory", commandTest{"check --strict --settings " + local, 0, []string{"ok: rules 1"}, nil}},
		{"BACKEND_TYPE=redis", commandTest{"check --strict --settings " + local, 1, []string{"ok: settings"}, []string{"[local-without-replicas]"}}},
	} {
		t.Run(c.set+" "+c.test.args, func(t *testing.T) {
			for _, pair := range strings.Fields(c.set) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			c.test.test(t)
		})
	}
}
