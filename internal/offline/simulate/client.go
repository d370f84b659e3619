package simulate

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

// A client sends the requests of a recording by one client model.
type client struct {
	options  Options
	rows     *limitRows
	replayer *replay.Replayer
	result   decide.Result
	stats    *stats // of the recorded requests; nil for all models except Drop
	counts   Client
	limits   []limitCount // by row
	keys     int          // in limits
	partial  bool         // reports that a denied key was not counted, because of Options.MaxKeys
	waiting  retries
	sequence int64
}

// A limitCount is the outcome of one limit under one client model.
type limitCount struct {
	requests, denied int64
	keys             map[string]struct{} // denied
}

func newClient(m Model, rules *descriptors.Rules, rows *limitRows, o Options) *client {
	return &client{
		options: o, rows: rows, replayer: replay.New(rules, o.Replay), counts: Client{Model: m}, limits: make([]limitCount, len(rows.all)),
	}
}

// recorded sends the retries whose time has come, and then a recorded request.
func (c *client) recorded(line *recording.Line) {
	at := line.At.UnixMicro()
	for len(c.waiting) > 0 && c.waiting[0].at <= at {
		next := heap.Pop(&c.waiting).(retry)
		c.counts.Retries++
		c.send(next, nil)
	}
	c.send(retry{at: at, request: &line.Request}, line)
}

// send sends one attempt. line is nil for a retry.
func (c *client) send(r retry, line *recording.Line) {
	err := c.replayer.Decide(microTime(r.at), r.request, &c.result)
	if line != nil && c.stats != nil {
		c.stats.observe(line, &c.result, err)
	}
	c.counts.Attempts++
	switch {
	case err != nil:
		c.counts.Failed++
		if line == nil {
			c.counts.GaveUp++
		}
		return
	case c.result.Denied:
		c.counts.Denied++
	default:
		c.counts.Allowed++
		if line == nil {
			c.counts.Recovered++
		}
	}
	c.countLimits()
	if c.result.Denied {
		c.retry(r)
	}
}

// retry queues the next retry of a denied request, if there is one.
func (c *client) retry(r retry) {
	wait, most := hammerInterval, hammerRetries
	fits := true
	if c.counts.Model == Obey {
		most = obeyRetries
		wait, fits = retryAfter(&c.result)
	}
	switch {
	case c.counts.Model == Drop || !fits || r.sent >= most:
		c.counts.GaveUp++
	case len(c.waiting) >= c.options.MaxWaiting:
		c.counts.Overflowed++
	default:
		if r.sent == 0 {
			request := *r.request // the original would keep the whole batch of its line in memory
			r.request = &request
		}
		c.sequence++
		heap.Push(&c.waiting, retry{r.at + wait.Microseconds(), c.sequence, r.request, r.sent + 1})
	}
}

// retryAfter returns the wait that Retry-After gives a client, in whole seconds. It returns false
// if waiting does not help, or if no descriptor denies the request.
func retryAfter(result *decide.Result) (time.Duration, bool) {
	denier := result.DenyingDescriptorIndex()
	if denier < 0 {
		return 0, false
	}
	seconds := (result.RetryAfter() + time.Second - 1) / time.Second
	return max(seconds, 1) * time.Second, result.Decisions[denier].MayFitLater()
}

// countLimits counts the verdicts of the last attempt, without those of calls that end a lease.
func (c *client) countLimits() {
	for i := range c.result.Decisions {
		d := &c.result.Decisions[i]
		if d.EndsLease() {
			continue // the second call of a request
		}
		for j := range d.Verdicts {
			count := &c.limits[c.rows.rowOf(d, j)]
			count.requests++
			if d.Verdicts[j].Allowed || d.Verdicts[j].Err != nil {
				continue
			}
			count.denied++
			if c.counts.Model != Drop { // the keys of Drop are in the statistics
				c.countKey(count, d.Key)
			}
		}
	}
}

func (c *client) countKey(count *limitCount, key string) {
	if _, known := count.keys[key]; known {
		return
	}
	if c.keys >= c.options.MaxKeys {
		c.partial = true
		return
	}
	if count.keys == nil {
		count.keys = map[string]struct{}{}
	}
	c.keys++
	count.keys[key] = struct{}{}
}

// A retry is a denied request that will be sent again.
type retry struct {
	at       int64 // in µs since 1970
	sequence int64 // orders the retries of one time
	request  *decide.Request
	sent     int // retries, including this one
}

// retries are a [heap.Interface] in the order of their times.
type retries []retry

func (r retries) Len() int { return len(r) }
func (r retries) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(r[i].at, r[j].at), cmp.Compare(r[i].sequence, r[j].sequence)) < 0
}
func (r retries) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)   { *r = append(*r, x.(retry)) }
func (r *retries) Pop() any {
	last := (*r)[len(*r)-1]
	*r = slices.Delete(*r, len(*r)-1, len(*r))
	return last
}
