package loadclient

import (
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// The number of requests matches the rate. Each is sent at most one interval after its turn, and
// none before it.
func TestTimetableMatchesRate(t *testing.T) {
	t.Parallel()
	const begin = 7 * time.Millisecond
	for _, rate := range []float64{3, 999, 1000, 10_500, 250_000.5} {
		table := timetable{begin: begin, every: float64(time.Second) / rate}
		for i := range 100_000 {
			turn := begin + time.Duration(float64(i)*table.every)
			came := table.next()
			if late := came - turn; late < 0 || late >= batchInterval || (came-begin)%batchInterval != 0 {
				t.Fatalf("rate %v: request %d, whose turn is %v, comes at %v", rate, i, turn, came)
			}
			table.n++
		}
	}
}

// Each write contains all requests that are due, and no other. A tick makes at most one write,
// because a client that wakes for each request takes CPU from the server.
func TestDueRequestsShareOneWrite(t *testing.T) {
	const rate, writes = 20_000, 300
	phase := &atomic.Int32{}
	o := &Options{Request: NewRequest("d", "a"), Users: Uniform(1), InFlight: maxInFlight, Rate: rate}
	c := &conn{o: o, phase: phase, base: time.Now(), random: rand.NewPCG(0, 1), maximum: maxStream / 2}
	c.window.Store(1 << 40)
	written, before, last := 0, uint32(0), time.Duration(0)
	c.net = writer{write: func() {
		sent := c.sent.Load()
		if most := rate*(c.now()-c.times.begin).Seconds() + 1; float64(sent) > most {
			t.Errorf("write %d: %d requests sent, of which %.0f were due", written, sent, most)
		}
		// Requests that were due after the write before are in this one, as far as they may be in
		// flight.
		due := rate * (last - batchInterval - c.times.begin).Seconds()
		if least := min(due, float64(before+maxInFlight)); last > 0 && float64(sent) < least {
			t.Errorf("write %d: %d requests sent, but %.0f were due", written, sent, least)
		}
		for ; before < sent; before++ { // answer them
			c.slot(2*before + 1).number.Store(0)
		}
		c.answered.Store(sent)
		if written++; written == writes {
			phase.Store(stopping)
		}
		last = c.now()
	}}
	must.Succeed(t, pace([]*conn{c}))
	if took := last - c.times.begin; took < (writes-1)*batchInterval {
		t.Errorf("%d writes in %v, want at most one in %v", writes, took, batchInterval)
	}
}

// A writer is a connection that is only written to.
type writer struct {
	net.Conn
	write func()
}

func (w writer) Write(b []byte) (int, error)   { w.write(); return len(b), nil }
func (writer) SetReadDeadline(time.Time) error { return nil }
