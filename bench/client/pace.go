package client

import "time"

// tick is how often pace looks for what is due. It is a part of every latency: half of it, in the mean.
const tick = 200 * time.Microsecond

// pace sends each request when it is due, or as soon after as its connection takes it, until the run stops.
func pace(conns []*conn) error {
	ticks, err := newTicker(tick)
	if err != nil {
		return err
	}
	defer ticks.stop()
	every := time.Duration(float64(time.Second) / conns[0].o.Rate * float64(len(conns)))
	for i, c := range conns {
		c.due = c.now() + every*time.Duration(i)/time.Duration(len(conns)) // they take turns
	}
	for conns[0].phase.Load() != stopping {
		for _, c := range conns {
			for now := c.now(); c.due <= now && c.mayOpen(); c.due += every {
				c.open(c.due)
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
