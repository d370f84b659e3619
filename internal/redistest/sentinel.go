package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
)

// A SentinelSet is a master, its replica, and their Sentinels, which promote the replica only after
// [SentinelSet.DetectFailures].
type SentinelSet struct {
	Name            string // the master's name, for Sentinels
	Master, Replica *Server
	Sentinels       []*Server

	announced string // the master's address for the others
}

// Secrets are the passwords of a SentinelSet. An empty one disables authentication.
type Secrets struct{ Redis, Sentinel string }

// StartSentinels starts a master, a replica, and Sentinels that decide by majority. It returns once
// every Sentinel knows the replica and the other Sentinels. All of them end with the test.
func StartSentinels(tb testing.TB, name string, sentinels int, secrets Secrets) *SentinelSet {
	tb.Helper()
	return StartSentinelsBehind(tb, name, sentinels, secrets, func(addr string) string { return addr })
}

// StartSentinelsBehind is like StartSentinels with a proxy in front of the master. behind receives
// the master's address and returns the address that the replica and the Sentinels use.
func StartSentinelsBehind(
	tb testing.TB, name string, sentinels int, secrets Secrets, behind func(addr string) string,
) *SentinelSet {
	tb.Helper()
	var settings []string
	if secrets.Redis != "" {
		settings = append(settings, "--requirepass", secrets.Redis, "--masterauth", secrets.Redis)
	}
	redisWith := func(more ...string) *Server {
		args := append([]string{"--dir", tb.TempDir(), "--repl-diskless-sync-delay", "0"}, settings...)
		s := Start(tb, append(args, more...)...)
		s.Login("", secrets.Redis)
		return s
	}
	set := &SentinelSet{Name: name, Master: redisWith()}
	set.announced = behind(set.Master.Addr)
	host, port, _ := net.SplitHostPort(set.announced)
	set.Replica = redisWith("--replicaof", host, port)
	set.Replica.Await(tb, "master_link_status:up")
	for range sentinels {
		set.Sentinels = append(set.Sentinels, startSentinel(tb, set, sentinels/2+1, secrets))
	}
	for _, s := range set.Sentinels {
		Await(tb, "Sentinel at "+s.Addr, func(ctx context.Context) error { return s.seesAll(ctx, name, sentinels-1) })
	}
	return set
}

// A busy machine can stop a server for longer than a Sentinel waits for a reply. The failover that
// follows closes every connection to the old master, so each test selects the time from which a
// failover is possible.
const (
	never     = 24 * time.Hour
	downAfter = time.Second
)

// DetectFailures lets the Sentinels promote the replica when the master has not replied for a
// second.
func (set *SentinelSet) DetectFailures(tb testing.TB) {
	tb.Helper()
	for _, s := range set.Sentinels {
		s.do(tb, "sentinel", "set", set.Name, "down-after-milliseconds", downAfter.Milliseconds())
	}
}

func startSentinel(tb testing.TB, set *SentinelSet, quorum int, secrets Secrets) *Server {
	tb.Helper()
	addr, dir := FreeAddr(tb), tb.TempDir()
	host, port, _ := net.SplitHostPort(addr)
	masterHost, masterPort, _ := net.SplitHostPort(set.announced)
	conf := fmt.Sprintf("bind %s\nport %s\ndir %s\nsentinel monitor %s %s %s %d\n"+
		"sentinel down-after-milliseconds %[4]s %[8]d\nsentinel failover-timeout %[4]s 5000\n",
		host, port, dir, set.Name, masterHost, masterPort, quorum, never.Milliseconds())
	if secrets.Redis != "" {
		conf += fmt.Sprintf("sentinel auth-pass %s %q\n", set.Name, secrets.Redis)
	}
	if secrets.Sentinel != "" {
		conf += fmt.Sprintf("requirepass %q\nsentinel sentinel-pass %[1]q\n", secrets.Sentinel)
	}
	path := filepath.Join(dir, "sentinel.conf")
	must.Succeed(tb, os.WriteFile(path, []byte(conf), 0o600))
	s, err := launch(redis.Options{Addr: addr, Password: secrets.Sentinel}, []string{path, "--sentinel"})
	return stopAtCleanup(tb, s, err)
}

func (s *Server) seesAll(ctx context.Context, name string, others int) error {
	login := s.login
	c := redis.NewSentinelClient(&login)
	defer c.Close()
	master, err := c.Master(ctx, name).Result()
	if err != nil {
		return err
	}
	if master["flags"] != "master" || master["num-slaves"] != "1" || master["num-other-sentinels"] != fmt.Sprint(others) {
		return fmt.Errorf("it sees %q", master)
	}
	return nil
}

// Addrs returns the addresses of the Sentinels.
func (set *SentinelSet) Addrs() []string { return addrs(set.Sentinels) }

// AwaitMaster waits until every Sentinel reports a server as the master.
func (set *SentinelSet) AwaitMaster(tb testing.TB, s *Server) {
	tb.Helper()
	for _, sentinel := range set.Sentinels {
		Await(tb, s.Addr+" to be the master", func(ctx context.Context) error {
			login := sentinel.login
			c := redis.NewSentinelClient(&login)
			defer c.Close()
			at, err := c.GetMasterAddrByName(ctx, set.Name).Result()
			if err == nil && (len(at) != 2 || net.JoinHostPort(at[0], at[1]) != s.Addr) {
				err = fmt.Errorf("%s says that %q is", sentinel.Addr, at)
			}
			return err
		})
	}
}
