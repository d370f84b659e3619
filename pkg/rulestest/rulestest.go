// Package rulestest reads and runs tests of rules: requests at virtual times, with the verdicts that they must get.
//
//	suite, err := rulestest.Load("rules_test.yaml") // the error is rulesfile.Faults, or that of a file that cannot be read
//	result, err := suite.Run(ctx, rulestest.Options{})
//
// The requests are decided by package replay, which is the code that serves. docs/test.md describes the files, and [Schema] returns
// their JSON Schema.
package rulestest

import (
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Bounds of a file. A test that needs more is probably a mistake, and would take minutes.
const (
	// MaxRepeat is the largest repeat of a step.
	MaxRepeat = 1_000_000
	// MaxRequests is the maximum number of requests of all steps of a file.
	MaxRequests = 10_000_000
	// MaxOffset is the longest time from the start of a test to one of its requests.
	MaxOffset = 10 * 365 * 24 * time.Hour
)

// DefaultStart is the time at which a test starts that sets none: a Monday, and the first instant of a year.
var DefaultStart = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// A Suite is the tests of one file, with the rules that they test.
type Suite struct {
	File  string // as faults name it
	Tests []Test
	Rules *descriptors.Rules

	settings settings
	rules    []path
	overlay  []path
}

// settings are the settings of the server that the tests imagine.
type settings struct {
	decide decide.Options
	merge  bool
}

// A Test is a sequence of requests, on counters of its own.
type Test struct {
	Name  string
	Line  int
	Steps []Step
}

// A Step is one request, or the same request several times, with the expected outcome.
type Step struct {
	Line   int
	At     time.Time     // of the first request
	Every  time.Duration // between two requests
	Repeat int           // at least 1
	Text   string        // the request as a reader writes it

	request  decide.Request // without the domain if the file leaves it to the rules
	numbered bool           // a value has {n}
	want     expectation
}

// An expectation is the outcome that the requests of a step must have. A nil field expects nothing.
type expectation struct {
	line            int
	allowed, denied *int64 // of all requests of the step
	decision        wanted
	descriptors     []wanted // empty, or one for each descriptor
}

// A wanted is the outcome that one decision must have. A nil field expects nothing.
type wanted struct {
	denied                 *bool
	rule, limit, reason    *string
	remaining, used        *int64
	retryAfter, resetAfter *time.Duration
	penalized              *bool
}

// never is the retry_after of a request that can never fit.
const never = time.Duration(-1)
