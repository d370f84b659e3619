// Package sizing answers the questions of an operator before a deployment. [Local] computes the
// local limits of replicas. [NewReport] computes memory, calls to Redis and the largest
// over-admission of rules.
package sizing

import (
	"fmt"
	"math"
	"sort"
)

// The bounds of [Local].
const (
	maxRequests = 1_000_000_000
	maxReplicas = 1_000_000
)

// A LocalLimit suggests a limit for each of several replicas that share a limit of Requests but
// count independently. Requests reach the replicas at random. A false limit is the event that a
// replica denies a client that is within the whole limit.
type LocalLimit struct {
	Requests    int64   `json:"requests"` // in a window, over all replicas
	Replicas    int64   `json:"replicas"`
	Probability float64 `json:"probability"` // the probability of a false limit, if a client sends exactly Requests in a window
	// EqualPart is Requests / Replicas, rounded up. One is the smallest limit that a given replica
	// exceeds with at most Probability. Any is the smallest limit for which this holds for all
	// replicas together.
	EqualPart LocalChoice `json:"equal_part"`
	One       LocalChoice `json:"one_replica"`
	Any       LocalChoice `json:"any_replica"`
}

// A LocalChoice is a local limit with its consequences.
type LocalChoice struct {
	Limit int64 `json:"limit"` // each replica's limit
	// OneExceeds is the probability that more than Limit of the requests reach a given replica.
	OneExceeds float64 `json:"one_exceeds"`
	// AnyExceedsLow and AnyExceeds bound the probability that some replica gets more than Limit
	// requests.
	AnyExceedsLow float64 `json:"any_exceeds_low"`
	AnyExceeds    float64 `json:"any_exceeds"`
	Denied        float64 `json:"denied"`   // the expected share of the requests that is denied falsely
	Together      int64   `json:"together"` // the most that all replicas admit together: Limit times the number of replicas
	Over          int64   `json:"over"`     // how far Together exceeds Requests
}

// Local returns the local limits of replicas for requests in a window and the probability p of a
// false limit.
func Local(requests, replicas int64, p float64) (*LocalLimit, error) {
	switch {
	case requests < 1 || requests > maxRequests:
		return nil, fmt.Errorf("a limit of %d requests is out of range: want a number from 1 to %d", requests, maxRequests)
	case replicas < 1 || replicas > maxReplicas:
		return nil, fmt.Errorf("%d replicas are out of range: want a number from 1 to %d", replicas, maxReplicas)
	case !(p > 0 && p < 1):
		return nil, fmt.Errorf("a probability of %g is out of range: want a number above 0 and below 1, such as 0.001", p)
	}
	at := func(limit int64) LocalChoice { return newLocalChoice(requests, replicas, limit) }
	return &LocalLimit{
		Requests: requests, Replicas: replicas, Probability: p,
		EqualPart: at((requests + replicas - 1) / replicas),
		One:       at(smallest(requests, replicas, p)),
		Any:       at(smallest(requests, replicas, p/float64(replicas))),
	}, nil
}

// rounding is the relative error that a probability may have from rounding.
const rounding = 1e-12

// smallest returns the smallest limit that a given replica exceeds with a probability of at most p.
func smallest(requests, replicas int64, p float64) int64 {
	p *= 1 + rounding
	return int64(sort.Search(int(requests), func(limit int) bool { return exceeds(requests, replicas, int64(limit)) <= p }))
}

// negligible is a share of the largest term of a binomial distribution. Smaller terms are not
// summed, because they change no digit.
const negligible = 1e-300

// exceeds returns the probability that more than limit of the requests reach a given replica, which
// is the upper tail of a binomial distribution. It sums the terms relative to the term at the mean,
// and scales them by the sum of all terms, which is 1. This avoids logarithms of factorials and
// differences from 1, which cost digits in the incomplete beta functions of libraries.
func exceeds(requests, replicas, limit int64) float64 {
	switch {
	case limit >= requests:
		return 0
	case replicas == 1 || limit < 0:
		return 1
	}
	odds := 1 / float64(replicas-1)
	mean := requests / replicas
	tail, rest := 0.0, 0.0 // sums of the terms above limit, and of the others
	add := func(k int64, term float64) {
		if k > limit {
			tail += term
		} else {
			rest += term
		}
	}
	for k, term := mean, 1.0; k <= requests && term > negligible; k++ {
		add(k, term)
		term *= float64(requests-k) / float64(k+1) * odds
	}
	for k, term := mean, 1.0; k > 0; k-- {
		term *= float64(k) / (float64(requests-k+1) * odds)
		if term <= negligible {
			break
		}
		add(k-1, term)
	}
	return tail / (tail + rest)
}

func newLocalChoice(requests, replicas, limit int64) LocalChoice {
	single := exceeds(requests, replicas, limit)
	r := float64(replicas)
	return LocalChoice{
		Limit: limit, OneExceeds: single,
		// The counts of the replicas are negatively associated: a low count makes no other count
		// low. So the probability that some replica exceeds its limit is at least that of
		// independent replicas, and at most the sum over the replicas.
		AnyExceedsLow: -math.Expm1(r * math.Log1p(-single)), AnyExceeds: min(1, r*single),
		Denied:   denied(requests, replicas, limit, single),
		Together: limit * replicas, Over: max(0, limit*replicas-requests),
	}
}

// denied returns the expected share of the requests that exceed the limit of their replica. A
// request is denied if at least limit earlier requests have reached its replica. The sum over all
// requests is E[max(X-limit, 0)] for each replica.
func denied(requests, replicas, limit int64, single float64) float64 {
	// E[X; X > limit] is mean * P(Y > limit-1), where Y counts one request less.
	beyond := exceeds(requests-1, replicas, limit-1) - float64(limit)*float64(replicas)*single/float64(requests)
	return max(0, beyond)
}
