package conform

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

func countingChecks(a algorithm) []check {
	id := func(name string) string { return "counting." + name + "." + a.name }
	return []check{
		{id("exact"), "Do 64 concurrent clients get exactly the limit, and each remaining count once?", func(t *trial) { checkExactness(t, a) }},
		{id("costs"), "Do charges of several hits by 64 concurrent clients fill the limit, and never exceed it?",
			func(t *trial) { checkCosts(t, a) }},
		{id("group"), "Do requests of 32 concurrent clients under two limits admit exactly the smaller limit?",
			func(t *trial) { checkConcurrentGroup(t, a) }},
		{id("linearizable"), "Do single calls in some order explain each history of concurrent charges and peeks?",
			func(t *trial) { checkHistories(t, t.steadyChoices(a), a, chargeOrPeek, staleRemaining) }},
		{id("refunds"), "Do single calls in some order explain each history of concurrent charges, peeks and refunds?",
			func(t *trial) { checkRefundHistories(t, a) }},
	}
}

// concurrently calls a function for each of n clients at once, and returns when all calls have
// returned.
func concurrently(n int, run func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			run(i)
		})
	}
	close(start)
	all.Wait()
}

// perform starts n clients, each of which calls for a descriptor with the hits that next returns.
func (t *trial) perform(d *descriptor, n, calls int, next func(client, call int) int64) []op {
	all := make([][]op, n)
	concurrently(n, func(i int) {
		for call := range calls {
			o := op{client: i, hits: next(i, call)}
			o.answer = t.send(t.ctx, t.conn(i), newRequest(withSignedHits(d, o.hits)))
			all[i] = append(all[i], o)
		}
	})
	return slices.Concat(all...)
}

// withSignedHits returns a copy of a descriptor with n hits. Negative hits refund.
func withSignedHits(d *descriptor, n int64) *descriptor {
	if n < 0 {
		return asRefund(d, uint64(-n))
	}
	return withHits(d, uint64(n))
}

// countErrors returns the number of ops with an error. Each error fails the check, unless errors
// are allowed.
func (t *trial) countErrors(ops []op) (n int64) {
	for _, o := range ops {
		if o.err == nil {
			continue
		}
		n++
		if !t.AllowErrors {
			t.fault(Evidence{Fault: "a call under concurrency gets an error", Answer: o.answer.String(), Expected: "an answer"})
		}
	}
	if n > 0 && t.AllowErrors {
		t.observe("%d of %d calls got an error", n, len(ops))
	}
	return n
}

func admitted(ops []op) (n int64, byRemaining map[int64]int) {
	byRemaining = map[int64]int{}
	for _, o := range ops {
		if o.isOK() {
			n += o.hits
			byRemaining[o.remaining()]++
		}
	}
	return n, byRemaining
}

func checkExactness(t *trial, a algorithm) {
	const limit = 100
	t.steady(minSteady)
	d := t.key(a.rule("day_100"))
	ops := t.perform(d, 64, 4, func(int, int) int64 { return 1 })
	lost := t.countErrors(ops)
	n, byRemaining := admitted(ops)
	e := Evidence{Request: fmt.Sprintf("256 calls of 64 clients, each %s", describe(newRequest(withHits(d, 1)))),
		Expected: "exactly 100 admitted"}
	switch {
	case n > limit:
		e.Fault = fmt.Sprintf("over-admission: %d of %d hits are admitted", n, limit)
	case n < limit-lost:
		e.Fault = fmt.Sprintf("under-admission: only %d of %d hits are admitted", n, limit)
	}
	if e.Fault != "" {
		t.fault(e)
	}
	var twice []string
	for remaining := range int64(limit) {
		if byRemaining[remaining] > 1 {
			twice = append(twice, fmt.Sprintf("%d (%d times)", remaining, byRemaining[remaining]))
		}
	}
	if len(twice) > 0 {
		e.Fault, e.Expected = "several calls get the same remaining count", "each count from 0 to 99 once"
		e.History = twice
		t.fault(e)
	}
}

func checkCosts(t *trial, a algorithm) {
	const limit, maximum = 100, 7
	c := t.steadyChoices(a)
	d := t.key(a.rule("day_100"))
	ops := t.perform(d, 64, 4, func(i, call int) int64 { return int64((i+call)%maximum) + 1 })
	lost := t.countErrors(ops)
	n, _ := admitted(ops)
	minimum := int64(limit + 1) // the fewest hits of a denied call
	for _, o := range ops {
		if o.isOverLimit() {
			minimum = min(minimum, o.hits)
		}
	}
	e := Evidence{Request: fmt.Sprintf("256 calls of 64 clients, of 1 to 7 hits, each %s", describe(newRequest(d)))}
	switch {
	case n > limit:
		e.Fault, e.Expected = fmt.Sprintf("over-admission: %d of %d hits are admitted", n, limit), "at most 100 admitted"
		t.fault(e)
	case !c.countDenied && lost == 0 && n+minimum <= limit:
		e.Fault = fmt.Sprintf("under-admission: %d of %d hits are admitted, and a call of %d hits is denied", n, limit, minimum)
		e.Expected = "a denial only of calls that do not fit"
		t.fault(e)
	}
}

func checkConcurrentGroup(t *trial, a algorithm) {
	c := t.steadyChoices(a)
	small, large := t.key(a.rule("day_5")), t.key(a.rule("day_1000"))
	all := make([]op, 32)
	concurrently(len(all), func(i int) {
		all[i] = op{client: i, hits: 1, answer: t.send(t.ctx, t.conn(i), newRequest(small, large))}
	})
	lost := t.countErrors(all)
	n, _ := admitted(all)
	r := newRequest(small, large)
	if n > 5 || n < 5-lost {
		t.fault(Evidence{Fault: fmt.Sprintf("%d of 32 requests are admitted", n), Request: describe(r), Expected: "5 admitted"})
	}
	if lost > 0 {
		return
	}
	want := int64(1000 - len(all))
	if c.group {
		want = 1000 - 5
	}
	r = newRequest(withHits(large, 0))
	var got answer
	t.withRetries(func() error {
		got = t.call(r)
		return got.err
	})
	if got.remaining() != want {
		t.wrong(r, got, "the larger limit has a wrong count after concurrent requests",
			fmt.Sprintf("remaining %d, as single requests are charged", want))
	}
}

// The size of the histories is bounded, because the checker tries the possible orders of the calls
// of a key.
const (
	historyKeys    = 48
	historyClients = 6
	historyCalls   = 4
)

// checkHistories checks histories of calls with random hits. Answers may have any staleness up to
// maxStale.
func checkHistories(t *trial, c choices, a algorithm, hits func() int64, maxStale staleness) {
	all := make([][]op, historyKeys)
	requests := make([]string, historyKeys)
	for first := 0; first < historyKeys; first += connections {
		keys := make([]*descriptor, connections)
		for i := range keys {
			keys[i] = t.key(a.rule("day_5"))
			requests[first+i] = describe(newRequest(keys[i]))
		}
		concurrently(connections, func(i int) {
			all[first+i] = t.perform(keys[i], historyClients, historyCalls, func(int, int) int64 { return hits() })
		})
	}
	if t.countErrors(slices.Concat(all...)) > 0 && !t.AllowErrors {
		return
	}
	worst, unknown := exactDenials, 0
	for i, ops := range all {
		stale, counterexample, gaveUp := stalenessOf(ops, c, maxStale)
		worst = max(worst, stale)
		if gaveUp {
			unknown++
		}
		if counterexample == nil {
			continue
		}
		e := Evidence{Fault: "no order of single calls explains the answers", Request: requests[i],
			Expected: "the answers of some order of single calls"}
		for _, o := range counterexample {
			e.History = append(e.History, o.String())
		}
		t.fault(e)
	}
	switch worst {
	case staleRemaining:
		t.observe("the remaining hits of a denial may be those of an earlier moment; denials and allowances are exact")
	case staleDenialsToo:
		t.observe("a denial may be older than a refund that has ended; allowances are exact")
	}
	if unknown > 0 {
		t.observe("the checker gave up on %d of %d histories", unknown, historyKeys)
	}
}

// checkRefundHistories is checkHistories with refunds, if the service refunds.
func checkRefundHistories(t *trial, a algorithm) {
	c := t.steadyChoices(a)
	if !c.refunds {
		t.skip("the service does not refund")
		return
	}
	checkHistories(t, c, a, chargePeekOrRefund, staleDenialsToo)
}

// stalenessOf returns the lowest staleness that explains a history. If none up to maxStale does, it
// returns the calls that show this.
func stalenessOf(ops []op, c choices, maxStale staleness) (stale staleness, counterexample []op, gaveUp bool) {
	const limit = 5
	for ; ; stale++ {
		counterexample, gaveUp = linearizable(ops, limit, c, stale)
		if counterexample == nil {
			return stale, nil, gaveUp
		}
		if stale == maxStale {
			return exactDenials, counterexample, gaveUp
		}
	}
}

// chargePeekOrRefund returns random hits: 60 % charges, 20 % peeks, and 20 % refunds.
func chargePeekOrRefund() int64 {
	switch n := rand.IntN(10); {
	case n < 6:
		return int64(n%3) + 1
	case n < 8:
		return 0
	default:
		return -int64(n%2) - 1
	}
}

// chargeOrPeek returns random hits: 60 % charges, and 40 % peeks.
func chargeOrPeek() int64 { return max(0, chargePeekOrRefund()) }
