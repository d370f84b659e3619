package loadclient

import (
	"testing"
	"time"
)

// The number of requests matches the rate. Each is sent at most one interval after its turn, and none before it.
func TestTimetableMatchesRate(t *testing.T) {
	t.Parallel()
	const begin = 7 * time.Millisecond
	for _, rate := range []float64{3, 999, 1000, 10_500, 250_000.5} {
		table := timetable{begin: begin, every: float64(time.Second) / rate}
		for i := range 100_000 {
			turn := begin + time.Duration(float64(i)*table.every)
			came := table.next()
			if late := came - turn; late < 0 || late >= batchEvery || (came-begin)%batchEvery != 0 {
				t.Fatalf("rate %v: request %d, whose turn is %v, comes at %v", rate, i, turn, came)
			}
			table.n++
		}
	}
}
