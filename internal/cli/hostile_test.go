package cli_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/must"
)

// hostile are files whose names and values have escape sequences, as a pull request of a stranger
// may have them.
var hostile = map[string]string{
	"rules.yaml": `{domain: "d\e[31m", descriptors: [
  {key: "k\e[32m", rate_limit: {unit: hour, requests_per_unit: 3, name: "n\e[34m"}}, {key: user_id, value: "w\e[36m", rate_limit: {unit: hour, requests_per_unit: 3}}]}`,
	"new.yaml":    `{domain: "d\e[31m", descriptors: [{key: "k\e[32m", rate_limit: {unit: hour, requests_per_unit: 1, name: "n\e[34m"}}]}`,
	"faults.yaml": `{domain: d, "x\e[31m": 1, descriptors: [{key: "k\e[32m", rate_limit: {unit: "h\e[31m", requests_per_unit: "3\e[2m"}}, {key: "k\e[32m"}]}`,
	"r.ndjson": `{"t":1795341600000000,"domain":"d\u001b[31m","descriptors":[[["k\u001b[32m","v\u001b[1m"]]]}
{"t":1795341600000001,"domain":"d\u001b[31m","descriptors":[[["k\u001b[32m","v\u001b[1m"]]]}
`,
	"rules_test.yaml": `{rules: rules.yaml, tests: [{name: "t\e[31m", steps: [
  {request: "k\e[32m=v\e[33m", expect: denied}, {request: "z\e[32m=v\e[33m", expect: allowed}]}]}`,
	"lines.yaml": `{domain: "d\nINJECTED", descriptors: [
  {key: "k\nINJECTED", rate_limit: {unit: hour, requests_per_unit: 3, name: "n\nINJECTED"}}, {key: user_id, value: "w\nINJECTED", rate_limit: {unit: hour, requests_per_unit: 3}}]}`,
	"lines.ndjson": `{"t":1795341600000000,"domain":"d\nINJECTED","descriptors":[[["k\nINJECTED","v\nINJECTED"]],[["user_id","hmac:0123456789abcdefghijkl"]]],"allowed":false}
{"t":1795341600000001,"domain":"d\nINJECTED","descriptors":[[["o\nINJECTED","v\nINJECTED"]]]}
`,
	"c1.yaml":        "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}",
	"c1.ndjson":      strings.Repeat(`{"t":1795341600000000,"domain":"d","descriptors":[[["k","v\u009b1m"]]]}`+"\n", 2),
	"nginx.conf":     "http { limit_req_zone $binary_remote_addr zone=b\x1b[33m:1m rate=1r/s; server { location / { limit_req zone=\x1b[32m; } } }",
	"limitador.yaml": `[{namespace: "n\e[31m", max_value: 3, seconds: 61, conditions: ["a\e[32m == 'b\e[33m'"], variables: ["u\e[34m"]}]`,
	"kong.yaml":      `{_format_version: "3.0", services: [{name: "s\e[31m", plugins: [{name: rate-limiting, config: {minute: 5, limit_by: "he\e[31mader"}}]}]}`,
	"envoy.yaml": `{virtual_hosts: [{name: "v\e[31m", domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: "c\e[32m", rate_limits: [
  {actions: [{generic_key: {descriptor_key: "g\e[33m", descriptor_value: "v\e[34m"}}, {request_headers: {header_name: "x\e[35m", descriptor_key: k}}]}]}}]}]}`,
}

// Names and values of a file reach a terminal without control characters, in the output and in the
// errors.
func TestControlCharactersOfFilesAreEscaped(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range hostile {
		must.Write(t, filepath.Base(name), text)
	}
	for args, want := range map[string]string{
		"check --strict rules.yaml":                                 "",
		"check faults.yaml":                                         "faults.yaml:1",
		"check no\x1b[31m.yaml":                                     `no\x1b[31m.yaml`,
		"gen envoy --config rules.yaml --upstream a:1":              `--from 'k\x1b[32m=SOURCE'`,
		"gen envoy --config rules.yaml --upstream a:1 --domain x":   `they have d\x1b[31m`,
		"gen envoy --config faults.yaml --upstream a:1":             "faults.yaml:1",
		"test --coverage rules_test.yaml":                           `t\x1b[31m`,
		"test --init rules.yaml":                                    `k\e[32m`,
		"diff rules.yaml new.yaml --against r.ndjson":               `k\x1b[32m`,
		"diff rules.yaml faults.yaml --against r.ndjson":            "faults.yaml:1",
		"import nginx nginx.conf":                                   `zone=\x1b[32m`,
		"import limitador limitador.yaml":                           `the condition a\x1b[32m`,
		"import kong --partial kong.yaml":                           `limit_by he\x1b[31mader`,
		"explain --config rules.yaml k\x1b[32m=v\x1b[1m":            "k\uFFFD[32m",
		"explain --config faults.yaml a=b":                          "faults.yaml:1",
		"explain --config rules.yaml --domain d --envoy envoy.yaml": "x\uFFFD[35m",
		"plan --config rules.yaml --users 100":                      `k\x1b[32m`,
		"suggest --config rules.yaml r.ndjson":                      `k\x1b[32m`,
		"simulate --config rules.yaml r.ndjson":                     `k\x1b[32m`,
		"simulate --config faults.yaml r.ndjson":                    "faults.yaml:1",

		"simulate -o json --config c1.yaml c1.ndjson":     `v\u009b1m`,
		"explain -o json --config c1.yaml k=v\u009b1m":    `v\u009b1m`,
		"check --strict lines.yaml":                       `ok: rules`,
		"gen envoy --config lines.yaml --upstream a:1":    `k\nINJECTED`,
		"test --init lines.yaml":                          `k\nINJECTED`,
		"diff lines.yaml new.yaml --against lines.ndjson": `k\nINJECTED`,
		"explain --config lines.yaml k\nINJECTED=v":       "k\uFFFDINJECTED",
		"plan --config lines.yaml --users 100":            `k\nINJECTED`,
		"suggest --config lines.yaml lines.ndjson":        `k\nINJECTED`,
		"suggest --domain d --path k lines.ndjson":        `o\nINJECTED`,
		"simulate --config lines.yaml lines.ndjson":       `k\nINJECTED`,
	} {
		var commands fileCommands
		parser, err := kong.New(&commands)
		must.Succeed(t, err)
		parsed, err := parser.Parse(strings.Split(args, " "))
		if err != nil {
			t.Fatalf("parse the arguments %q: %v", args, err)
		}
		var out, errs bytes.Buffer
		parsed.BindTo(context.Background(), (*context.Context)(nil))
		err = parsed.Run(cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, cli.SettingsChecker(func() cli.SettingsReport { return cli.SettingsReport{} }))
		cli.ExitCode(err, &errs) // prints it
		printed := out.String() + errs.String()
		if strings.ContainsAny(printed, "\x1b\u009b") || strings.Contains(printed, "\nINJECTED") || !strings.Contains(printed, want) {
			t.Errorf("%q printed %q and %q, want %q without control characters", args, &out, &errs, want)
		}
	}
}
