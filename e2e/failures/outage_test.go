package failures

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// An outage describes a store that fails under load and then recovers.
type outage struct {
	name  string // the row of the page
	weirs []*harness.Weir

	// fail ends the master.
	fail func()
	// countsAtPromotion returns the count of each counter on the new master, after fail and before
	// the new master serves.
	countsAtPromotion func() map[counter]int
	// awaitRecovery waits until a master serves, and returns the time.
	awaitRecovery func() time.Time
	// countsAtEnd returns the count of each counter after all its hits.
	countsAtEnd func() map[counter]int

	// stopReplication, if not nil, is called half a second before fail. The new master then lacks
	// the charges of that time.
	stopReplication func()
	// wasOnFailedMaster reports whether the failed master stored a counter. If nil, it stored every
	// counter.
	wasOnFailedMaster func(counter) bool
	// localExtra is the number of hits per counter that on_store_error: local may admit beyond the
	// limit.
	localExtra int
}

// outageLimit is the limit of each user. It is half spent when the store fails, and fully spent at
// the end.
const outageLimit = policyLimit

// A timeline holds the times of an outage, and the answers of its load.
type timeline struct {
	failedAt, diedAt time.Time // around outage.fail
	servesAt         time.Time // the new master may answer from now on
	backAt           time.Time
	counted          map[counter]int // on the new master at its promotion
	answers          answers
}

// losses are the acknowledged charges that the new master lacks.
type losses struct {
	charges, acknowledged int
	byCounter             map[counter]int // an upper bound
}

// run makes the store fail in the middle of a load, and compares the admitted hits with the counts.
// It returns the number of charges that were acknowledged and lost.
func (o *outage) run(t *testing.T) (lostCharges int) {
	t.Helper()
	l := o.startLoad(t)
	at := o.failUnder(t, l)
	lost := o.losses(at)
	over := o.checkAdmitted(t, spend(t, l.clients, at.answers), lost)
	for c, n := range o.countsAtEnd() {
		if n > outageLimit {
			t.Errorf("%v: %d counted, want at most %d", c, n, outageLimit)
		}
	}
	took := checkErrors(t, at)
	errs := at.answers.withVerdict(failed)
	t.Logf("%s: no master for %v; errors for %v; %d charges lost of %d; %d admitted over the limit; %d errors: %s",
		o.name, at.backAt.Sub(at.failedAt), took, lost.charges, lost.acknowledged, over, len(errs), errs.codes())
	record(row{
		failure: o.name, rate: l.rate, of: at.answers, while: at.answers.between(at.failedAt, at.backAt), outage: took,
		lost: fmt.Sprintf("%d of %d", lost.charges, lost.acknowledged), over: fmt.Sprint(over),
	})
	return lost.charges
}

// startLoad starts a load, and returns it when the limits are half spent.
func (o *outage) startLoad(t *testing.T) *load {
	t.Helper()
	rate := either(400, 2000)
	users := rate * 3 / outageLimit * 2 // so the limits are half spent in three seconds
	l := &load{rate: rate, pick: func(n int) counter { return counter{"first", n % users} }}
	for _, w := range o.weirs {
		l.clients = append(l.clients, dial(t, w.GRPC))
	}
	l.start(t)
	must.Until(t, "half of all is spent", func() bool { return l.answered() >= users*outageLimit/2 })
	return l
}

// failUnder makes the store fail under a load, and ends the load after the recovery.
func (o *outage) failUnder(t *testing.T, l *load) *timeline {
	t.Helper()
	if o.stopReplication != nil {
		o.stopReplication()
		stopped := time.Now()
		sleep(t, 500*time.Millisecond)
		must.Until(t, "a charge is not replicated", func() bool { return len(l.since(stopped).withVerdict(allowed)) > 0 })
	}
	c := &timeline{failedAt: time.Now()}
	o.fail()
	c.diedAt = time.Now()
	c.counted = o.countsAtPromotion()
	c.servesAt = time.Now()
	c.backAt = o.awaitRecovery()
	if *full {
		sleep(t, 10*time.Second)
	} else {
		must.Until(t, "requests no longer fail", func() bool {
			recent := l.since(c.backAt)
			return len(recent)-len(recent.withVerdict(failed)) > l.rate
		})
	}
	c.answers = l.end()
	return c
}

// losses compares the acknowledged charges with the counts of the new master. Answers before the
// new master served were acknowledged by the dead one. So were requests that were due while it
// lived: a busy client may receive their answers later.
func (o *outage) losses(c *timeline) losses {
	admitted := c.answers.withVerdict(allowed)
	lastOfMaster := c.servesAt
	if o.localExtra > 0 {
		lastOfMaster = c.diedAt // after that, Weir admits hits without a master
	}
	acknowledged := admitted.filter(func(a *answer) bool { return a.end.Before(lastOfMaster) }).byCounter()
	dueBefore := admitted.filter(func(a *answer) bool { return a.due.Before(c.diedAt) }).byCounter()
	lost := losses{acknowledged: sum(acknowledged), byCounter: map[counter]int{}}
	for key, n := range acknowledged {
		if o.wasOnFailedMaster == nil || o.wasOnFailedMaster(key) {
			lost.charges += max(0, n-c.counted[key])
			lost.byCounter[key] = max(0, n-c.counted[key], dueBefore[key]-c.counted[key])
		}
	}
	return lost
}

// checkAdmitted compares the hits of spent counters with their limits. It returns the number of
// hits that were admitted over a limit.
func (o *outage) checkAdmitted(t *testing.T, spent answers, lost losses) (over int) {
	t.Helper()
	admitted, unknown := spent.withVerdict(allowed).byCounter(), spent.withVerdict(failed).byCounter()
	for c := range spent.byCounter() {
		if n := admitted[c]; n > outageLimit+lost.byCounter[c]+o.localExtra {
			t.Errorf("%v: %d admitted, want at most %d, %d more locally, and %d lost charges", c, n, outageLimit, o.localExtra, lost.byCounter[c])
		}
		if n := admitted[c] + unknown[c]; n < outageLimit && o.localExtra == 0 {
			t.Errorf("%v: %d admitted and %d failed, want at least %d together", c, admitted[c], unknown[c], outageLimit)
		}
		over += max(0, admitted[c]-outageLimit)
	}
	return over
}

// checkErrors returns the time from the failure until requests no longer fail. A second after the
// recovery is enough. The breaker tries Redis again every 200 ms, and the client of a cluster or
// Sentinels finds the new master at its next call.
func checkErrors(t *testing.T, c *timeline) time.Duration {
	t.Helper()
	errs := c.answers.withVerdict(failed)
	before := errs.filter(func(a *answer) bool { return a.end.Before(c.failedAt) })
	slack := c.answers.failingFor(c.backAt, .05)
	if *full && slack > time.Second {
		t.Errorf("requests failed until %v after recovery, want 1s", slack)
	}
	if *full && len(before) > 0 {
		t.Errorf("%d requests failed before the outage", len(before))
	}
	if len(errs) == 0 {
		return 0
	}
	return c.backAt.Sub(c.failedAt) + slack
}

// spend charges each counter until it is denied, and returns these answers too.
func spend(t *testing.T, clients []*client, all answers) answers {
	t.Helper()
	for c := range all.byCounter() {
		for begin, tries := time.Now(), 0; ; tries++ {
			due := time.Now()
			v, err := clients[tries%len(clients)].ask(t.Context(), c)
			all = append(all, answer{counter: c, due: due, end: time.Now(), verdict: v})
			if v == denied {
				break
			}
			if time.Since(begin) > testTimeout {
				t.Fatalf("%v: not denied in %v: %v", c, testTimeout, err)
			}
			if v == failed {
				sleep(t, 20*time.Millisecond) // the breaker stays open for 200 ms
			}
		}
	}
	return all
}

// A Redis is killed and restarts with its data on disk.
func TestRedisRestartLosesOnlyUnsavedCharges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		settings []string
		keeps    bool // all acknowledged charges
	}{
		{"no AOF", []string{"--appendonly", "no"}, false},
		{"AOF, appendfsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, false},
		{"AOF, appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			server := redistest.Start(t, append(c.settings, "--dir", dir)...)
			o := &outage{name: "Redis killed and restarted: " + c.name}
			env := withLongTimeout(onRedis(server.Addr)...)
			if c.keeps {
				env = append(onRedis(server.Addr), "STORE_TIMEOUT=150ms") // each answer waits for the disk
			}
			o.weirs = []*harness.Weir{startWeir(t, rules(outageLimit), env...)}
			o.fail = server.Stop
			o.countsAtPromotion = func() map[counter]int {
				// Another Redis reads a copy of the disk, which shows the counts after the restart.
				copied := t.TempDir()
				must.Succeed(t, os.CopyFS(copied, os.DirFS(dir)))
				reader := redistest.Start(t, append(c.settings, "--dir", copied)...)
				defer reader.Stop()
				return storedCounts(t, reader.Addr)
			}
			o.awaitRecovery = func() time.Time {
				again, err := redistest.Run(server.Addr, append(c.settings, "--dir", dir)...)
				must.Succeed(t, err)
				t.Cleanup(again.Stop)
				return time.Now()
			}
			o.countsAtEnd = func() map[counter]int { return storedCounts(t, server.Addr) }
			if lost := o.run(t); c.keeps && lost > 0 {
				t.Errorf("%d charges were lost, want none", lost)
			}
		})
	}
}

// A master is killed, and Sentinels promote its replica, which lacks the charges that were not yet
// replicated.
func TestSentinelFailoverLosesOnlyUnreplicatedCharges(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"error", "local"} {
		t.Run(policy, func(t *testing.T) {
			var before *wire
			s := redistest.StartSentinelsBehind(t, "limits", 3, redistest.Secrets{}, func(addr string) string {
				before = newWire(t, addr)
				return before.addr
			})
			env := withLongTimeout(
				"BACKEND_TYPE=redis", "REDIS_TYPE=SENTINEL", "REDIS_SOCKET_TYPE=tcp",
				"REDIS_URL=limits,"+strings.Join(s.Addrs(), ","), "REPLICAS=2",
			)
			text := rules(outageLimit, "on_store_error: "+policy+"\n")
			o := &outage{
				name:            "Sentinel failover, replication half a second behind, on_store_error: " + policy,
				weirs:           []*harness.Weir{startWeir(t, text, env...), startWeir(t, text, env...)},
				stopReplication: before.forgetReplicas,
				fail: func() {
					s.DetectFailures(t)
					s.Master.Stop()
				},
				countsAtPromotion: func() map[counter]int {
					s.Replica.Await(t, "master_link_status:down")
					return storedCounts(t, s.Replica.Addr)
				},
				awaitRecovery: func() time.Time {
					s.AwaitMaster(t, s.Replica)
					return time.Now()
				},
				countsAtEnd: func() map[counter]int { return storedCounts(t, s.Replica.Addr) },
			}
			if policy == "local" {
				o.localExtra = 2 * shareOf2
			}
			if lost := o.run(t); lost == 0 {
				t.Error("no charge was lost: the replica was not behind, so the lag was not tested")
			}
		})
	}
}

// A master of a cluster is killed, and the others promote its replica.
func TestClusterFailoverLosesOnlyUnreplicatedCharges(t *testing.T) {
	t.Parallel()
	var wires []*wire
	c := redistest.StartClusterBehind(t, 3, func(addr string) string {
		wires = append(wires, newWire(t, addr))
		return wires[len(wires)-1].addr
	})
	replicas := c.Replicate(t)
	env := withLongTimeout(
		"BACKEND_TYPE=redis", "REDIS_TYPE=CLUSTER", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+strings.Join(c.Addrs(), ","),
	)
	survivors := append([]*redistest.Server{replicas[0]}, c.Servers[1:]...)
	var onFailedMaster map[counter]int
	o := &outage{
		name:              "cluster failover, replication half a second behind",
		weirs:             []*harness.Weir{startWeir(t, rules(outageLimit), env...), startWeir(t, rules(outageLimit), env...)},
		stopReplication:   wires[0].forgetReplicas,
		wasOnFailedMaster: func(c counter) bool { return onFailedMaster[c] > 0 },
		countsAtPromotion: func() map[counter]int {
			replicas[0].Await(t, "master_link_status:down")
			return storedCounts(t, replicas[0].Addr)
		},
		awaitRecovery: func() time.Time {
			replicas[0].Await(t, "role:master")
			for _, s := range survivors {
				redistest.Await(t, "the cluster as "+s.Addr+" sees it", func(ctx context.Context) error {
					info, err := s.Client(t).ClusterInfo(ctx).Result()
					if err == nil && !strings.Contains(info, "cluster_state:ok") {
						err = errors.New(info)
					}
					return err
				})
			}
			return time.Now()
		},
		countsAtEnd: func() map[counter]int {
			all := map[counter]int{}
			for _, s := range survivors {
				maps.Copy(all, storedCounts(t, s.Addr))
			}
			return all
		},
	}
	o.fail = func() {
		onFailedMaster = storedCounts(t, c.Servers[0].Addr)
		c.Servers[0].Stop()
	}
	if lost := o.run(t); lost == 0 {
		t.Error("no charge was lost: the replica was not behind, so the lag was not tested")
	}
}

// Slots move to another node under load: no request fails, no charge is lost, and no request beyond
// a limit is admitted.
func TestClusterReshardingLosesNoCharge(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	env := withLongTimeout(
		"BACKEND_TYPE=redis", "REDIS_TYPE=CLUSTER", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+strings.Join(c.Addrs(), ","),
	)
	moved := 0
	o := &outage{
		name:              "cluster resharding",
		weirs:             []*harness.Weir{startWeir(t, rules(outageLimit), env...), startWeir(t, rules(outageLimit), env...)},
		wasOnFailedMaster: func(counter) bool { return false },
		countsAtPromotion: func() map[counter]int { return nil },
	}
	o.fail = func() {
		// Half of the first node's slots that have keys.
		for _, slot := range c.SlotsWithKeys(t, 0) {
			if moved++; moved%2 == 0 {
				c.OpenSlot(t, slot, 0, 1)
				c.MoveKeys(t, slot, 0, 1)
				c.AssignSlot(t, slot, 1)
			}
		}
	}
	o.awaitRecovery = time.Now
	o.countsAtEnd = func() map[counter]int {
		all := map[counter]int{}
		for _, s := range c.Servers {
			maps.Copy(all, storedCounts(t, s.Addr))
		}
		return all
	}
	o.run(t)
	if moved < 10 {
		t.Errorf("%d slots had keys, want at least 10: too few charges cross a move", moved)
	}
}
