package rulestest_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/joshdk/go-junit"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/rulestest"
)

// oneFails has a test that passes and one that fails. The name of the latter needs escapes in XML.
const oneFails = `
tests:
  - {name: passes, steps: [{request: 'user_id=1,action=login', repeat: 6, expect: {denied: 1}}]}
  - {name: 'fails <&"> ]]>', steps: [{request: 'user_id=1,action=login', expect: {verdict: denied, remaining: 0}}]}
`

func report(t *testing.T, tests string) *rulestest.Report {
	t.Helper()
	suite := mustLoad(t, tests)
	r := &rulestest.Report{Coverage: &rulestest.Coverage{}}
	r.Results = runAll(t, suite, rulestest.Options{Coverage: r.Coverage})
	return r
}

func TestJUnitIsReadByOtherPrograms(t *testing.T) {
	r := report(t, oneFails)
	second := report(t, "tests: [{name: other, steps: [{request: friend=1, expect: allowed}]}]\n")
	r.Results = append(r.Results, second.Results...)
	var out bytes.Buffer
	must.Succeed(t, r.WriteJUnit(&out))
	if !strings.HasPrefix(out.String(), xml.Header+"<testsuites ") {
		t.Errorf("it begins %.80q", out.String())
	}
	suites, err := junit.Ingest(out.Bytes())
	must.Succeed(t, err)
	if len(suites) != 2 || suites[0].Totals.Tests != 2 || suites[0].Totals.Failed != 1 || suites[0].Totals.Passed != 1 || suites[1].Totals.Passed != 1 {
		t.Fatalf("suites %+v, want one with a failure of 2 tests, and one that passes", suites)
	}
	failed := suites[0].Tests[1]
	if failed.Name != `fails <&"> ]]>` || failed.Status != junit.StatusFailed || !strings.HasSuffix(failed.Classname, "test.yaml") {
		t.Errorf("%+v, want the failed test under its escaped name", failed)
	}
	if text := failed.Error.Error(); !strings.Contains(text, "verdict: want denied, got allowed") || !strings.Contains(text, "rules.yaml:5") {
		t.Errorf("the failure is %q", text)
	}
	// The totals that other programs read instead of counting.
	var totals struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Tests    int     `xml:"tests,attr"`
			Failures int     `xml:"failures,attr"`
			Time     float64 `xml:"time,attr"`
		} `xml:"testsuite"`
	}
	must.Succeed(t, xml.Unmarshal(out.Bytes(), &totals))
	if totals.Tests != 3 || totals.Failures != 1 || len(totals.Suites) != 2 || totals.Suites[0].Failures != 1 || totals.Suites[0].Time <= 0 {
		t.Errorf("totals %+v, want 3 tests and 1 failure in 2 suites", totals)
	}
}

func TestReportIsWrittenAsJSON(t *testing.T) {
	out, err := json.Marshal(report(t, oneFails))
	must.Succeed(t, err)
	var got struct {
		Passed, Failed int
		Tests          []struct {
			File, Name string
			Line       int
			Passed     bool
			Requests   int
			Failures   []struct {
				Line, Step, Repetition int
				Time, Request          string
				Problems               []struct{ Field, Want, Got string }
				Outcome, Explanation   string
			}
		}
		Coverage struct {
			Percent float64
			Covered int
			Limits  []struct {
				Domain, Rule, Source, Limit, Algorithm string
				Unlimited                              bool
				Reached, Denied                        int
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("the report has unknown fields or is no JSON: %v\n%s", err, out)
	}
	if got.Passed != 1 || got.Failed != 1 || len(got.Tests) != 2 || !got.Tests[0].Passed || got.Tests[0].Requests != 6 || got.Tests[1].Line != 5 {
		t.Fatalf("%s\nwant 1 of 2 tests passed after 6 requests, and the other on line 5", out)
	}
	f := got.Tests[1].Failures[0]
	if f.Line != 5 || f.Step != 1 || f.Repetition != 1 || f.Time != "2024-01-01T00:00:00Z" || f.Request != "user_id=1,action=login" || f.Explanation == "" || f.Outcome != "{verdict: allowed, remaining: 4}" {
		t.Errorf("%+v, want the first request on line 5, with its explanation and outcome", f)
	}
	if len(f.Problems) != 2 || f.Problems[1] != (struct{ Field, Want, Got string }{"remaining", "0", "4"}) {
		t.Errorf("problems %+v, want two, the second about remaining", f.Problems)
	}
	if c := got.Coverage; c.Covered != 1 || len(c.Limits) != 11 || c.Limits[0].Limit != "logins" || c.Limits[0].Denied != 1 || c.Limits[0].Reached != 7 {
		t.Errorf("coverage %+v, want 1 of 11 limits: logins, with 1 denial of 7 requests", c)
	}
}
