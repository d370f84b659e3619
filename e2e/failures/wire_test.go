package failures

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/relay"
)

// A wire is a proxy in front of Redis that can disturb the traffic as networks do.
type wire struct {
	addr string

	mu     sync.Mutex
	faults *faultyNetwork
	noCopy bool // the replication stream is dropped
}

// newWire opens a wire to a server. It closes with the test.
func newWire(tb testing.TB, to string) *wire {
	tb.Helper()
	w := &wire{}
	w.addr = relay.Start(tb, func() string { return to }, w.wrap)
	return w
}

// setFaults makes the network faulty from now on, or faultless if f is nil.
func (w *wire) setFaults(f *faultyNetwork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = f
}

// forgetReplicas drops the replication stream from now on, so the replicas fall behind.
func (w *wire) forgetReplicas() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noCopy = true
}

// wrap disturbs both directions of a connection. Its client may turn out to be a replica.
func (w *wire) wrap(server, client io.Writer) (requests, replies io.Writer) {
	var replica atomic.Bool
	disturbed := func(to io.Writer, data []byte) (int, error) {
		w.mu.Lock()
		f := w.faults
		w.mu.Unlock()
		keep, goOn := len(data), true
		if f != nil {
			keep, goOn = f.disturb(len(data))
		}
		n, err := to.Write(data[:keep])
		if err == nil && !goOn {
			err = errors.New("the network has cut the connection")
		}
		return n, err
	}
	requests = relay.WriteFunc(func(data []byte) (int, error) {
		if bytes.Contains(data, []byte("PSYNC")) {
			replica.Store(true)
		}
		return disturbed(server, data)
	})
	return requests, relay.WriteFunc(func(data []byte) (int, error) {
		w.mu.Lock()
		noCopy := w.noCopy
		w.mu.Unlock()
		if noCopy && replica.Load() {
			return len(data), nil
		}
		return disturbed(client, data)
	})
}

// A faultyNetwork delays, cuts and truncates pieces of traffic, each with its own probability.
type faultyNetwork struct {
	delays, cuts, halves float64
	longest              time.Duration // the longest delay

	mu     sync.Mutex
	random *rand.Rand
	n      map[string]int // pieces by disturbance
}

func newFaultyNetwork(seed uint64) *faultyNetwork {
	return &faultyNetwork{
		delays: .02, cuts: .005, halves: .005, longest: either(400*time.Millisecond, 40*time.Millisecond),
		random: rand.New(rand.NewPCG(seed, 1)), n: map[string]int{},
	}
}

// disturb returns how many of n bytes pass, after any delay, and whether the connection continues.
func (f *faultyNetwork) disturb(n int) (keep int, goOn bool) {
	f.mu.Lock()
	p, wait := f.random.Float64(), time.Duration(0)
	keep, goOn = n, true
	switch {
	case p < f.delays:
		wait = time.Duration(f.random.Int64N(int64(f.longest)))
		f.n["delayed"]++
	case p < f.delays+f.cuts:
		keep, goOn = 0, false
		f.n["cut"]++
	case p < f.delays+f.cuts+f.halves:
		keep, goOn = n/2, false
		f.n["halved"]++
	}
	f.mu.Unlock()
	time.Sleep(wait)
	return keep, goOn
}

// counts returns the number of pieces by disturbance.
func (f *faultyNetwork) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return map[string]int{"delayed": f.n["delayed"], "cut": f.n["cut"], "halved": f.n["halved"]}
}
