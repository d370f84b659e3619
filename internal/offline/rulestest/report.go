package rulestest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Report holds the results of the tests of several files. docs/test.md describes its JSON form.
type Report struct {
	Results  []*Result
	Coverage *Coverage
}

// Counts returns the number of tests that passed and of those that failed.
func (r *Report) Counts() (passed, failed int) {
	for _, t := range r.Results {
		if t.Passed() {
			passed++
		} else {
			failed++
		}
	}
	return passed, failed
}

// Requests returns the number of requests of all tests.
func (r *Report) Requests() (n int64) {
	for _, t := range r.Results {
		n += t.Requests
	}
	return n
}

// MarshalJSON implements [json.Marshaler].
func (r *Report) MarshalJSON() ([]byte, error) {
	type test struct {
		*Result
		Passed bool `json:"passed"`
	}
	type coverage struct {
		Percent float64          `json:"percent"`
		Covered int              `json:"covered"`
		Limits  []*LimitCoverage `json:"limits"`
	}
	var out struct {
		Passed   int      `json:"passed"`
		Failed   int      `json:"failed"`
		Tests    []test   `json:"tests"`
		Coverage coverage `json:"coverage"`
	}
	out.Passed, out.Failed = r.Counts()
	for _, t := range r.Results {
		out.Tests = append(out.Tests, test{t, t.Passed()})
	}
	out.Coverage = coverage{Percent: r.Coverage.Percent(), Limits: append([]*LimitCoverage{}, r.Coverage.Limits()...)}
	out.Coverage.Covered, _ = r.Coverage.Counts()
	return json.Marshal(&out)
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`

	took time.Duration
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes r as JUnit XML: one suite for each file.
func (r *Report) WriteJUnit(w io.Writer) error {
	var all junitSuites
	var took time.Duration
	for _, t := range r.Results {
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != t.File {
			all.Suites = append(all.Suites, junitSuite{Name: t.File})
		}
		suite := &all.Suites[len(all.Suites)-1]
		c := junitCase{Name: t.Name, Class: t.File, Time: seconds(t.Took)}
		suite.Tests++
		all.Tests++
		if !t.Passed() {
			suite.Failures++
			all.Failures++
			c.Failure = &junitFailure{t.Failures[0].Problems[0].String(), "expectation", t.FailureText()}
		}
		suite.took += t.Took
		took += t.Took
		suite.Time = seconds(suite.took)
		suite.Cases = append(suite.Cases, c)
	}
	all.Time = seconds(took)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(&all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }

// FailureText describes the failures of a test: for each step the request, the expectation, the
// outcome, and the reason.
func (r *Result) FailureText() string {
	var b strings.Builder
	for _, f := range r.Failures {
		f.write(&b, r.File)
	}
	return b.String()
}

// write describes a failure of a test in a file.
func (f *Failure) write(b *strings.Builder, file string) {
	fmt.Fprintf(b, "%s:%d: step %d", file, f.Line, f.Step)
	if f.Repetition > 1 {
		fmt.Fprintf(b, ", request %d", f.Repetition)
	}
	fmt.Fprintf(b, ", at %v: %s\n", f.At, f.Request)
	for _, p := range f.Problems {
		fmt.Fprintf(b, "  %v\n", p)
	}
	if f.Outcome != "" {
		fmt.Fprintf(b, "  outcome: %s\n", f.Outcome)
	}
	for line := range strings.Lines(f.Explanation) {
		b.WriteString(strings.TrimRight("  | "+line, " \n") + "\n")
	}
}
