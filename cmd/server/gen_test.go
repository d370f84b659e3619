package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A pageRun runs the commands of a page in a folder with the page's files, and returns the page
// with their output.
type pageRun struct {
	t    *testing.T
	last struct{ out, errs string }
}

var (
	pageFile  = regexp.MustCompile("(?ms)^```(?:yaml|conf) ([a-z0-9.-]+)\n(.*?)^```$")
	pageBlock = regexp.MustCompile("(?ms)^```(sh|sh run|sh error|text|notes|errors)\n(.*?)^```$")
)

// runShownPage writes the files of a page, runs its commands, and returns the page with their
// current output. A block "sh" is followed by its output in a block "text"; a block "notes" or
// "errors" has its standard error. The command of "sh error" must fail.
func runShownPage(t *testing.T, page string) (want string, commands int) {
	t.Helper()
	text := must.Read(t, page)
	t.Chdir(t.TempDir())
	for _, f := range pageFile.FindAllStringSubmatch(string(text), -1) {
		write(t, f[1], f[2])
	}
	p := &pageRun{t: t}
	want = pageBlock.ReplaceAllStringFunc(string(text), func(block string) string {
		b := pageBlock.FindStringSubmatch(block)
		switch b[1] {
		case "text":
			return "```text\n" + p.last.out + "```"
		case "notes", "errors":
			return "```" + b[1] + "\n" + p.last.errs + "```"
		}
		for line := range strings.Lines(b[2]) {
			commands++
			p.run(strings.TrimSpace(line), b[1] == "sh error")
		}
		return block
	})
	return want, commands
}

// run runs a command, with its output in a file after ">".
func (p *pageRun) run(command string, fails bool) {
	command, file, toFile := strings.Cut(command, " > ")
	var arguments []string
	for _, a := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1) {
		arguments = append(arguments, strings.Trim(a, "'"))
	}
	var out, errs bytes.Buffer
	if code := run(p.t.Context(), "weir", arguments[1:], &out, &errs); (code != 0) != fails {
		p.t.Errorf("%s: exit code %d\n%s", command, code, &errs)
	}
	if toFile {
		write(p.t, strings.TrimSpace(file), out.String())
	}
	p.last.out, p.last.errs = out.String(), errs.String()
}

// The commands of docs/gen.md print what the page shows. The flag -update writes their output.
func TestGenPageShowsTheOutput(t *testing.T) { testShownPage(t, "gen.md", 4) }

// The commands of docs/import.md print what the page shows. The flag -update writes their output.
func TestImportPageShowsTheOutput(t *testing.T) { testShownPage(t, "import.md", 3) }

func testShownPage(t *testing.T, name string, minimum int) {
	t.Helper()
	page, err := filepath.Abs("../../docs/" + name)
	must.Succeed(t, err)
	want, commands := runShownPage(t, page)
	text := must.Read(t, page)
	if *update {
		must.Succeed(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	if commands < minimum || want != string(text) {
		t.Errorf("%d commands; go test ./cmd/server -run %s -update writes\n%s", commands, t.Name(), want)
	}
}

func TestGenCommandExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	good, wild, two := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "wild.yaml"), filepath.Join(dir, "two")
	write(t, good, "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: month, requests_per_unit: 5}}]\n")
	write(t, wild, "domain: shop\ndescriptors: [{key: 'u*', rate_limit: {unit: month, requests_per_unit: 5}}]\n")
	must.Succeed(t, os.Mkdir(two, 0o755))
	write(t, filepath.Join(two, "a.yaml"), "domain: a\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	write(t, filepath.Join(two, "b.yaml"), "domain: b\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	for _, c := range []commandTest{
		{"gen envoy --config " + good + " --upstream shop:8080", 0, []string{"type: STRICT_DNS", "address: shop, port_value: 8080", "header_name: x-user-id"}, []string{"note: user_id: the header x-user-id"}},
		{"gen envoy --config " + good + " --part cluster --service [::1]:9000", 0, []string{"type: STATIC", `address: '::1', port_value: 9000`}, nil},
		{"gen envoy --config " + good + " --part filter --failure-mode-deny --timeout 250ms", 0, []string{"failure_mode_deny: true", "timeout: 0.25s"}, nil},
		{"gen envoyfilter --config " + good + " --selector app=shop --namespace shops --context SIDECAR_INBOUND", 0,
			[]string{"cluster_name: outbound|8081||weir.weir.svc.cluster.local", "app: shop", "namespace: shops", "context: SIDECAR_INBOUND"}, nil},
		{"gen envoyfilter --config " + good + " --route login:user_id=a", 0, []string{"applyTo: HTTP_ROUTE", "name: login"}, nil},
		{"gen envoy --config " + two + " --domain b --part route", 0, []string{"x-b"}, nil},
		{"gen envoy --config " + two + " --part route", 2, nil, []string{"set --domain to one of a, b"}},
		{"gen envoy --config " + wild + " --part route", 1, nil, []string{`error: ` + wild + `:2: the key "u*" has a wildcard`, "nothing is written"}},
		{"gen envoy --config " + good, 2, nil, []string{"gen envoy needs --upstream"}},
		{"gen envoy --upstream shop:8080", 2, nil, []string{"gen envoy needs --config with the rules"}},
		{"gen envoy --config " + good + " --part route --timeout 0s", 2, nil, []string{"--timeout must be above 0"}},
		{"gen envoy --config " + good + " --part route --trusted-hops=-1", 2, nil, []string{"--trusted-hops must be at least 0"}},
		{"gen envoy --config " + good + " --part route --from user_id", 2, nil, []string{"write KEY=SOURCE"}},
		{"gen envoy --config " + filepath.Join(dir, "none") + " --part route", 2, nil,
			[]string{"weir: read " + filepath.Join(dir, "none") + ": no such file or directory: correct the path\n"}},
		{"gen envoy --config " + good + " --part route --trusted-hops=two", 2, nil, []string{`weir: --trusted-hops must be a whole number such as 10, not "two"` + "\n"}},
		{"gen envoy --config " + good + " --part all", 2, nil, []string{`weir: --part must be filter, route or cluster, not "all"` + "\n"}},
		{"suggest --sample-share=half --config " + good, 2, nil, []string{`weir: --sample-share must be a number such as 0.5, not "half"` + "\n"}},
		{"suggest --config " + good + " " + filepath.Join(dir, "none"), 2, nil, []string{"weir: read " + filepath.Join(dir, "none") + ": no such file or directory: correct the path\n"}},
		{"gen", 2, nil, []string{"weir: gen needs envoy or envoyfilter\n"}},
	} {
		c.test(t)
	}
}

func TestImportCommandExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	limits, wrong, conf := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "wrong.yaml"), filepath.Join(dir, "nginx.conf")
	write(t, limits, "- {namespace: a, max_value: 1, seconds: 60}\n- {namespace: b, max_value: 1, seconds: 60}\n")
	write(t, wrong, "- {namespace: a, max_value: 1, seconds: 60}\n- {namespace: a, max_value: 1, seconds: 60, variables: [f(x)]}\n")
	write(t, conf, "limit_req_zone $remote_addr zone=z:1m rate=5r/s; limit_req zone=z;")
	for _, c := range []commandTest{
		{"import limitador --domain b " + limits, 0, []string{"domain: b\n", "requests_per_unit: 1"}, []string{"note: " + limits + ":1: "}},
		{"import limitador " + limits, 2, nil, []string{"set --domain to one of a, b"}},
		{"import limitador " + wrong, 1, nil, []string{"not imported: " + wrong + ":2: the variable f(x)", "nothing is written: add --partial"}},
		{"import limitador --partial " + wrong, 0, []string{"domain: a\n"}, []string{"not imported: " + wrong + ":2: the variable f(x)"}},
		{"import nginx --domain shop " + conf, 0, []string{"domain: shop\n", "remote_address"}, nil},
		{"import kong " + limits, 2, nil, []string{"weir: ", "want a declarative Kong configuration"}},
		{"import envoy-gateway " + limits, 2, nil, []string{"has no BackendTrafficPolicy"}},
		{"import nginx " + filepath.Join(dir, "none"), 2, nil, []string{"weir: read " + filepath.Join(dir, "none") + ": no such file or directory: correct the path\n"}},
		{"import", 2, nil, []string{"weir: import needs limitador, nginx, kong or envoy-gateway\n"}},
	} {
		c.test(t)
	}
}
