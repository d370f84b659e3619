// Package weir contains only tests of the whole module, such as the allowed imports of each
// package.
package weir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

const module = "github.com/weir-rls/weir/"

// packageTable lists every package with its purpose and the packages of this module that it may
// import. TestImportsPointOneWay fails on an import that is missing here, on an import listed here
// that no file uses, and on a row without a package.
var packageTable = []struct{ pkg, purpose, imports string }{
	// The core.
	{"pkg/limiters", "decides operations: limits, algorithms and verdicts, without I/O and clocks",
		""},
	// Stores and what wraps them.
	{"pkg/limiters/memstore", "keeps states in memory and has pkg/limiters decide", "pkg/limiters"},
	{"pkg/redisscripts", "embeds the Lua twins of the algorithms", "pkg/limiters"},
	{"pkg/limiters/redisstore", "sends operations to Redis, where the Lua scripts decide",
		"pkg/limiters pkg/limiters/redisstore/connect pkg/limiters/split pkg/redisscripts"},
	{"pkg/limiters/redisstore/connect", "connects to Redis: URL, passwords, TLS",
		"internal/smallfile internal/socket"},
	{"pkg/limiters/split", "divides one Take into parts, each of which fails by itself; routes limits per second",
		"pkg/limiters"},
	{"pkg/limiters/guard", "wraps any store: deny cache, fallback, retries of ends",
		"internal/backoff internal/memo pkg/limiters pkg/limiters/split"},
	{"pkg/limiters/limiterstest", "tests any store against the core", "pkg/limiters"},
	// Rules.
	{"pkg/descriptors", "finds the limits of a request, without YAML", "pkg/limiters"},
	{"pkg/descriptors/rulesfile", "reads YAML and builds rules",
		"internal/spelling pkg/descriptors pkg/limiters"},
	{"pkg/descriptors/rulesfile/rulesfiletest", "parses the rules and the descriptors of tests",
		"pkg/descriptors pkg/descriptors/rulesfile"},
	{"pkg/descriptors/sources", "watches files and folders of rules", "pkg/descriptors/rulesfile"},
	{"pkg/descriptors/sources/xds", "receives rules from a control plane",
		"internal/backoff pkg/descriptors/rulesfile " +
			"pkg/descriptors/sources/xds/ratelimitconfigv3"},
	{"pkg/descriptors/sources/xds/ratelimitconfigv3", "contains the generated messages of rules over xDS",
		""},
	{"internal/ruleload", "keeps the rules in force from files or a control plane, and the candidate rules",
		"internal/atomicfile pkg/descriptors pkg/descriptors/rulesfile " +
			"pkg/descriptors/sources pkg/descriptors/sources/xds"},
	{"internal/randomrules", "makes random rules and requests for tests", "pkg/descriptors"},
	// Live requests.
	{"pkg/decide", "decides requests, without a protocol and without knowing the store",
		"internal/memo pkg/descriptors pkg/limiters"},
	{"pkg/rls", "speaks Envoy's protocol: decode, decide, encode",
		"pkg/decide pkg/descriptors pkg/limiters pkg/receipt"},
	{"pkg/receipt", "seals and opens receipts of denials", "pkg/decide"},
	{"internal/receiptkeys", "keeps the keys of receipts from their file",
		"pkg/descriptors/rulesfile pkg/descriptors/sources pkg/receipt"},
	{"internal/grpcmessage", "receives the messages of gRPC requests in bounded time and memory",
		""},
	{"internal/admission", "sheds load before requests are decided",
		"internal/backoff internal/socket"},
	{"internal/resets", "resets keys in the store and on all replicas",
		"internal/backoff internal/recovery pkg/descriptors pkg/limiters pkg/limiters/guard"},
	{"internal/replicas", "counts the replicas that share the limits", "internal/backoff"},
	{"internal/redisprobe", "checks whether a Redis answers in time, until it does",
		"internal/backoff pkg/limiters/redisstore"},
	{"internal/snapshot", "keeps the counters of the memory store in a file",
		"internal/atomicfile internal/backoff pkg/limiters/memstore"},
	// Observation of decisions.
	{"pkg/explain", "reports which limits a request is under, and why, without a store",
		"internal/spelling pkg/decide pkg/descriptors pkg/limiters"},
	{"internal/rlconfig", "prints rules as envoyproxy/ratelimit does", "internal/terminal pkg/descriptors pkg/limiters"},
	{"pkg/recording", "reads and writes recordings of requests", "internal/lines pkg/decide pkg/descriptors"},
	{"pkg/recorder", "records decided requests in files, for a replay",
		"internal/keysample pkg/decide pkg/descriptors pkg/limiters pkg/recording"},
	{"internal/topkeys", "finds the busiest and the most denied keys, in bounded memory",
		"internal/backoff internal/spacesaving pkg/admin/api pkg/decide pkg/descriptors pkg/explain"},
	{"internal/decisionstream", "passes decisions to subscribers, and a sample of the denials to the log",
		"internal/keysample pkg/admin/api pkg/decide pkg/descriptors pkg/explain pkg/limiters"},
	{"internal/shadow", "decides live requests a second time by candidate rules, and counts the differences",
		"internal/spacesaving pkg/admin/api pkg/decide pkg/descriptors pkg/explain " +
			"pkg/limiters pkg/limiters/memstore"},
	{"internal/telemetry", "exports Weir's metrics and log, without knowing memstore or redisstore",
		"internal/admission internal/decisionstream internal/scrape internal/shadow pkg/admin/api pkg/decide " +
			"pkg/descriptors pkg/descriptors/sources/xds pkg/limiters pkg/limiters/guard " +
			"pkg/recorder pkg/rls"},
	{"internal/scrape", "collects Prometheus metrics at each scrape", ""},
	{"internal/ratelimitstats", "exports the metrics of envoyproxy/ratelimit, from decisions",
		"internal/scrape pkg/decide pkg/descriptors pkg/limiters pkg/rls"},
	{"internal/statsd", "sends counters to statsd", "internal/backoff internal/scrape"},
	{"internal/tracing", "exports spans of requests and store calls", "pkg/limiters"},
	{"internal/keysample", "selects a fraction of all keys by their hashes",
		"pkg/decide pkg/descriptors"},
	{"internal/spacesaving", "finds the busiest keys of a stream in bounded memory", ""},
	// The admin API.
	{"pkg/admin/api", "declares the requests and responses of the admin API", "pkg/explain"},
	{"pkg/admin", "serves the admin API, on any store",
		"internal/backoff internal/recovery internal/reloadfile internal/smallfile internal/spelling pkg/admin/api pkg/decide " +
			"pkg/descriptors pkg/explain pkg/limiters"},
	{"pkg/admin/client", "calls the admin API", "internal/smallfile pkg/admin/api pkg/explain"},
	// Commands that need no server.
	{"pkg/replay", "decides requests at given times, on memstore with a virtual clock",
		"pkg/decide pkg/descriptors pkg/limiters/memstore pkg/recording"},
	{"pkg/conform", "grades a rate limit service from outside, without knowing Weir", ""},
	{"internal/offline/simulate", "runs rules over recorded or synthetic requests, and reports what the limits deny",
		"internal/keysample internal/spelling pkg/decide pkg/descriptors pkg/limiters pkg/recording pkg/replay"},
	{"internal/offline/simulate/report", "writes the result of a simulation as an HTML page",
		"internal/offline/simulate internal/terminal"},
	{"internal/offline/suggest", "finds limits for the traffic of a recording",
		"internal/offline/rulesyaml internal/terminal pkg/decide pkg/descriptors " +
			"pkg/limiters pkg/recording pkg/replay"},
	{"internal/offline/sizing", "computes local limits, memory, calls to Redis and over-admission from rules and figures of the benchmark",
		"internal/terminal pkg/descriptors pkg/limiters pkg/limiters/guard"},
	{"internal/offline/accesslog", "makes recordings from access logs",
		"internal/lines internal/spelling pkg/decide pkg/descriptors pkg/recording"},
	{"internal/offline/rulesdiff", "compares two sets of rules over the same requests",
		"internal/spelling internal/terminal pkg/decide pkg/descriptors pkg/limiters " +
			"pkg/recording pkg/replay"},
	{"internal/offline/rulestest", "reads and runs tests of rules",
		"internal/offline/rulesyaml internal/spelling pkg/decide pkg/descriptors " +
			"pkg/descriptors/rulesfile pkg/descriptors/sources pkg/explain pkg/limiters pkg/replay"},
	{"internal/offline/rulesyaml", "writes rules as YAML", "pkg/descriptors"},
	{"internal/offline/yamltree", "reads YAML of other programs as values with positions",
		"pkg/descriptors/rulesfile"},
	{"internal/offline/envoyactions", "derives the descriptors that Envoy sends, from its configuration and a request",
		"internal/offline/yamltree pkg/decide pkg/descriptors"},
	{"internal/offline/envoygen", "writes Envoy's configuration for rules",
		"internal/offline/rulesyaml internal/spelling pkg/descriptors"},
	{"internal/offline/rulesimport", "translates limits of other rate limiters into rules",
		"internal/offline/envoygen internal/offline/rulesyaml internal/offline/yamltree " +
			"pkg/descriptors pkg/descriptors/rulesfile"},
	// The binary.
	{"cmd/server", "parses flags, wires the packages and shuts them down",
		"internal/admission internal/backoff internal/cli internal/decisionstream internal/gctune " +
			"internal/grpcmessage internal/grpcrecovery " +
			"internal/ratelimitstats internal/receiptkeys internal/recovery internal/redisprobe " +
			"internal/replicas internal/resets internal/rlconfig internal/ruleload internal/settings " +
			"internal/shadow internal/smallfile internal/snapshot internal/spelling internal/statsd " +
			"internal/telemetry internal/tlsfiles internal/topkeys internal/tracing pkg/admin pkg/admin/api " +
			"pkg/decide pkg/descriptors pkg/descriptors/rulesfile " +
			"pkg/descriptors/sources/xds pkg/limiters pkg/limiters/guard " +
			"pkg/limiters/memstore pkg/limiters/redisstore pkg/limiters/redisstore/connect " +
			"pkg/limiters/split pkg/recorder pkg/rls"},
	{"internal/cli", "implements every command except serve, and prints its result",
		"internal/atomicfile internal/backoff internal/offline/accesslog internal/offline/envoyactions " +
			"internal/offline/envoygen internal/offline/rulesdiff " +
			"internal/offline/rulesimport internal/offline/rulestest " +
			"internal/offline/simulate internal/offline/simulate/report " +
			"internal/offline/sizing internal/offline/suggest internal/spelling " +
			"internal/terminal internal/tlsfiles pkg/admin/api pkg/admin/client pkg/conform " +
			"pkg/decide pkg/descriptors pkg/descriptors/rulesfile pkg/descriptors/sources " +
			"pkg/explain pkg/receipt pkg/recording pkg/replay pkg/rls"},
	{"internal/settings", "declares the settings", "internal/spelling"},
	{"internal/tlsfiles", "makes TLS configurations from PEM files", "internal/reloadfile internal/smallfile"},
	{"internal/gctune", "tunes the garbage collector", ""},
	// Parts of several packages.
	{"internal/atomicfile", "replaces files atomically", ""},
	{"internal/smallfile", "reads files of passwords, tokens and certificates", ""},
	{"internal/backoff", "computes the waits between attempts", ""},
	{"internal/grpcrecovery", "makes a panic fail only its own gRPC request", "internal/recovery"},
	{"internal/lines", "reads lines of bounded length", ""},
	{"internal/memo", "remembers computed values in bounded memory", ""},
	{"internal/recovery", "makes a panic fail only its own HTTP request or task", ""},
	{"internal/reloadfile", "keeps a value read from files, and reads changed files again", ""},
	{"internal/socket", "reads and writes sockets by raw system calls", ""},
	{"internal/spelling", "finds the known word nearest to a misspelled one", ""},
	{"internal/terminal", "prepares text for a terminal: columns, and escapes of control characters",
		""},
	// Tests, measurements and tools.
	{"internal/certtest", "makes certificates for tests and the demo", "internal/must"},
	{"internal/grpctest", "serves gRPC for tests", ""},
	{"internal/loadclient", "sends requests as fast as possible, without knowing the server",
		"internal/socket"},
	{"internal/must", "ends a test after an error, or if what it waits for does not happen", ""},
	{"internal/freeport", "reserves loopback ports for tests and the demo", ""},
	{"internal/relay", "forwards TCP connections for tests", "internal/must"},
	{"internal/redistest", "starts Redis servers for tests and the demo",
		"internal/certtest internal/freeport internal/must internal/relay"},
	{"e2e/harness", "starts Weir and Envoy as processes", "internal/backoff internal/freeport internal/must"},
	{"e2e/demo", "shows the algorithms behind a real Envoy", "e2e/harness internal/backoff internal/freeport internal/redistest"},
	{"bench", "measures Weir, a bare server and envoyproxy/ratelimit",
		"e2e/harness internal/freeport internal/loadclient"},
	{"bench/bare", "answers OK, as the least that a server costs", ""},
	{"bench/load", "loads one server", "internal/loadclient"},
	{"tools/faults", "puts mutations into the code to test its tests", ""},
	{"tools/stores", "runs the tests of the store on each supported server", ""},
}

// restricted lists libraries that only some packages may import.
var restricted = []struct{ prefix, only, why string }{
	{"google.golang.org/grpc",
		"pkg/conform pkg/rls pkg/descriptors/sources/xds internal/grpcmessage " +
			"internal/admission internal/grpcrecovery internal/grpctest internal/ratelimitstats " +
			"internal/telemetry internal/tracing cmd/server bench/bare",
		"a decision needs no gRPC: only servers, clients and metrics of gRPC import it"},
	{"google.golang.org/protobuf",
		"pkg/conform internal/offline/envoyactions internal/offline/envoygen pkg/rls " +
			"pkg/descriptors/sources/xds pkg/descriptors/sources/xds/ratelimitconfigv3 internal/grpcmessage",
		"a decision needs no protobuf: only the protocols import it"},
	{"github.com/envoyproxy/",
		"pkg/conform internal/offline/envoyactions internal/offline/envoygen pkg/rls " +
			"pkg/descriptors/sources/xds bench/bare",
		"a decision needs no Envoy API: only the protocols and a server of the benchmark import it"},
	{"github.com/go-logr/", "internal/tracing", "OpenTelemetry logs with it"},
	{"go.opentelemetry.io/", "internal/tracing", "internal/tracing exports all spans"},
	{"github.com/redis/",
		"pkg/limiters/redisstore pkg/limiters/redisstore/connect internal/redistest",
		"only the store on Redis, its connections and the test servers talk to Redis"},
	{"go.yaml.in/",
		"pkg/descriptors/rulesfile internal/offline/rulesyaml internal/offline/yamltree " +
			"internal/offline/envoygen e2e/harness",
		"pkg/descriptors/rulesfile parses all rules, internal/offline/rulesyaml writes them, and internal/offline/yamltree " +
			"parses all files of other programs; the harness edits them"},
	{"github.com/danielgtaylor/huma", "pkg/admin", "only the admin API describes its routes"},
	{"charm.land/", "internal/cli", "only commands draw on a terminal"},
	{"github.com/gaissmai/", "pkg/descriptors pkg/descriptors/rulesfile",
		"rules have IP prefixes, and lint compares them"},
	{"go.uber.org/zap",
		"internal/receiptkeys internal/redisprobe internal/ruleload internal/settings internal/snapshot " +
			"internal/statsd internal/telemetry cmd/server",
		"other packages return errors; these log them, because the server continues after the error"},
	{"github.com/prometheus/", "internal/ratelimitstats internal/scrape internal/statsd internal/telemetry",
		"other packages return values, and these export them"},
}

// unreachable lists packages that must not reach a library, not even through other packages.
// Programs outside this module may use some of them; the others need only the types of the admin
// API.
var unreachable = []struct{ library, packages string }{
	{"google.golang.org/grpc", "pkg/decide pkg/limiters pkg/admin pkg/admin/client"},
	{"github.com/danielgtaylor/huma", "pkg/admin/client internal/decisionstream internal/shadow internal/telemetry internal/topkeys"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string // the imports, their imports and so on
}

// packages returns the packages of the module. It runs go list once.
func packages(t *testing.T) []goPackage {
	t.Helper()
	all, err := listPackages()
	must.Succeed(t, err)
	return all
}

var listPackages = sync.OnceValues(func() ([]goPackage, error) {
	var stderr strings.Builder
	list := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	var all []goPackage
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
})

func TestPackagesDoNotDependOnLibraries(t *testing.T) {
	deps := map[string][]string{}
	for _, p := range packages(t) {
		deps[strings.TrimPrefix(p.ImportPath, module)] = p.Deps
	}
	for _, row := range unreachable {
		for _, name := range strings.Fields(row.packages) {
			if deps[name] == nil {
				t.Errorf("%s does not exist", name)
			}
			if slices.ContainsFunc(deps[name], func(d string) bool { return strings.HasPrefix(d, row.library) }) {
				t.Errorf("%s depends on %s: see go mod why or go list -deps", name, row.library)
			}
		}
	}
}

func TestImportsPointOneWay(t *testing.T) {
	allowed, purpose := map[string]string{}, map[string]string{}
	used, users := map[string][]string{}, map[string][]string{}
	for _, row := range packageTable {
		allowed[row.pkg], purpose[row.pkg] = row.imports, row.purpose
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		may, known := allowed[name]
		if !known && name+"/" != module && len(p.Imports) > 0 {
			t.Errorf("%s is not in the table: add its purpose and its imports", name)
		}
		used[name] = []string{}
		for _, imported := range p.Imports {
			if inner, ours := strings.CutPrefix(imported, module); ours {
				used[name] = append(used[name], inner)
				if !slices.Contains(strings.Fields(may), inner) {
					t.Errorf("%s (it %s) may not import %s (it %s)", name, purpose[name], inner, purpose[inner])
				}
			}
			for _, h := range restricted {
				if !strings.HasPrefix(imported, h.prefix) {
					continue
				}
				users[h.prefix] = append(users[h.prefix], name)
				if !slices.Contains(strings.Fields(h.only), name) {
					t.Errorf("%s may not import %s: %s", name, imported, h.why)
				}
			}
			if inner, ours := strings.CutPrefix(imported, module+"internal/offline/"); ours && name != "internal/cli" && !strings.HasPrefix(name, "internal/offline/") {
				t.Errorf("%s may not import internal/offline/%s: only the commands that do not serve use internal/offline", name, inner)
			}
			core := strings.HasPrefix(name, "pkg/limiters") && !strings.HasPrefix(name, "pkg/limiters/redisstore")
			first, _, _ := strings.Cut(imported, "/")
			if core && strings.Contains(first, ".") && !strings.HasPrefix(imported, module) {
				t.Errorf("%s may not import %s: the core uses only the standard library", name, imported)
			}
		}
	}
	for _, row := range packageTable {
		imports, exists := used[row.pkg]
		if !exists {
			t.Errorf("the table lists %s, which does not exist", row.pkg)
			continue
		}
		for _, imported := range strings.Fields(row.imports) {
			if !slices.Contains(imports, imported) {
				t.Errorf("the table allows %s to import %s, which it does not", row.pkg, imported)
			}
		}
	}
	for _, h := range restricted {
		for _, name := range strings.Fields(h.only) {
			if !slices.Contains(users[h.prefix], name) {
				t.Errorf("restricted allows %s to import %s, which it does not", name, h.prefix)
			}
		}
	}
}
