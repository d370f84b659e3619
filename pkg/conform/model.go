package conform

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// choices are behaviors that the protocol leaves to the service, for the limits of one algorithm.
// The models follow them.
type choices struct {
	countDenied bool // denied hits count
	peekOver    bool // a key exactly at its limit allows 0 hits
	refunds     bool // is_negative_hits refunds
	group       bool // a denied request charges none of the limits that allow it
}

// choices returns the choices of the service. It finds them by single calls, once for each
// algorithm.
func (t *trial) choices(a algorithm) choices {
	c, known := t.choicesByAlgorithm[a.name]
	if !known {
		t.withRetries(func() error {
			var err error
			c, err = t.findChoices(a)
			return err
		})
		t.choicesByAlgorithm[a.name] = c
	}
	return c
}

// steadyChoices returns the choices, and waits until no window will end soon, see minSteady.
func (t *trial) steadyChoices(a algorithm) choices {
	t.steady(minSteady)
	return t.choices(a)
}

func (t *trial) findChoices(a algorithm) (c choices, err error) {
	one := func(all ...*descriptor) answer {
		got := t.call(newRequest(all...))
		if err == nil {
			err = got.err
		}
		return got
	}
	d := t.key(a.rule("day_5"))
	one(withHits(d, 4))
	one(withHits(d, 3))
	c.countDenied = one(d).isOverLimit()
	d = t.key(a.rule("day_5"))
	one(withHits(d, 5))
	c.peekOver = one(withHits(d, 0)).isOK()
	d = t.key(a.rule("day_5"))
	one(withHits(d, 3))
	one(asRefund(d, 2))
	c.refunds = one(d).remaining() == 3
	full, open := t.key(a.rule("day_5")), t.key(a.rule("day_100"))
	one(withHits(full, 5))
	one(full, open)
	c.group = one(open).remaining() == 99
	return c, err
}

// withRetries repeats run until it returns no error, if errors are allowed. Otherwise an error
// fails and ends the check.
func (t *trial) withRetries(run func() error) {
	for attempt := 0; ; attempt++ {
		err := run()
		if err == nil {
			return
		}
		if !t.AllowErrors || attempt == 20 || !sleep(t.ctx, 200*time.Millisecond) {
			t.fault(Evidence{Fault: "a single call gets an error", Answer: err.Error(), Expected: "an answer"})
			t.stop()
		}
	}
}

// A staleness is how far a denial may describe an earlier moment. Services that cache denials are
// stale.
type staleness int

const (
	exactDenials    staleness = iota
	staleRemaining            // a denial may report the remaining hits of an earlier moment
	staleDenialsToo           // a denial itself may also be older than a refund
)

// An op is a call of one client for one descriptor.
type op struct {
	client int
	hits   int64 // negative: a refund
	answer
}

func (o op) String() string {
	what := fmt.Sprintf("charge %d", o.hits)
	switch {
	case o.hits < 0:
		what = fmt.Sprintf("refund %d", -o.hits)
	case o.hits == 0:
		what = "peek"
	}
	result := "no answer yet"
	switch {
	case o.err != nil:
		result = o.answer.String()
	case o.response != nil:
		result = fmt.Sprintf("%s remaining %d", o.GetOverallCode(), o.remaining())
	}
	end := "..."
	if o.response != nil {
		end = millis(o.ret)
	}
	return fmt.Sprintf("client %d, %s to %s: %s, %s", o.client, millis(o.call), end, what, result)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.3f ms", float64(d.Microseconds())/1000) }

// model returns the model of a limit within one window, in which fixed windows, logs and funnels
// decide alike. The state is the usage of the key. An op without an answer may or may not have been
// charged.
func model(limit int64, c choices, stale staleness) porcupine.Model {
	step := func(state, input, output any) []any {
		used, n, o := state.(int64), input.(int64), output.(op)
		next, ok, remaining := apply(used, n, limit, c)
		switch {
		case o.response == nil || o.err != nil:
			return states(used, next)
		case o.isOverLimit() && n >= 0 && stale == staleDenialsToo:
			if c.countDenied {
				return states(used, used+n)
			}
			return states(used, used)
		case o.isOK() != ok || o.isOverLimit() == ok:
			return nil
		case o.remaining() == remaining, !ok && (o.remaining() == 0 || stale >= staleRemaining):
			return states(next, next)
		}
		return nil
	}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{int64(0)} },
		Step: step,
	}
	return m.ToModel()
}

func states(a, b int64) []any {
	if a == b {
		return []any{a}
	}
	return []any{a, b}
}

// apply charges n hits to a key with the usage used. It returns the next usage and the remaining
// hits; a denial may report 0 instead.
func apply(used, n, limit int64, c choices) (next int64, ok bool, remaining int64) {
	switch {
	case n < 0:
		next, ok = max(0, used+n), true
	case n == 0:
		next, ok = used, used < limit || used == limit && c.peekOver
	default:
		next, ok = used+n, used+n <= limit
		if !ok && !c.countDenied {
			next = used
		}
	}
	return next, ok, max(0, limit-next)
}

// linearizable returns the shortest beginning of a history that no order of single calls explains,
// or nil if every beginning has an explanation. unknown reports that the checker gave up.
func linearizable(ops []op, limit int64, c choices, stale staleness) (counterexample []op, unknown bool) {
	m := model(limit, c, stale)
	switch porcupine.CheckOperationsTimeout(m, history(ops), 5*time.Second) {
	case porcupine.Ok:
		return nil, false
	case porcupine.Unknown:
		return nil, true
	}
	returned := slices.SortedFunc(slices.Values(ops), func(a, b op) int { return cmp.Compare(a.ret, b.ret) })
	for _, last := range returned {
		var begun []op
		for _, o := range ops {
			if o.call > last.ret {
				continue
			}
			if o.ret > last.ret {
				o.answer = answer{call: o.call, ret: math.MaxInt64} // it is still running
			}
			begun = append(begun, o)
		}
		if porcupine.CheckOperationsTimeout(m, history(begun), 5*time.Second) == porcupine.Illegal {
			ops = begun
			break
		}
	}
	slices.SortFunc(ops, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	return ops, false
}

func history(ops []op) (all []porcupine.Operation) {
	for _, o := range ops {
		end := int64(o.ret)
		if o.err != nil || o.response == nil {
			end = math.MaxInt64 // it may still be charged
		}
		all = append(all, porcupine.Operation{ClientId: o.client, Input: o.hits, Output: o, Call: int64(o.call), Return: end})
	}
	return all
}
