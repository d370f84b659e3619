package memstore

import (
	queue "container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// BenchmarkLocksOf32Cores is no benchmark but a simulation of what this machine cannot run: cores that take locks as Take
// does, in order and all at once, hold them for as long as was measured here, and do other work in between. It tells
// how many Takes have to wait, and how much of the cores is lost with it.
func BenchmarkLocksOf32Cores(b *testing.B) {
	for _, c := range []struct {
		name       string
		hits       int
		work, hold float64 // ns
	}{
		{"nothing but Takes of one hit", 1, 70, 110},
		{"nothing but Takes of five", 5, 150, 550},
		{"requests of 10 µs with one hit", 1, 10_000, 110},
		{"requests of 10 µs with five", 5, 10_000, 550},
	} {
		for _, shards := range []int{1, 64, 256, 1024} {
			b.Run(fmt.Sprintf("%s/%d shards", c.name, shards), func(b *testing.B) {
				for b.Loop() {
					s := simulation{shards: make([]simulated, shards), rnd: rand.New(rand.NewPCG(1, 2))}
					for core := range 32 {
						s.cores = append(s.cores, &core32{id: core})
						s.after(s.cores[core], c.work*s.rnd.Float64())
					}
					s.run(300_000, c.hits, c.work, c.hold)
					b.ReportMetric(100*float64(s.waited)/float64(s.takes), "%-waited")
					b.ReportMetric(100*s.lost/(32*s.now), "%-lost")
					b.ReportMetric(float64(s.takes)*1000/s.now, "million-takes/s")
				}
			})
		}
	}
}

// handOff is how long after an unlock one who waited goes on, in ns: a line of a cache that another core has written, and
// the mutex's own business. Whoever has to sleep takes longer, but for a lock held so short a Mutex spins first.
const handOff = 100

type simulation struct {
	rnd    *rand.Rand
	shards []simulated
	cores  []*core32
	due    events

	now, lost     float64
	takes, waited int
}

type simulated struct {
	held  bool
	queue []*core32
}

type core32 struct {
	id     int
	at     float64 // when it goes on
	want   []int   // the shards of its Take, in order; nil while it works
	have   int
	since  float64 // when it began to wait
	waited bool
}

type events []*core32

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(*core32)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (s *simulation) after(c *core32, ns float64) {
	c.at = s.now + ns
	queue.Push(&s.due, c)
}

func (s *simulation) run(takes, hits int, work, hold float64) {
	for s.takes < takes {
		c := queue.Pop(&s.due).(*core32)
		s.now = c.at
		switch {
		case c.want == nil: // its work is done
			for range hits {
				c.want = append(c.want, s.rnd.IntN(len(s.shards)))
			}
			slices.Sort(c.want)
			c.want = slices.Compact(c.want)
			s.lock(c, hold)
		case c.have < len(c.want): // it was given what it waited for
			s.lost += s.now - c.since
			c.have++
			s.lock(c, hold)
		default: // its Take is done
			for _, n := range c.want {
				s.unlock(&s.shards[n])
			}
			s.takes++
			if c.waited {
				s.waited++
			}
			c.want, c.have, c.waited = nil, 0, false
			s.after(c, work*2*s.rnd.Float64())
		}
	}
}

// lock locks what the core has not locked yet, until it has to wait.
func (s *simulation) lock(c *core32, hold float64) {
	for ; c.have < len(c.want); c.have++ {
		sh := &s.shards[c.want[c.have]]
		if sh.held {
			sh.queue, c.since, c.waited = append(sh.queue, c), s.now, true
			return
		}
		sh.held = true
	}
	s.after(c, hold)
}

func (s *simulation) unlock(sh *simulated) {
	if len(sh.queue) == 0 {
		sh.held = false
		return
	}
	next := sh.queue[0]
	sh.queue = sh.queue[1:]
	s.after(next, handOff)
}
