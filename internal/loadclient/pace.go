package loadclient

import "time"

// Requests at a rate are sent in batches, like those of a proxy that polls its sockets. Connections
// alternate, one write per batch. Waking for each request would use more CPU time than the server.
const (
	batchInterval = time.Millisecond
	minTick       = 100 * time.Microsecond
)

// A timetable returns the due times of the requests of a connection.
type timetable struct {
	begin time.Duration // when the first batch is due
	every float64       // ns between two requests
	n     float64       // requests that were due
}

// next returns the scheduled time of the next request, which is that of its batch.
func (t *timetable) next() time.Duration {
	turn := time.Duration(t.n * t.every)
	return t.begin + (turn+batchInterval-1)/batchInterval*batchInterval
}

// pace sends each request at its scheduled time, or as soon as its connection accepts it, until the
// run ends.
func pace(conns []*conn) error {
	tick := max(batchInterval/time.Duration(len(conns)), minTick)
	begin := conns[0].now()
	ticks, err := newTicker(tick)
	if err != nil {
		return err
	}
	defer ticks.stop()
	every := float64(time.Second) / conns[0].o.Rate * float64(len(conns))
	for i, c := range conns {
		c.times = timetable{begin: begin + batchInterval*time.Duration(i)/time.Duration(len(conns)), every: every}
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
			_ = c.send() // the receiver fails too, and reports the reason
		}
		if err := ticks.wait(); err != nil {
			return err
		}
	}
	for _, c := range conns {
		c.finished.Store(true)
		if c.answered.Load() == c.sent.Load() {
			_ = c.net.SetReadDeadline(time.Now()) // no more requests: end the wait for answers
		}
	}
	return nil
}

// backoffs is a queue of the next requests of shed clients, in order of time.
type backoffs struct {
	until   [maxInFlight]time.Duration
	from, n int
}

func (b *backoffs) first() time.Duration { return b.until[b.from%maxInFlight] }

func (b *backoffs) add(until time.Duration) {
	b.until[(b.from+b.n)%maxInFlight] = until
	b.n++
}

func (b *backoffs) wake(now time.Duration) {
	for b.n > 0 && b.first() <= now {
		b.from++
		b.n--
	}
}
