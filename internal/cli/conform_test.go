package cli_test

import (
	"encoding/json"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/conform"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/rls"
)

// conformed runs weir conform.
func conformed(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var command struct {
		Conform cli.Conform `cmd:""`
	}
	return runCommand(t, &command, "conform", "", args)
}

// graded starts Weir with rules, in memory.
func graded(t *testing.T, text string, options ...grpc.ServerOption) (target string) {
	t.Helper()
	rules := rulesfiletest.Parse(t, text)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := grpc.NewServer(append(options, grpc.ForceServerCodecV2(rls.Codec()))...)
	service := rls.New(decide.New(func() *descriptors.Rules { return rules }, memstore.New(memstore.Options{}), decide.Options{}), rls.Options{})
	receiver := grpcmessage.Receiver{Codec: rls.Codec()}
	server.RegisterService(service.ServiceDesc(receiver.Receive, admission.NewGate(100)), service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestConformExitCodes(t *testing.T) {
	t.Parallel()
	code, rules, errs := conformed(t, "--rules")
	if code != 0 || errs != "" {
		t.Fatal(code, errs)
	}
	good := graded(t, rules)
	wrong := graded(t, strings.Replace(rules, "requests_per_unit: 42", "requests_per_unit: 40", 1))
	empty := graded(t, "domain: other\n")
	for _, c := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"--only semantics.replaces " + good, 0, "pass  semantics.replaces", ""},
		{"--only semantics.replaces " + good, 0, "1 passed, 0 failed, 0 skipped, 0 observed", ""},
		{"--only semantics.replaces " + wrong, 1, "expected: no limit for the first descriptor, and 42 for the second", ""},
		{"--only turns.minute " + good, 0, "skip  turns.minute.fixed_window", ""},
		{empty, 2, "", "load the output of weir conform --rules --algorithms=fixed_window"},
		{"--algorithms=funnel " + good, 2, "", "no limit for funnel_day_1000"},
		{"--algorithms=token_bucket " + good, 2, "", `unknown algorithm "token_bucket"`},
		{"127.0.0.1:1", 2, "", "127.0.0.1:1 does not answer: connection refused: check the address"},
		{"localhost", 2, "", `the address "localhost" is not host:port`},
		{"--only [ " + good, 2, "", `--only: "[" is not a regular expression: missing closing ]`},
		{"--only nothing " + good, 2, "", "no check has an id that matches nothing: weir conform --list"},
		{"--timeout 1ns " + good, 2, "", "does not answer"},
		{"", 2, "", "needs the address of the service"},
		{"--rules " + good, 2, "", "--rules and --list cannot be used with an address"},
		{"--ca x " + good, 2, "", "--ca, --cert, --key and --server-name need --tls"},
		{"--tls --ca missing.pem " + good, 2, "", "missing.pem"},
	} {
		code, out, errs := conformed(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
			t.Errorf("%s: exit code %d, want %d\n%s\n%s", c.args, code, c.code, out, errs)
		}
	}
}

func TestConformJSONKeepsItsFields(t *testing.T) {
	t.Parallel()
	_, rules, _ := conformed(t, "--rules")
	target := graded(t, strings.Replace(rules, "requests_per_unit: 42", "requests_per_unit: 40", 1))
	code, out, errs := conformed(t, "-o", "json", "--only", "semantics.(replaces|group)|turns.minute|protocol.statuses", target)
	var report struct {
		Target, Domain                    string
		RunID                             string `json:"run_id"`
		Algorithms                        []string
		Passed, Failed, Skipped, Observed int
		Checks                            []struct {
			ID, Asks, Outcome, Reason string
			Observations              []string
			Evidence                  []struct{ Fault, Request, Answer, Expected string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || errs != "" {
		t.Fatalf("exit code %d, %v, %s", code, err, errs)
	}
	if report.Target != target || report.Domain != conform.Domain || len(report.RunID) != 12 || !slices.Equal(report.Algorithms, []string{"fixed_window"}) ||
		report.Passed != 1 || report.Failed != 1 || report.Skipped != 1 || report.Observed != 1 {
		t.Errorf("the report is %s", out)
	}
	want := map[string]string{
		"protocol.statuses": "pass", "semantics.replaces": "fail", "semantics.group": "observation", "turns.minute.fixed_window": "skipped",
	}
	for _, c := range report.Checks {
		if want[c.ID] != c.Outcome || c.Asks == "" || (c.Outcome == "skipped") != (c.Reason != "") || (c.Outcome == "fail") != (len(c.Evidence) > 0) ||
			(c.Outcome == "observation") != (len(c.Observations) > 0) {
			t.Errorf("%+v, want %q", c, want[c.ID])
		}
		delete(want, c.ID)
	}
	if len(want) > 0 {
		t.Errorf("no result of %v", want)
	}
}

// The checks that use neither gRPC nor plain text connect by TLS too.
func TestConformByTLS(t *testing.T) {
	t.Parallel()
	_, rules, _ := conformed(t, "--rules")
	authority := certtest.New(t)
	client := authority.Issue(t, "client")
	target := graded(t, rules, grpc.Creds(credentials.NewTLS(authority.Server(t, "127.0.0.1"))))
	code, out, errs := conformed(t, "--tls", "--ca", authority.File, "--cert", client.Cert, "--key", client.Key,
		"--timeout", "10m", "--call-timeout", "1m", // a busy machine takes seconds for many TLS handshakes
		"--only", "clients.stalled|semantics.counts", target)
	if code != 0 || !strings.Contains(out, "3 passed") || strings.Contains(out, "cannot be used") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	if code, _, errs := conformed(t, target); code != 2 {
		t.Errorf("without --tls: exit code %d, %s, want 2", code, errs)
	}
}

// docs/conform.md describes every group of checks, and no other.
func TestConformPageListsGroups(t *testing.T) {
	page := must.Read(t, filepath.Join("..", "..", "docs", "conform.md"))
	checks, err := conform.Checks(conform.Algorithms())
	must.Succeed(t, err)
	want := map[string]bool{}
	for _, c := range checks {
		group, _, _ := strings.Cut(c.ID, ".")
		want[group] = true
	}
	got := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]\\(conformance.md#").FindAllSubmatch(page, -1) {
		got[string(row[1])] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("docs/conform.md describes the groups %v, want %v", got, want)
	}
}

// The rules of all algorithms load, and those of fixed windows have no key that Weir adds.
func TestConformRules(t *testing.T) {
	_, all, _ := conformed(t, "--rules", "--algorithms", strings.Join(conform.Algorithms(), ","))
	_, fixed, _ := conformed(t, "--rules")
	for _, text := range []string{all, fixed} {
		if _, err := rulesfile.Parse(rulesfile.File{Name: "rules.yaml", Data: []byte(text)}); err != nil {
			t.Error(err)
		}
	}
	if strings.Contains(fixed, "algorithm") || !strings.Contains(all, "algorithm: funnel") {
		t.Error(fixed)
	}
}
