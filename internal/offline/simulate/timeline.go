package simulate

import "time"

// widths are the lengths of buckets. Each is a multiple of the previous one.
var widths = func() []time.Duration {
	all := []time.Duration{
		time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
		time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	}
	for all[len(all)-1] < 1<<62/maxBuckets { // the longest timeline of an int64
		all = append(all, 2*all[len(all)-1])
	}
	return all
}()

// A series holds one count for each bucket. It may be shorter than the timeline.
type series []int64

// count adds 1 to a bucket.
func (s *series) count(bucket int) {
	for len(*s) <= bucket {
		*s = append(*s, 0)
	}
	(*s)[bucket]++
}

// full returns s with n buckets.
func (s series) full(n int) []int64 {
	all := make([]int64, n) // not nil, which JSON writes as null
	copy(all, s)
	return all
}

// buckets divides time. The buckets grow longer with time, so that there are at most maxBuckets.
type buckets struct {
	start time.Time // when the first bucket begins, a multiple of the width
	width int       // the index in widths
	n     int       // in use
}

// bucketOf returns the bucket of a time, which must not be in an earlier bucket than the previous
// call's. If the buckets have become longer, each series adapts by merge.
func (b *buckets) bucketOf(t time.Time, merge func(offset, factor int)) int {
	if b.n == 0 {
		b.start = t.Truncate(widths[0])
	}
	for {
		i := int(t.Sub(b.start) / widths[b.width])
		if i < maxBuckets {
			b.n = max(b.n, i+1)
			return i
		}
		was := widths[b.width]
		b.width++
		start := b.start.Truncate(widths[b.width])
		offset, factor := int(b.start.Sub(start)/was), int(widths[b.width]/was)
		merge(offset, factor)
		b.start, b.n = start, (b.n-1+offset)/factor+1
	}
}

// merge makes buckets longer by a factor. offset is the number of old buckets by which the first
// new bucket begins before the first old one.
func (s series) merge(offset, factor int) series {
	if len(s) == 0 {
		return s
	}
	merged := make(series, (len(s)-1+offset)/factor+1)
	for i, n := range s {
		merged[(i+offset)/factor] += n
	}
	return merged
}
