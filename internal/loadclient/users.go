package loadclient

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// Users chooses the user of each request. Users are numbered from 0.
type Users struct {
	n     uint64
	next  *atomic.Uint64 // for RoundRobin and Leasing
	open  uint64         // for Leasing
	alias []aliasColumn  // for Zipf
}

// A choice is the user of a request, and the lease that it opens or ends.
type choice struct {
	user, lease uint64
	end         bool
}

// aliasColumn is a column of Walker's alias method: this user with probability part / 2^32,
// otherwise the user alias.
type aliasColumn struct{ part, alias uint32 }

// Uniform returns n equally likely users.
func Uniform(n int) *Users { return &Users{n: uint64(n)} }

// RoundRobin returns n users in round-robin order.
func RoundRobin(n int) *Users { return &Users{n: uint64(n), next: &atomic.Uint64{}} }

// Leasing returns n equally likely users, for [NewLeaseRequest]. The first open requests of a run
// open leases. After that, each new lease is followed by the end of the oldest one. Later runs with
// the same Users continue.
func Leasing(n, open int) *Users {
	return &Users{n: uint64(n), open: uint64(open), next: &atomic.Uint64{}}
}

// Zipf returns n users. The probability of the user with rank k is proportional to k^-s.
func Zipf(n int, s float64) *Users {
	weights, sum := make([]float64, n), 0.0
	for k := range weights {
		weights[k] = math.Pow(float64(k+1), -s)
		sum += weights[k]
	}
	u := &Users{n: uint64(n), alias: make([]aliasColumn, n)}
	var small, large []int
	for k := range weights {
		weights[k] *= float64(n) / sum
		if weights[k] < 1 {
			small = append(small, k)
		} else {
			large = append(large, k)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		a, b := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		u.alias[a] = aliasColumn{part: uint32(weights[a] * (1 << 32)), alias: uint32(b)}
		if weights[b] -= 1 - weights[a]; weights[b] < 1 {
			large, small = large[:len(large)-1], append(small, b)
		}
	}
	for _, k := range append(small, large...) { // 1, up to rounding
		u.alias[k] = aliasColumn{part: math.MaxUint32, alias: uint32(k)}
	}
	return u
}

func (u *Users) choose(random *rand.PCG) choice {
	switch {
	case u.open > 0:
		return u.leasing(u.next.Add(1) - 1)
	case u.next != nil:
		return choice{user: (u.next.Add(1) - 1) % u.n}
	}
	return choice{user: u.random(random)}
}

// leasing returns the choice for a request, numbered from 0. It derives the user from the lease's
// number, so that leases need no memory.
func (u *Users) leasing(request uint64) choice {
	p := choice{lease: request}
	if request >= u.open {
		later := request - u.open
		p.lease, p.end = later/2, later%2 == 1
		if !p.end {
			p.lease += u.open
		}
	}
	p.user = rand.NewPCG(p.lease, 0).Uint64() % u.n
	return p
}

func (u *Users) random(random *rand.PCG) uint64 {
	r := random.Uint64()
	k := (r >> 32) * u.n >> 32
	if u.alias != nil {
		if a := u.alias[k]; uint32(r) >= a.part {
			return uint64(a.alias)
		}
	}
	return k
}
