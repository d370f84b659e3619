// Package rulestest reads and runs tests of rules, which are requests at virtual times with
// expected verdicts.
//
//	suite, err := rulestest.Load("rules_test.yaml") // the error is rulesfile.Faults, or that of a file that cannot be read
//	result, err := suite.Run(ctx, rulestest.Options{})
//
// Package replay decides the requests, by the code of the server. docs/test.md describes the files,
// and docs/test.schema.json is their JSON Schema.
package rulestest

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/replay"
)

// Bounds of a file. A test beyond them is probably a mistake, and would take minutes.
const (
	maxRepeat   = 1_000_000                 // for a step
	maxRequests = 10_000_000                // for all steps of a file
	maxOffset   = 10 * 365 * 24 * time.Hour // from the start of a test to one of its requests
)

// defaultStart is the time at which a test starts by default: a Monday, and the first instant of a
// year.
var defaultStart = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// A Suite holds the tests of one file, with the rules that they test.
type Suite struct {
	File   string // the path, as in faults
	Tests  []*Test
	Rules  *descriptors.Rules
	Inputs []string // the paths of the files of the rules and the overlay

	server         decide.Options // options of the simulated server
	merge          bool           // merge_domain_config
	rules, overlay []path
}

// A Test is a sequence of requests. It begins with unused counters.
type Test struct {
	Name  string
	Line  int
	Steps []*Step

	start time.Time
}

// A Step is one request, or the same request several times, with the expected outcome.
type Step struct {
	Line   int
	At     time.Time     // the first request's time
	Every  time.Duration // between two requests of the step
	Repeat int           // at least 1
	Text   string        // the request in a readable form

	request  decide.Request // without the domain if the file leaves it to the rules
	numbered bool           // a value has {n}
	want     expectation
}

// An expectation is the outcome that the requests of a step must have. A nil field expects nothing.
type expectation struct {
	line            int
	allowed, denied *int64 // over all requests of the step
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

// never is the retry_after of a request that cannot fit.
const never = time.Duration(-1)

// Options configures [Suite.Run]. The zero value runs every test.
type Options struct {
	Only     *regexp.Regexp // runs the tests whose names match; nil: all
	Coverage *Coverage      // collects what the tests reach; may be nil
}

// A Result is the outcome of one test.
type Result struct {
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Name     string        `json:"name"`
	Requests int64         `json:"requests"`
	Failures []*Failure    `json:"failures,omitempty"`
	Warnings []Warning     `json:"warnings,omitempty"`
	Took     time.Duration `json:"-"`
}

// Passed reports whether every step had the expected outcome.
func (r *Result) Passed() bool { return len(r.Failures) == 0 }

// A Failure is a step without the expected outcome.
type Failure struct {
	Line        int           `json:"line"` // where the step is
	Step        int           `json:"step"` // from 1
	Repetition  int           `json:"repetition"`
	At          time.Duration `json:"-"` // from the start of the test
	Time        time.Time     `json:"time"`
	Request     string        `json:"request"`
	Problems    []Problem     `json:"problems"`
	Outcome     string        `json:"outcome"` // in the form of an expectation; "" if the request is invalid
	Explanation string        `json:"explanation"`
}

// A Warning is a step that passed although no rule limits its requests. Such a request may have a
// misspelled entry.
type Warning struct {
	Line    int    `json:"line"` // where the step is
	Step    int    `json:"step"` // from 1
	Request string `json:"request"`
	Reason  string `json:"reason"`
}

// checkEvery is the number of requests between two checks of the context.
const checkEvery = 1000

// Run runs the tests in the order of the file. It returns the error of ctx if ctx ends first.
func (s *Suite) Run(ctx context.Context, o Options) ([]*Result, error) {
	var all []*Result
	if o.Coverage != nil {
		o.Coverage.add(s.Rules)
	}
	for _, t := range s.Tests {
		if o.Only == nil || o.Only.MatchString(t.Name) {
			result, err := s.run(ctx, t, o.Coverage)
			if err != nil {
				return all, fmt.Errorf("%s:%d: %s: %w", s.File, t.Line, t.Name, err)
			}
			all = append(all, result)
		}
	}
	return all, nil
}

func (s *Suite) run(ctx context.Context, t *Test, coverage *Coverage) (*Result, error) {
	began := time.Now()
	runner := &runner{suite: s, replayer: replay.New(s.Rules, replay.Options{Decide: s.server}), coverage: coverage}
	result := &Result{File: s.File, Line: t.Line, Name: t.Name}
	for i, step := range t.Steps {
		failure, err := runner.step(ctx, step)
		if err != nil {
			return nil, err
		}
		result.Requests += int64(step.Repeat)
		if failure != nil {
			failure.Step, failure.At = i+1, failure.Time.Sub(t.start)
			result.Failures = append(result.Failures, failure)
		} else if reason := s.unlimitedReason(step); reason != "" {
			result.Warnings = append(result.Warnings, Warning{step.Line, i + 1, step.Text, reason})
		}
	}
	result.Took = time.Since(began)
	return result, nil
}

// A runner runs the steps of one test.
type runner struct {
	suite    *Suite
	replayer *replay.Replayer
	coverage *Coverage
	result   decide.Result
	// explained is the number of failures of the test that are explained.
	explained int
}

// maxExplained bounds the explained failures of one test. Further failures probably have the same
// reasons.
const maxExplained = 20

// step sends the requests of a step. It returns the first failure, or nil.
func (r *runner) step(ctx context.Context, s *Step) (failure *Failure, err error) {
	request, want, denied := s.request, s.want.beforeLast(), int64(0)
	for i := range s.Repeat {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if s.numbered {
			request.Descriptors = numberedDescriptors(s.request.Descriptors, i+1)
		}
		at := s.At.Add(time.Duration(i) * s.Every)
		err := r.replayer.Decide(at, &request, &r.result)
		if r.result.Denied {
			denied++
		}
		if r.coverage != nil {
			r.coverage.observe(&r.result)
		}
		if failure != nil {
			continue
		}
		last := i == s.Repeat-1
		if last {
			want = s.want
		}
		var problems []Problem
		if err != nil {
			problems = []Problem{{"request", "a decision", "the error: " + err.Error()}}
		} else {
			problems = want.problems(&r.result)
		}
		if last {
			problems = append(problems, s.want.counts(int64(s.Repeat), denied)...)
		}
		if len(problems) > 0 {
			failure = r.newFailure(&request, problems)
			failure.Line, failure.Repetition, failure.Time = s.Line, i+1, at
		}
	}
	return failure, nil
}

// newFailure describes the last decision, which has problems.
func (r *runner) newFailure(request *decide.Request, problems []Problem) *Failure {
	f := &Failure{Request: formatRequest(request, request.Domain), Problems: problems}
	r.explained++
	if r.explained <= maxExplained {
		f.Explanation = explain.ForRequest(explain.Options{Decide: r.suite.server}, r.suite.Rules, request).Text(false)
	}
	if len(r.result.Decisions) > 0 {
		f.Outcome = outcomeText(&r.result, deciding(&r.result))
	}
	return f
}

// counts returns the problems with the numbers of allowed and denied requests.
func (e *expectation) counts(requests, denied int64) []Problem {
	var all []Problem
	if e.allowed != nil && *e.allowed != requests-denied {
		all = append(all, Problem{"allowed", fmt.Sprint(*e.allowed), fmt.Sprint(requests - denied)})
	}
	if e.denied != nil && *e.denied != denied {
		all = append(all, Problem{"denied", fmt.Sprint(*e.denied), fmt.Sprint(denied)})
	}
	return all
}
