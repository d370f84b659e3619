package client

import "time"

// Requests at a rate come in bunches, as those do that a proxy finds when it looks at its sockets: on each connection one
// every so often, in one write, the connections in turn. A client that wakes for each request costs more than the server.
const (
	bunch   = time.Millisecond
	minTick = 100 * time.Microsecond
)

// A timetable says when the requests of a connection come.
type timetable struct {
	begin time.Duration // of the first bunch
	every float64       // ns: as long as a request takes of the rate
	n     float64       // requests that have come
}

// next is when the next request comes: with the first bunch that is not before its turn.
func (t *timetable) next() time.Duration {
	turn := time.Duration(t.n * t.every)
	return t.begin + (turn+bunch-1)/bunch*bunch
}

// pace sends each request when it comes, or as soon after as its connection takes it, until the run stops.
func pace(conns []*conn) error {
	tick := max(bunch/time.Duration(len(conns)), minTick)
	begin := conns[0].now()
	ticks, err := newTicker(tick)
	if err != nil {
		return err
	}
	defer ticks.stop()
	every := float64(time.Second) / conns[0].o.Rate * float64(len(conns))
	for i, c := range conns {
		c.times = timetable{begin: begin + bunch*time.Duration(i)/time.Duration(len(conns)), every: every}
	}
	for conns[0].phase.Load() != stopping {
		for _, c := range conns {
			now := c.now()
			for c.mayOpen() {
				due := c.times.next()
				if due > now {
					break
				}
				c.open(due)
				c.times.n++
			}
			_ = c.send() // the receiver fails too, and says why
		}
		if err := ticks.wait(); err != nil {
			return err
		}
	}
	for _, c := range conns {
		c.finished.Store(true)
		if c.answered.Load() == c.sent.Load() {
			_ = c.net.SetReadDeadline(time.Now()) // nothing more comes: end the wait for it
		}
	}
	return nil
}
