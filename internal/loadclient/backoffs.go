package loadclient

import "time"

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
