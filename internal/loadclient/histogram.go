package loadclient

import (
	"math"
	"math/bits"
	"time"
)

// bucketsPerPower is the number of buckets for each power of two nanoseconds. A quantile is at most
// 1/64 too high.
const bucketsPerPower = 64

// A Histogram counts durations. The zero value is empty.
type Histogram struct {
	counts [(64 - 5) * bucketsPerPower]uint64
	n      uint64
}

func bucket(ns uint64) int {
	if ns < bucketsPerPower {
		return int(ns)
	}
	power := bits.Len64(ns) - 7 // so that ns>>power is in [bucketsPerPower, 2*bucketsPerPower)
	return power*bucketsPerPower + int(ns>>power)
}

// upper returns the largest duration of a bucket.
func upper(bucket int) time.Duration {
	if bucket < 2*bucketsPerPower {
		return time.Duration(bucket)
	}
	power := bucket/bucketsPerPower - 1
	return time.Duration(uint64(bucket-power*bucketsPerPower+1)<<power - 1)
}

func (h *Histogram) record(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.n++
}

func (h *Histogram) add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
}

// Quantile returns an upper bound of the fraction q of all durations; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank, seen := uint64(math.Ceil(q*float64(h.n))), uint64(0)
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return upper(i)
		}
	}
	return 0
}
