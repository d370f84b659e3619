package redisstore

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// Redis rejects and announces in these tests what managed services reject and announce.
// docs/stores.md lists the services.

// refusedCommands are commands that some managed service refuses, and that Weir does not need.
var refusedCommands = []string{
	"acl", "bgrewriteaof", "bgsave", "client", "command", "config", "debug", "flushall", "flushdb", "hello", "info", "keys", "lastsave",
	"latency", "memory", "migrate", "module", "monitor", "object", "psync", "readonly", "readwrite", "replicaof", "role", "save", "script",
	"shutdown", "slaveof", "slowlog", "swapdb", "sync", "wait",
}

// passes runs the suite for make stores, and otherwise its traces: these servers differ only in
// what they refuse and announce.
func passes(t *testing.T, open func(t *testing.T) limiterstest.TimedStore) {
	t.Helper()
	if os.Getenv("STORES_WHOLE_SUITE") == "1" {
		limiterstest.RunReduced(t, open)
		return
	}
	limiterstest.RunTraces(t, open(t))
}

// A managed service rejects a command as unknown, or with NOPERM.
func TestServiceThatRefusesCommandsPassesTheSuite(t *testing.T) {
	t.Parallel()
	var settings []string
	for _, name := range refusedCommands {
		if name != "config" && name != "flushall" { // the test needs them
			settings = append(settings, "--rename-command", name, "")
		}
	}
	unknown := redistest.Start(t, append(settings, "--requirepass", "secret")...)
	unknown.Login("", "secret")
	forbidden := redistest.Start(t)
	rules := []string{"on", ">secret", "~weir:*", "&*", "+@all", "-cluster"}
	for _, name := range refusedCommands {
		rules = append(rules, "-"+name)
	}
	forbidden.SetUser(t, "weir", rules...)
	for name, c := range map[string]struct {
		server *redistest.Server
		auth   string
	}{"unknown": {unknown, "secret"}, "forbidden": {forbidden, "weir:secret"}} {
		t.Run(name, func(t *testing.T) {
			at := connect.Options{Addr: c.server.Addr}
			at.Login.Set(c.auth)
			passes(t, func(t *testing.T) limiterstest.TimedStore {
				must.Succeed(t, c.server.Client(t).FlushAll(context.Background()).Err())
				return openAt(t, at, Options{KeyPrefix: "weir:"})
			})
			if r, err := openAt(t, at).Probe(t.Context()); r.EvictionPolicy != "" || err != nil {
				t.Errorf("%+v, %v: want neither a policy, which this server does not show, nor an error", r, err)
			}
		})
	}
}

// The documented ACL rejects none of the commands that Weir sends.
func TestACLUserIsRefusedNothing(t *testing.T) {
	server := redistest.Start(t)
	server.SetUser(t, "weir", append(slices.Clone(aclRules), adminRules...)...)
	s := openAt(t, connect.Options{Addr: server.Addr, Login: connect.Login{Username: "weir", Password: "secret"}}, Options{KeyPrefix: "weir:"})
	if _, err := take(s, opsOf("a", "b")...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	refusedNothing(t, server)
}

// refusedNothing fails the test if the server has refused a command.
func refusedNothing(t *testing.T, server *redistest.Server) {
	t.Helper()
	if log, err := server.Client(t).ACLLog(t.Context(), 100).Result(); err != nil || len(log) > 0 {
		t.Errorf("the server refused %+v, %v, want nothing", log, err)
	}
}

// A managed cluster has TLS, and announces host names: its certificate is for no address. It
// refuses most commands for administrators.
func TestManagedClusterPassesTheSuite(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	redistest.Start(t).NeedSetting(t, "cluster-preferred-endpoint-type")
	c, at := redistest.StartTLSCluster(t, authority, 3, []string{"localhost"},
		"--cluster-preferred-endpoint-type", "hostname", "--cluster-announce-hostname", "localhost")
	rules := []string{"on", ">secret", "~weir:*", "&*", "+@all", "-cluster", "+cluster|slots"}
	for _, name := range refusedCommands {
		rules = append(rules, "-"+name)
	}
	for _, server := range c.Servers {
		server.SetUser(t, "weir", rules...)
		redistest.Await(t, "the names", func(ctx context.Context) error {
			slots, err := server.Client(t).Do(ctx, "cluster", "slots").Result()
			if text := fmt.Sprint(slots); err == nil && strings.Count(text, "localhost") < len(c.Servers) {
				err = fmt.Errorf("they are not known: %s", text)
			}
			return err
		})
	}
	_, port, _ := net.SplitHostPort(at)
	open := func(t *testing.T) *testStore {
		t.Helper()
		return openEndpoint(t, "localhost:"+port, tlsfiles.Client{CA: authority.File})
	}
	passes(t, func(t *testing.T) limiterstest.TimedStore {
		c.FlushAll(t)
		return open(t)
	})
	if r, err := open(t).Probe(t.Context()); r.EvictionPolicy != "" || err != nil {
		t.Errorf("%+v, %v: want neither a policy, which this cluster does not show, nor an error", r, err)
	}
}

// openEndpoint opens a store on a cluster of the user weir. One tag puts all keys into one hash
// slot.
func openEndpoint(t *testing.T, endpoint string, files tlsfiles.Client) *testStore {
	t.Helper()
	config, err := files.Config()
	must.Succeed(t, err)
	o := Options{KeyPrefix: "weir:"}
	oneSlot(nil, &o)
	return openAt(t, connect.Options{
		Type: connect.Cluster, Addrs: []string{endpoint}, TLS: config, Login: connect.Login{Username: "weir", Password: "secret"},
	}, o)
}

// Some services announce addresses, and have one certificate for the name of the endpoint. Only
// REDIS_TLS_SKIP_HOSTNAME_VERIFICATION connects to the nodes of such a cluster.
func TestClusterOfAddressesUnderOneCertificate(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	c, at := redistest.StartTLSCluster(t, authority, 3, []string{"endpoint.weir.test"})
	for _, server := range c.Servers {
		server.SetUser(t, "weir", append(aclRules, clusterRules...)...)
	}
	for _, skip := range []bool{false, true} {
		s := openEndpoint(t, at, tlsfiles.Client{CA: authority.File, SkipHostname: skip})
		out, err := take(s, opsOf("a")...)
		if !skip && (err == nil || !strings.Contains(err.Error(), "certificate")) || skip && (err != nil || out[0].Used != 1) {
			t.Errorf("skip the host name: %v: %+v, %v", skip, out, err)
		}
	}
}

// A cluster may announce its nodes without a host. Weir does not read that, and reports what to
// set.
func TestClusterThatAnnouncesNoHostIsReported(t *testing.T) {
	t.Parallel()
	redistest.Start(t).NeedSetting(t, "cluster-preferred-endpoint-type")
	c := redistest.StartCluster(t, 2, "--cluster-preferred-endpoint-type", "unknown-endpoint")
	_, err := take(openAt(t, connect.Options{Type: connect.Cluster, Addrs: c.Addrs()}), opsOf("a")...)
	if err == nil || !strings.Contains(err.Error(), "set cluster-preferred-endpoint-type to ip or hostname") {
		t.Errorf("%v, want what to set", err)
	}
}

// Some services have one endpoint for a cluster. As the type single it decides no call over several
// hash slots.
func TestClusterAsSingleIsReported(t *testing.T) {
	t.Parallel()
	one, two := redistest.StartCluster(t, 1), redistest.StartCluster(t, 2)
	for want, c := range map[string]struct {
		cluster *redistest.Cluster
		keys    []string
	}{"CROSSSLOT": {one, []string{"a", "b"}}, "MOVED": {two, keysOn(two, 1, 1)}} {
		_, err := take(openAt(t, connect.Options{Addr: c.cluster.Servers[0].Addr}), opsOf(c.keys...)...)
		if err == nil || !strings.Contains(err.Error(), "set REDIS_TYPE, or REDIS_PERSECOND_TYPE, to CLUSTER: "+want) {
			t.Errorf("%v, want %s and what to set", err, want)
		}
	}
}

// Services end idle connections. The next call uses another connection, and is charged once.
func TestIdleConnectionsThatRedisEndsFailNoCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--timeout", "1")
	l := newLedger(t, openAt(t, connect.Options{Addr: server.Addr}), "k")
	watcher := server.Client(t)
	for range 2 {
		must.Succeed(t, l.charge())
		redistest.Await(t, "the end of idle connections", func(ctx context.Context) error {
			list, err := watcher.ClientList(ctx).Result()
			if n := strings.Count(list, "cmd=evalsha") + strings.Count(list, "cmd=eval "); err == nil && n > 0 {
				err = fmt.Errorf("%d connections", n)
			}
			return err
		})
	}
	if err := l.charge(); err != nil {
		t.Error(err)
	}
	l.verify()
}
