package failures

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// A wire is a proxy in front of Redis that can disturb the traffic as networks do.
type wire struct {
	addr string
	to   string
	l    net.Listener

	mu      sync.Mutex
	open    map[net.Conn]bool
	faults  *faultyNetwork
	noCopy  bool // the replication stream is dropped
	pumping sync.WaitGroup
}

// newWire opens a wire to a server. It closes with the test.
func newWire(tb testing.TB, to string) *wire {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(tb, err)
	w := &wire{addr: l.Addr().String(), to: to, l: l, open: map[net.Conn]bool{}}
	w.pumping.Go(w.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		w.cutAll()
		w.pumping.Wait()
	})
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

func (w *wire) cutAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Close()
	}
	w.open = map[net.Conn]bool{}
}

func (w *wire) accept() {
	for {
		client, err := w.l.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", w.to, time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.open[client], w.open[server] = true, true
		w.mu.Unlock()
		replica := make(chan struct{})
		w.pumping.Go(func() { w.pump(client, server, replica, true) })
		w.pumping.Go(func() { w.pump(server, client, replica, false) })
	}
}

// pump forwards the bytes of one side until either side ends. replica is closed when a client turns
// out to be a replica.
func (w *wire) pump(from, to net.Conn, replica chan struct{}, asks bool) {
	defer func() {
		_, _ = from.Close(), to.Close()
		w.mu.Lock()
		delete(w.open, from)
		delete(w.open, to)
		w.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	known := false
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if asks && !known && bytes.Contains(buf[:n], []byte("PSYNC")) {
			close(replica)
			known = true
		}
		w.mu.Lock()
		f, noCopy := w.faults, w.noCopy
		w.mu.Unlock()
		if !asks && noCopy && isClosed(replica) {
			continue
		}
		keep, goOn := n, true
		if f != nil {
			keep, goOn = f.disturb(n)
		}
		if _, err := io.Copy(to, bytes.NewReader(buf[:keep])); err != nil || !goOn {
			return
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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
