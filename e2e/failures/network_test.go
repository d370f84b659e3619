package failures

import (
	"fmt"
	"math"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/conform"
)

// Three replicas reach one Redis over networks that delay, cut and halve their traffic. Whatever is
// lost, no counter admits more than its limit, and no hit counts twice.
func TestFaultyNetworkNeverOverAdmits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var wires []*wire
	var faults []*faultyNetwork
	l := &load{rate: either(600, 3000)}
	const limit = 30
	users := l.rate / 100
	// Each counter gets 1.5 times its limit before other counters follow, because hits of denied
	// clients do not reach Redis.
	round := users * len(actions) * limit * 3 / 2
	l.pick = func(n int) counter {
		return counter{actions[n%len(actions)].name, n/round*users + n/len(actions)%users}
	}
	for i := range 3 {
		wires = append(wires, newWire(t, redis.Addr))
		faults = append(faults, newFaultyNetwork(uint64(i)))
		l.clients = append(l.clients, dial(t, startWeir(t, rules(limit), withLongTimeout(onRedis(wires[i].addr)...)...).GRPC))
	}
	l.start(t)
	for i, f := range faults {
		wires[i].setFaults(f)
	}
	sleep(t, either(3*time.Second, 30*time.Second))
	disturbances := map[string]int{}
	must.Until(t, "each network has delayed, cut and halved traffic", func() bool {
		clear(disturbances)
		least := math.MaxInt
		for _, f := range faults {
			for what, n := range f.counts() {
				disturbances[what] += n
				least = min(least, n)
			}
		}
		return least > 0
	})
	for _, w := range wires {
		w.setFaults(nil)
	}
	disturbed := l.end()
	all := spend(t, l.clients, disturbed)

	// Denied hits count in a window, so its counter may be higher. The counters of the other
	// actions are the admitted hits, plus at most the failed ones.
	admitted, unknown, over := all.withVerdict(allowed).byCounter(), all.withVerdict(failed).byCounter(), 0
	for c := range all.byCounter() {
		if n := admitted[c]; n > limit {
			t.Errorf("%v: %d were admitted, of %d", c, n, limit)
			over += n - limit
		}
		if n := admitted[c] + unknown[c]; n < limit {
			t.Errorf("%v: %d were admitted and %d failed, and then it was denied at a limit of %d", c, admitted[c], unknown[c], limit)
		}
	}
	t.Logf("%v; %d answers, of which %d failed", disturbances, len(disturbed), len(disturbed.withVerdict(failed)))
	record(row{
		failure: fmt.Sprintf("3 replicas, all algorithms, a network that delays (%.0f %%), cuts (%.1f %%) and halves (%.1f %%) what passes",
			100*faults[0].delays, 100*faults[0].cuts, 100*faults[0].halves),
		rate: l.rate, of: disturbed, while: disturbed, lost: "0", over: fmt.Sprint(over),
	})
}

// Over the same network, weir conform finds an order of single calls that explains each history: a
// call that failed was charged once or not at all.
func TestHistoriesOnFaultyNetworkAreLinearizable(t *testing.T) {
	t.Parallel()
	text, err := conform.Rules(conform.Algorithms())
	must.Succeed(t, err)
	w := newWire(t, redistest.Start(t).Addr)
	server := startWeir(t, text, withLongTimeout(onRedis(w.addr)...)...)
	f := newFaultyNetwork(7)
	must.Until(t, "the network has delayed, cut and halved traffic", func() bool {
		w.setFaults(nil) // a run begins with requests that need an answer
		started := sync.OnceFunc(func() { w.setFaults(f) })
		report, err := conform.Run(t.Context(), conform.Options{
			Target: server.GRPC, Algorithms: conform.Algorithms(), AllowErrors: true, Only: regexp.MustCompile(`^counting\.`), Timeout: testTimeout,
			Done: func(conform.Result) { started() },
		})
		must.Succeed(t, err)
		for _, r := range report.Checks {
			if r.Outcome == conform.Fail {
				t.Log(r.Text())
			}
		}
		if report.Failed > 0 {
			t.Fatal(report.Summary())
		}
		least := math.MaxInt
		for _, n := range f.counts() {
			least = min(least, n)
		}
		return least > 0
	})
}
