// Package conform grades a rate limit service for Envoy from outside. It sends requests over gRPC
// to a service that holds the rules of [Rules], and compares the answers with the protocol and with
// models of the algorithms.
package conform

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options configures [Run]. Target is required.
type Options struct {
	Target string      // host:port of the service
	TLS    *tls.Config // nil: plain text

	// Algorithms are the algorithms whose rules the service holds, see [Rules]. Nil means
	// fixed_window only.
	Algorithms []string
	// Only, if not nil, selects the checks whose ids match.
	Only *regexp.Regexp

	Timeout     time.Duration // for the whole run; 0: 60 s, or 150 s with MinuteTurn
	CallTimeout time.Duration // for a call, and for a client that waits while another one stalls; 0: 5 s
	// Skew is the largest difference between the clocks of the service's replicas. 0 means 10 ms.
	Skew time.Duration
	// MinuteTurn also tests the end of a window of one minute, which takes up to a minute.
	MinuteTurn bool
	// AllowErrors accepts gRPC errors under concurrency, for a service on a faulty network. The
	// models allow either outcome for the charge of a failed call.
	AllowErrors bool

	// Done, if not nil, is called with each result, in the order of the report.
	Done func(Result)
}

// An Outcome is the result of a check.
type Outcome string

// The outcomes. An Observation reports a choice that the protocol leaves to the service.
const (
	Pass        Outcome = "pass"
	Fail        Outcome = "fail"
	Skipped     Outcome = "skipped"
	Observation Outcome = "observation"
)

// A Report is the results of a run. Its JSON form is described in docs/conform.md.
type Report struct {
	Target     string    `json:"target"`
	Domain     string    `json:"domain"`
	RunID      string    `json:"run_id"` // the start of each value of the entry "run"
	Algorithms []string  `json:"algorithms"`
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`

	Passed   int `json:"passed"`
	Failed   int `json:"failed"`
	Skipped  int `json:"skipped"`
	Observed int `json:"observed"`

	Checks []Result `json:"checks"`
}

// A Result is the result of one check.
type Result struct {
	ID      string  `json:"id"`
	Asks    string  `json:"asks"` // the question that the check answers, in a sentence
	Outcome Outcome `json:"outcome"`
	Seconds float64 `json:"seconds"`
	// Reason says why the check was skipped.
	Reason string `json:"reason,omitempty"`
	// Observations are choices of the service that the protocol allows.
	Observations []string   `json:"observations,omitempty"`
	Evidence     []Evidence `json:"evidence,omitempty"`
}

// Evidence shows why a check failed.
type Evidence struct {
	Fault    string `json:"fault"` // what is wrong, in a sentence
	Request  string `json:"request,omitempty"`
	Answer   string `json:"answer,omitempty"`
	Expected string `json:"expected,omitempty"`
	// History lists the calls that no order of single calls explains, oldest first. It is empty for
	// a fault that one client shows.
	History []string `json:"history,omitempty"`
}

// maxEvidence bounds the faults that a check reports.
const maxEvidence = 5

// A Check is the id of a check and the question that it answers.
type Check struct {
	ID   string `json:"id"`
	Asks string `json:"asks"`
}

// Checks returns the checks of a run with the algorithms, in the order of a run. Nil means
// fixed_window only.
func Checks(algorithms []string) ([]Check, error) {
	chosen, err := parseAlgorithms(algorithms)
	if err != nil {
		return nil, err
	}
	var all []Check
	for _, c := range checks(chosen) {
		all = append(all, Check{c.id, c.asks})
	}
	return all, nil
}

// ErrTimeout reports that a run exceeded its timeout. The report lists the checks that did not run
// as skipped.
var ErrTimeout = errors.New("the run took longer than its timeout: raise --timeout, or select fewer checks with --only")

// A check asks one question of the service.
type check struct {
	id, asks string
	run      func(*trial)
}

// A runner holds the state of a run.
type runner struct {
	Options
	id                 string
	algorithms         []algorithm
	conns              []*grpc.ClientConn // shared by the checks
	started            time.Time
	downSince          string // the check since which the service does not answer
	choicesByAlgorithm map[string]choices
	count              int // the number of values that uniqueName has returned
}

// Run grades a service. It returns an error if the service is unreachable or lacks the rules, and
// [ErrTimeout] or the cause of ctx if the run ended early. After an early end, the report lists the
// unfinished checks as skipped.
func Run(caller context.Context, o Options) (report Report, err error) {
	r, err := newRunner(o)
	if err != nil {
		return Report{}, err
	}
	report = Report{Target: o.Target, Domain: Domain, RunID: r.id, Algorithms: r.Algorithms, Started: r.started.UTC()}
	defer func() { report.Seconds = seconds(time.Since(r.started)) }()
	ctx, cancel := context.WithTimeout(caller, r.Timeout)
	defer cancel()
	defer r.close()
	if err := r.dial(); err != nil {
		return report, err
	}
	if err := r.holdsRules(ctx); err != nil {
		return report, err
	}
	for _, c := range checks(r.algorithms) {
		if o.Only != nil && !o.Only.MatchString(c.id) {
			continue
		}
		result := r.check(ctx, c)
		report.add(result)
		if o.Done != nil {
			o.Done(result)
		}
	}
	switch {
	case caller.Err() != nil:
		return report, context.Cause(caller)
	case ctx.Err() != nil:
		return report, ErrTimeout
	}
	if len(report.Checks) == 0 {
		return report, fmt.Errorf("no check has an id that matches %s: weir conform --list prints the ids", o.Only)
	}
	return report, nil
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

func newRunner(o Options) (*runner, error) {
	chosen, err := parseAlgorithms(o.Algorithms)
	if err != nil {
		return nil, err
	}
	o.Algorithms = nil
	for _, a := range chosen {
		o.Algorithms = append(o.Algorithms, a.name)
	}
	o.CallTimeout, o.Skew = cmp.Or(o.CallTimeout, 5*time.Second), cmp.Or(o.Skew, 10*time.Millisecond)
	if o.Timeout == 0 {
		o.Timeout = time.Minute
		if o.MinuteTurn {
			o.Timeout += 90 * time.Second
		}
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random) // it never fails
	return &runner{
		Options: o, id: hex.EncodeToString(random), algorithms: chosen, started: time.Now(), choicesByAlgorithm: map[string]choices{},
	}, nil
}

func (r *Report) add(result Result) {
	r.Checks = append(r.Checks, result)
	switch result.Outcome {
	case Pass:
		r.Passed++
	case Fail:
		r.Failed++
	case Skipped:
		r.Skipped++
	case Observation:
		r.Observed++
	}
}

const timeEnded = "the time of the run ended"

// check runs one check. The check fails if the service does not answer afterwards.
func (r *runner) check(ctx context.Context, c check) Result {
	started := time.Now()
	t := &trial{runner: r, ctx: ctx, Result: Result{ID: c.id, Asks: c.asks}}
	switch {
	case ctx.Err() != nil:
		t.skip(timeEnded)
	case r.downSince != "" && r.alive(ctx) != nil:
		t.skip("the service has not answered since the check " + r.downSince)
	default:
		t.runUntilStop(c.run)
		if err := r.alive(ctx); err != nil && ctx.Err() == nil {
			t.fault(Evidence{Fault: "the service does not answer after this check: " + err.Error()})
			r.downSince = c.id
		}
		if ctx.Err() != nil { // the service is not to blame, and the check may have skipped a part
			t.Evidence, t.Observations = nil, nil
			t.skip(timeEnded)
		}
	}
	t.Seconds = seconds(time.Since(started))
	switch {
	case len(t.Evidence) > 0:
		t.Outcome, t.Reason = Fail, ""
	case t.Reason != "":
		t.Outcome = Skipped
	case len(t.Observations) > 0:
		t.Outcome = Observation
	default:
		t.Outcome = Pass
	}
	return t.Result
}

// holdsRules returns an error if the service is unreachable or does not hold the rules.
func (r *runner) holdsRules(ctx context.Context) error {
	t := &trial{runner: r, ctx: ctx}
	limits := map[string]uint32{"version_" + version: 4001}
	for _, a := range r.algorithms {
		limits[a.rule("day_1000")] = 1000
	}
	var missing []string
	var last answer
	for _, probe := range slices.Sorted(maps.Keys(limits)) {
		got := t.call(newRequest(t.key(probe)))
		if isConnectionLost(got.err) {
			return fmt.Errorf("%s does not answer: %s: check the address, that the service listens there by gRPC, and whether it needs --tls",
				r.Target, causeOf(status.Code(got.err), status.Convert(got.err).Message()))
		}
		if got.limit(0).GetRequestsPerUnit() != limits[probe] {
			missing, last = append(missing, probe), got
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s does not hold the rules for the domain %s (no limit for %s; the last answer is %s): "+
		"load the output of weir conform --rules --algorithms=%s", r.Target, Domain, strings.Join(missing, ", "), last,
		strings.Join(r.Algorithms, ","))
}

// causeOf returns the cause of a call that did not reach a service, from grpc-go's message.
func causeOf(code codes.Code, message string) string {
	for _, known := range []struct{ part, cause string }{
		{"first record does not look like a TLS handshake", "the server has no TLS"},
		{"looked like an HTTP/1.1 header", "this is not a gRPC server"},
		{"certificate signed by unknown authority", "the certificate is signed by an unknown CA: name the CA with --ca"},
		{"produced zero addresses", "no such host"},
		{"no such host", "no such host"},
		{"connection refused", "connection refused"},
	} {
		if strings.Contains(message, known.part) {
			return known.cause
		}
	}
	if code != codes.Unavailable || message == "" {
		return "no response in time"
	}
	return "the connection failed (" + message + ")"
}

// checks returns the checks of a run. Checks that are known to crash a service come last.
func checks(chosen []algorithm) []check {
	all := slices.Concat(protocolChecks(), semanticsChecks())
	for _, a := range chosen {
		all = append(all, countingChecks(a)...)
	}
	for _, a := range chosen {
		all = append(all, boundaryChecks(a)...)
	}
	return slices.Concat(all, clientChecks(), crashChecks())
}

// Text returns a result as lines: the outcome and the id, and below them what was observed and why
// it failed.
func (r *Result) Text() string {
	var b strings.Builder
	outcome := map[Outcome]string{Pass: "pass", Fail: "FAIL", Skipped: "skip", Observation: "note"}[r.Outcome]
	fmt.Fprintf(&b, "%s  %-36s %s\n", outcome, r.ID, r.Asks)
	if r.Reason != "" {
		fmt.Fprintf(&b, "      %s\n", r.Reason)
	}
	for _, text := range r.Observations {
		fmt.Fprintf(&b, "      %s\n", text)
	}
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "      fault:    %s\n", e.Fault)
		for _, line := range [][2]string{{"request: ", e.Request}, {"answer:  ", e.Answer}, {"expected:", e.Expected}} {
			if line[1] != "" {
				fmt.Fprintf(&b, "      %s %s\n", line[0], line[1])
			}
		}
		for _, line := range e.History {
			fmt.Fprintf(&b, "        %s\n", line)
		}
	}
	return b.String()
}

// Summary returns the numbers of a report on one line.
func (r *Report) Summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped, %d observed, in %.1f s (run %s of %s)",
		r.Passed, r.Failed, r.Skipped, r.Observed, r.Seconds, r.RunID, r.Target)
}
