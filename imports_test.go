// Package weir holds no code: it is the root of the module, and of the rules that hold for all of it.
package weir

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-rls/weir/"

// mayImport is the house: each package, the packages of this module that it may import, and the reason. An arrow that is
// not here is a fault, and so is a package.
var mayImport = []struct{ pkg, may, why string }{
	{"pkg/limiters", "", "the core: the decision is a pure function, and can be read alone"},
	{"pkg/limiters/memstore", "pkg/limiters", "a store keeps states and decides nothing"},
	{"pkg/redisscripts", "", "Lua, embedded"},
	{"pkg/limiters/redisstore", "pkg/limiters pkg/limiters/redisstore/connect pkg/redisscripts", "a store keeps states and decides nothing"},
	{"pkg/limiters/redisstore/connect", "internal/socket", "connections to Redis: URL, passwords, TLS; it decides nothing"},
	{"pkg/limiters/guard", "pkg/limiters", "it stands before a store and knows none"},
	{"pkg/limiters/limiterstest", "pkg/limiters", "the suite knows no store"},
	{"pkg/descriptors", "pkg/limiters", "finds the limits of a request, and knows no YAML"},
	{"pkg/descriptors/rulesfile", "pkg/descriptors pkg/limiters", "reads YAML and builds rules"},
	{"pkg/descriptors/sources", "pkg/descriptors/rulesfile", "a source hands files on"},
	{"pkg/descriptors/sources/xds", "internal/backoff pkg/descriptors/rulesfile pkg/descriptors/sources/xds/ratelimitconfigv3", "a source hands files on"},
	{"pkg/descriptors/sources/xds/ratelimitconfigv3", "", "generated"},
	{"pkg/decide", "pkg/descriptors pkg/limiters", "a decision exists without a protocol, and never sees which store there is"},
	{"pkg/rls", "pkg/decide pkg/descriptors pkg/limiters", "Envoy's protocol: decode, decide, encode"},
	{"internal/settings", "", "a table"},
	{"internal/socket", "", "one system call"},
	{"internal/admission", "internal/backoff internal/socket", "load shedding knows no protocol but HTTP"},
	{"internal/backoff", "", "a policy of waits"},
	{"internal/gctune", "", "settings of the collector"},
	{"internal/snapshot", "pkg/limiters/memstore", "a file"},
	{"internal/listeners", "", "sockets"},
	{"internal/tlsfiles", "", "TLS configurations from PEM files"},
	{"internal/tracing", "internal/settings pkg/limiters pkg/limiters/guard", "a store that is traced is a store"},
	{"internal/telemetry", "pkg/decide pkg/descriptors pkg/limiters pkg/rls", "reads decisions and knows no store"},
	{"internal/ratelimitstats", "pkg/decide pkg/descriptors pkg/limiters pkg/rls", "the metrics of envoyproxy/ratelimit, from decisions"},
	{"internal/statsd", "", "sends counters of any source"},
	{"internal/certtest", "", "certificates, for tests alone"},
	{"internal/redistest", "internal/certtest", "real Redis servers, for tests alone"},
	{"cmd/server", "internal/admission internal/backoff internal/gctune internal/listeners internal/ratelimitstats internal/settings internal/snapshot " +
		"internal/statsd internal/telemetry internal/tlsfiles internal/tracing pkg/decide pkg/descriptors " +
		"pkg/descriptors/rulesfile pkg/descriptors/sources pkg/descriptors/sources/xds pkg/limiters pkg/limiters/guard pkg/limiters/memstore " +
		"pkg/limiters/redisstore pkg/limiters/redisstore/connect pkg/rls", "the only place that knows every package"},
	{"e2e/harness", "", "processes, known by their command lines alone"},
	{"e2e/demo", "e2e/harness internal/redistest", "what make demo runs"},
	{"e2e/seeds", "", "tests alone"},
	{"e2e/faults", "", "tests alone"},
	{"bench", "internal/loadclient e2e/harness", "processes, known by their command lines alone"},
	{"internal/loadclient", "internal/socket", "it knows the wire, and no server"},
	{"bench/bare", "", "what Weir is measured against is none of it"},
	{"bench/load", "internal/loadclient", "the client by itself"},
	{"tools/faults", "", "checks the suite"},
}

// heavy are the libraries that only some packages may see, and the reason.
var heavy = []struct{ prefix, only, why string }{
	{"google.golang.org/grpc", "pkg/rls pkg/descriptors/sources/xds internal/ratelimitstats internal/telemetry internal/tracing cmd/server bench/bare",
		"the wire stops at the door"},
	{"google.golang.org/protobuf", "pkg/rls pkg/descriptors/sources/xds pkg/descriptors/sources/xds/ratelimitconfigv3",
		"the wire stops at the door"},
	{"github.com/envoyproxy/", "pkg/rls pkg/descriptors/sources/xds cmd/server bench/bare", "the wire stops at the door"},
	{"go.opentelemetry.io/", "internal/tracing", "who traces is one room"},
	{"github.com/redis/", "pkg/limiters/redisstore pkg/limiters/redisstore/connect internal/redistest", "one client, in one room"},
	{"go.yaml.in/", "pkg/descriptors/rulesfile e2e/harness", "YAML stops where it is parsed"},
	{"go.uber.org/zap", "internal/settings internal/statsd internal/telemetry cmd/server", "packages return errors; the process logs"},
	{"github.com/prometheus/", "internal/ratelimitstats internal/statsd internal/telemetry", "packages return values; the process measures"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	known := map[string]string{}
	for _, line := range mayImport {
		known[line.pkg] = line.may
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		may, found := known[name]
		if !found && name+"/" != module && len(p.Imports) > 0 {
			t.Errorf("%s is not in the table: say what it is for, and what it may import", name)
		}
		for _, imported := range p.Imports {
			if inner, ours := strings.CutPrefix(imported, module); ours && !slices.Contains(strings.Fields(may), inner) {
				t.Errorf("%s may not import %s", name, inner)
			}
			for _, h := range heavy {
				if strings.HasPrefix(imported, h.prefix) && !slices.Contains(strings.Fields(h.only), name) {
					t.Errorf("%s may not import %s: %s", name, imported, h.why)
				}
			}
		}
		if strings.HasPrefix(name, "pkg/limiters") && !strings.HasPrefix(name, "pkg/limiters/redisstore") {
			for _, imported := range p.Imports {
				if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") && !strings.HasPrefix(imported, module) {
					t.Errorf("%s may not import %s: the core sees the standard library", name, imported)
				}
			}
		}
	}
}
