package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// aclRules are the permissions that Weir needs. A cluster also needs clusterRules.
var (
	aclRules = []string{
		"on", ">secret", "~weir:*", "+eval", "+evalsha", "+time", "+get", "+mget", "+set", "+setrange", "+append", "+del", "+pexpire",
		"+hdel", "+hgetall", "+hlen", "+hmget", "+hset", "+lindex", "+llen", "+lrange", "+lset", "+ltrim", "+rpush",
		"+zadd", "+zmscore", "+zrange", "+zrangebyscore", "+zrem", "+zscore", "+ping", "+select", "+info",
	}
	clusterRules = []string{"+cluster|slots", "+asking"}
	// adminRules are the permissions that resets by the admin API need.
	adminRules = []string{"resetchannels", "&weir:*", "+unlink", "+scan", "+publish", "+subscribe"}
)

func TestStoreByURLPassesTheSuite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "secret")
	server.Login("", "secret")
	limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
		o, err := connect.ParseURL(connect.Single, "tcp", "redis://:secret@"+server.Addr+"/2")
		must.Succeed(t, err)
		return openAt(t, o)
	})
	if n := server.Client(t).DBSize(context.Background()).Val(); n != 0 {
		t.Errorf("%d keys in the database 0, want all in 2", n)
	}
}

func TestACLUserPassesTheSuite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.SetUser(t, "weir", append(slices.Clone(aclRules), adminRules...)...)
	limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
		o, err := connect.ParseURL(connect.Single, "tcp", server.Addr)
		must.Succeed(t, err)
		o.Login.Set("weir:secret")
		return openAt(t, o, Options{KeyPrefix: "weir:"})
	})
	s := openAt(t, connect.Options{Addr: server.Addr, Login: connect.Login{Username: "weir", Password: "secret"}}, Options{KeyPrefix: "weir:"})
	if r, err := s.Probe(t.Context()); r.EvictionPolicy != noEviction || r.RoundTrip <= 0 || err != nil {
		t.Errorf("probed %+v, %v: want the policy %s", r, err, noEviction)
	}
}

// An ACL of a version before leases suffices for all other limits, also with penalties. It fails
// the operations of limits with leases, and no other operation of their call.
func TestOnlyLeasesNeedSortedSetsAndHashes(t *testing.T) {
	server := redistest.Start(t)
	old := slices.DeleteFunc(slices.Clone(aclRules), func(rule string) bool {
		return strings.HasPrefix(rule, "+z") || strings.HasPrefix(rule, "+h") || rule == "+lrange"
	})
	server.SetUser(t, "weir", old...)
	s := openAt(t, connect.Options{Addr: server.Addr, Login: connect.Login{Username: "weir", Password: "secret"}}, Options{KeyPrefix: "weir:"})
	for _, name := range limiterstest.WindowedAlgorithms() {
		penalty := limiterstest.MustLimit(limiters.Spec{
			Algorithm: name, Max: 1, Window: time.Hour, Params: limiters.Params{Penalty: limiters.PenaltySpec{After: 2, Within: time.Minute, For: 2 * time.Hour}},
		})
		penalized := limiters.Op{Key: "penalty", Limit: penalty, Hits: 1}
		out, err := take(s, penalized, penalized, penalized, penalized)
		if err != nil || out[0].Err != nil || !out[0].Allowed || !out[3].Penalized {
			t.Errorf("%s with a penalty: %+v, %v", name, out, err)
		}
	}
	for _, limit := range append(withExtraState(5), slotsOfKey(5, time.Hour)) {
		lease := limiters.Op{Key: "lease", Limit: limit, Hits: 1, Lease: leaseID(1)}
		end := lease
		end.Kind = limiters.OpEnd
		out, err := take(s, lease, opsOf("beside")[0], end)
		if err != nil || out[1].Err != nil {
			t.Fatal(out, err)
		}
		if !forbidden(out[0].Err) || !forbidden(out[2].Err) {
			t.Errorf("%s with leases: %+v; want errors that Redis forbids a command", limit.Algorithm(), out)
		}
	}
}

// forbiddenTexts are parts of the errors with which the versions of Redis forbid a command.
var forbiddenTexts = []string{"can't run this command", "no permissions"}

// forbidden reports whether an error is that an ACL forbids a command.
func forbidden(err error) bool {
	text := strings.ToLower(fmt.Sprint(err))
	return slices.ContainsFunc(forbiddenTexts, func(part string) bool { return strings.Contains(text, part) })
}

// SECURITY.md lists the permissions that these tests use.
func TestSecurityPageListsTheTestedACL(t *testing.T) {
	text := must.Read(t, "../../../SECURITY.md")
	for _, want := range []string{
		"ACL SETUSER weir on >PASSWORD " + strings.Join(aclRules[2:], " ") + "\n", "`" + strings.Join(clusterRules, " ") + "`",
		"`" + strings.Join(adminRules, " ") + "`",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("SECURITY.md does not say %q", want)
		}
	}
}

func TestAuthErrorsShowNoPassword(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "other")
	for _, auth := range []string{"", "secret", "me:secret"} {
		o := connect.Options{Addr: server.Addr}
		o.Login.Set(auth)
		_, err := take(openAt(t, o), limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		if !errors.Is(err, ErrAuth) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), server.Addr) {
			t.Errorf("%q: %v: want ErrAuth, with %s and no password", auth, err, server.Addr)
		}
	}
}

// A server that does not know a command quotes its arguments.
func TestErrorsDoNotQuoteCommands(t *testing.T) {
	for _, unknown := range []string{"AUTH", "EVALSHA"} {
		t.Run(unknown, func(t *testing.T) {
			server := redistest.Start(t, "--rename-command", unknown, "")
			o := connect.Options{Addr: server.Addr}
			if unknown == "AUTH" {
				o.Login.Set("me:secret")
			}
			s := openAt(t, o)
			_, err := take(s, limiters.Op{Key: "alice", Limit: hourly, Hits: 1})
			_, probed := s.Probe(t.Context())
			if err == nil || !unknownCommand(err.Error(), unknown) {
				t.Errorf("%v: want an error that names the command", err)
			}
			for _, said := range []string{"secret", "alice"} {
				if strings.Contains(fmt.Sprint(err, probed), said) {
					t.Errorf("%v, %v: want an error without %s", err, probed, said)
				}
			}
		})
	}
}

// unknownCommand reports whether an error is about an unknown command, in the quotes of any version
// of Redis.
func unknownCommand(text, command string) bool {
	_, rest, found := strings.Cut(strings.ToUpper(text), "UNKNOWN COMMAND ")
	return found && strings.HasPrefix(strings.TrimLeft(rest, "'`"), command)
}

func TestSentinelPassesTheSuite(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinels(t, "mymaster", 3, redistest.Secrets{Redis: "of redis", Sentinel: "of sentinel"})
	url := "mymaster," + strings.Join(w.Addrs(), ",")
	open := func(t *testing.T, url string) *testStore {
		t.Helper()
		o, err := connect.ParseURL(connect.Sentinel, "", url)
		must.Succeed(t, err)
		o.Login.Set("of redis")
		o.SentinelLogin.Set("of sentinel")
		return openAt(t, o)
	}
	limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, w.Master.Client(t).FlushAll(context.Background()).Err())
		return open(t, url)
	})
	limiterstest.RunRaces(t, []limiters.Store{open(t, url), open(t, url), open(t, url)})
	if r, err := open(t, url).Probe(t.Context()); err != nil || r.EvictionPolicy != noEviction {
		t.Errorf("%+v, %v, want %q", r, err, noEviction)
	}
	// One reachable Sentinel is enough.
	gone := redistest.FreeAddr(t)
	if _, err := take(open(t, "mymaster,"+gone+","+w.Sentinels[0].Addr), opsOf("one")...); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"nobody": "the Sentinels know no master of that name", "mymaster": gone,
	} {
		at := w.Sentinels[0].Addr
		if name == "mymaster" {
			at = gone
		}
		_, err := take(open(t, name+","+at), limiters.Op{Key: "k", Limit: hourly, Hits: 1})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the master %s of the Sentinels %s", name, at)) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%v: want it to name %s, %s, and to say %q", err, name, at, text)
		}
	}
}
