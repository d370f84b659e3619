package loadclient

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// Users chooses the user of each request. Users are numbered from 0.
type Users struct {
	n     uint64
	next  *atomic.Uint64 // for InTurn
	alias []aliased      // for Zipf
}

// aliased is a column of Walker's alias method: this user with probability part / 2^32, else the other.
type aliased struct{ part, other uint32 }

// Uniform returns n users with equal probabilities.
func Uniform(n int) *Users { return &Users{n: uint64(n)} }

// InTurn returns n users in a cycle: n requests contain each user once.
func InTurn(n int) *Users { return &Users{n: uint64(n), next: &atomic.Uint64{}} }

// Zipf returns n users. The user of rank k has a probability proportional to k^-s.
func Zipf(n int, s float64) *Users {
	weights, sum := make([]float64, n), 0.0
	for k := range weights {
		weights[k] = math.Pow(float64(k+1), -s)
		sum += weights[k]
	}
	u := &Users{n: uint64(n), alias: make([]aliased, n)}
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
		u.alias[a] = aliased{part: uint32(weights[a] * (1 << 32)), other: uint32(b)}
		if weights[b] -= 1 - weights[a]; weights[b] < 1 {
			large, small = large[:len(large)-1], append(small, b)
		}
	}
	for _, k := range append(small, large...) { // 1, up to rounding
		u.alias[k] = aliased{part: math.MaxUint32, other: uint32(k)}
	}
	return u
}

func (u *Users) pick(random *rand.PCG) uint64 {
	if u.next != nil {
		return (u.next.Add(1) - 1) % u.n
	}
	r := random.Uint64()
	k := (r >> 32) * u.n >> 32
	if u.alias != nil {
		if a := u.alias[k]; uint32(r) >= a.part {
			return uint64(a.other)
		}
	}
	return k
}
