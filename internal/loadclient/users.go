package loadclient

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// Users chooses the user of each request. Users are numbered from 0.
type Users struct {
	choose func(random *rand.PCG) choice
}

// A choice is the user of a request, and the lease that it opens or ends.
type choice struct {
	user, lease uint64
	end         bool
}

// Uniform returns n equally likely users.
func Uniform(n int) *Users {
	return &Users{func(random *rand.PCG) choice { return choice{user: (random.Uint64() >> 32) * uint64(n) >> 32} }}
}

// RoundRobin returns n users in round-robin order.
func RoundRobin(n int) *Users {
	var next atomic.Uint64
	return &Users{func(*rand.PCG) choice { return choice{user: (next.Add(1) - 1) % uint64(n)} }}
}

// Leasing returns n equally likely users, for [NewLeaseRequest]. The first open requests of a run
// open leases. After that, each new lease is followed by the end of the oldest one. Later runs with
// the same Users continue.
func Leasing(n, open int) *Users {
	var next atomic.Uint64
	return &Users{func(*rand.PCG) choice {
		lease, end, open := next.Add(1)-1, false, uint64(open)
		switch later := lease - open; {
		case lease < open:
		case later%2 == 0:
			lease = open + later/2
		default:
			lease, end = later/2, true
		}
		// The user follows from the lease's number, so that leases need no memory.
		return choice{user: rand.NewPCG(lease, 0).Uint64() % uint64(n), lease: lease, end: end}
	}}
}

// An aliasColumn is a column of Walker's alias method: this user with probability part / 2^32,
// otherwise the user alias.
type aliasColumn struct{ part, alias uint32 }

// Zipf returns n users. The probability of the user with rank k is proportional to k^-s.
func Zipf(n int, s float64) *Users {
	weights, sum := make([]float64, n), 0.0
	for k := range weights {
		weights[k] = math.Pow(float64(k+1), -s)
		sum += weights[k]
	}
	columns := make([]aliasColumn, n)
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
		columns[a] = aliasColumn{part: uint32(weights[a] * (1 << 32)), alias: uint32(b)}
		if weights[b] -= 1 - weights[a]; weights[b] < 1 {
			large, small = large[:len(large)-1], append(small, b)
		}
	}
	for _, k := range append(small, large...) { // 1, up to rounding
		columns[k] = aliasColumn{part: math.MaxUint32, alias: uint32(k)}
	}
	return &Users{func(random *rand.PCG) choice {
		r := random.Uint64()
		k := (r >> 32) * uint64(n) >> 32
		if c := columns[k]; uint32(r) >= c.part {
			k = uint64(c.alias)
		}
		return choice{user: k}
	}}
}
