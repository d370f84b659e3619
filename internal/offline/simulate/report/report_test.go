package report

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/recording"
)

var start = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func write(t *testing.T, r *simulate.Result) string {
	t.Helper()
	var b strings.Builder
	must.Succeed(t, Write(&b, r))
	return b.String()
}

// evil is the text of a client or a file in every field that may have one.
const evil = `"'><script>alert(1)</script><img src=x onerror=alert(2)>` + "\u202e\u0000{{.}}"

func evilResult() *simulate.Result {
	return &simulate.Result{
		Requests: 2, Allowed: 1, Denied: 1, Failed: 1, FirstFailure: evil, From: start, To: start.Add(time.Minute), RulesVersion: evil, Synthetic: evil,
		Warnings: []string{evil}, UnmatchedPaths: []simulate.UnmatchedPath{{Domain: evil, Path: evil, Descriptors: 1}},
		Timeline: simulate.Timeline{Start: start, BucketSeconds: 30, Allowed: []int64{1, 0}, Denied: []int64{0, 1}},
		Limits: []*simulate.LimitResult{{
			Domain: evil, Path: evil, Name: evil, Text: evil, Source: evil, Mode: evil, Requests: 2, Denied: 1, RequestsPerUnit: 1,
			Peak:            &simulate.Peak{Used: 1, At: start, Key: evil},
			AllowedOverTime: []int64{1, 0}, DeniedOverTime: []int64{0, 1},
			TopKeys: []simulate.TopKey{{Key: evil, Requests: 2, Denied: 1, FirstDenied: start, LastDenied: start}},
			Comparison: &simulate.Comparison{Reason: evil, Algorithms: []simulate.AlgorithmResult{{Algorithm: "fixed_window", Denied: 1, Error: evil}},
				Burst: &simulate.Burst{Key: evil, From: start, To: start.Add(time.Minute), Demand: []int64{0, 2}, Fixed: []int64{0, 1}, Log: []int64{0, 1}, Funnel: []int64{0, 1}}},
		}},
	}
}

func TestReportEscapesTextOfClients(t *testing.T) {
	page := write(t, evilResult())
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("the page has %d scripts, want its own", n)
	}
	for _, raw := range []string{"<img", "onerror=alert(2)>", "\u202e", "\u0000"} {
		if strings.Contains(page, raw) {
			t.Errorf("the page contains %q", raw)
		}
	}
	if !strings.Contains(page, `\u202e\x00`) {
		t.Error("characters that are not printable are not shown escaped")
	}
}

// The page refers to no other file, and its policy allows none.
func TestReportIsOneFile(t *testing.T) {
	page := write(t, evilResult())
	for _, match := range regexp.MustCompile(`(?i)(?:src|href|action)\s*=\s*"([^"]*)"|url\(([^)]*)\)|@import|https?://[^ <"]*`).FindAllString(page, -1) {
		if !strings.HasPrefix(match, `href="#`) && match != `href="data:,"` {
			t.Errorf("the page refers to %s", match)
		}
	}
	if !strings.Contains(page, `content="default-src 'none';`) || !strings.Contains(page, "script-src 'sha256-") {
		t.Error("the page has no policy")
	}
}

func TestReportOfNoRequests(t *testing.T) {
	if page := write(t, &simulate.Result{}); !strings.Contains(page, "The recording has no request.") {
		t.Error("a page without requests does not say so")
	}
}

func TestReportNamesSkippedLines(t *testing.T) {
	page := write(t, &simulate.Result{Lines: 2000, Skipped: []recording.FileSkipCount{
		{File: "a.jsonl", SkipCount: recording.SkipCount{Reason: recording.NotJSON, Lines: 3, First: 7}},
		{File: "<b>", SkipCount: recording.SkipCount{Reason: recording.Unreadable, Lines: 1}, Error: "<no such file>"},
	}})
	for _, want := range []string{
		"Skipped in <span class=\"mono\">a.jsonl</span>: 3\u00a0lines (not json, first in line 7).</p>",
		"Skipped in <span class=\"mono\">&lt;b&gt;</span>: 1\u00a0line (unreadable). &lt;no such file&gt;.</p>",
		"The recording has 2,000\u00a0lines.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if page := write(t, &simulate.Result{Lines: 2000}); strings.Contains(page, "Skipped in") || strings.Contains(page, "skipped lines") {
		t.Error("a page names skipped lines of a recording without them")
	}
}

// Many limits are bounded. Those with the most denied requests are first.
func TestReportIsBounded(t *testing.T) {
	r := &simulate.Result{Requests: 1, Timeline: simulate.Timeline{Start: start, BucketSeconds: 1, Allowed: []int64{1}, Denied: []int64{0}}}
	for i := range 1000 {
		r.Limits = append(r.Limits, &simulate.LimitResult{
			Path: fmt.Sprintf("rule-%03d", i), Mode: "enforced", Requests: 5, Denied: int64(i % 500), AllowedOverTime: []int64{5}, DeniedOverTime: []int64{0},
		})
	}
	page := write(t, r)
	if rows, sections := strings.Count(page, `<th scope="row"><`), strings.Count(page, `<section class="card limit"`); rows != maxRows || sections != maxDetails {
		t.Errorf("the page has %d rows and %d sections, want %d and %d", rows, sections, maxRows, maxDetails)
	}
	if !strings.Contains(page, "800&nbsp;more limits") || !strings.Contains(page, "rule-999") || strings.Contains(page, "rule-000") {
		t.Error("the page prefers limits that deny less")
	}
	if i, j, k := strings.Index(page, "rule-499"), strings.Index(page, "rule-999"), strings.Index(page, "rule-498"); i > j || j > k {
		t.Error("the worst limits are not first")
	}
}

func TestChartStacksDeniedOnAllowed(t *testing.T) {
	c := newChart(&simulate.Timeline{Start: start, BucketSeconds: 30}, []int64{1, 0, 3}, []int64{1, 0, 1})
	if c.Top != 4 || c.TopDenied != 1 || !c.To.Equal(start.Add(90*time.Second)) || len(c.Busy()) != 2 || c.Series() != "1,1 0,0 3,1" {
		t.Errorf("got %+v", c)
	}
	// Of 4 requests, 3 allowed are 75 high, from the bottom. One denied is 25 high, above them.
	if want := "M666.67 100.00h300.00v-75.00h-300.00z"; !strings.HasSuffix(c.AllowedPath, want) {
		t.Errorf("allowed: got %s, want …%s", c.AllowedPath, want)
	}
	if want := "M666.67 25.00h300.00v-25.00h-300.00z"; !strings.HasSuffix(c.DeniedPath, want) {
		t.Errorf("denied: got %s, want …%s", c.DeniedPath, want)
	}
}

func TestBurstShowsHitsBeyondTheLimit(t *testing.T) {
	l := &simulate.LimitResult{RequestsPerUnit: 5, Comparison: &simulate.Comparison{
		Algorithms: []simulate.AlgorithmResult{{Algorithm: "fixed_window", Burst: 10}},
		Burst: &simulate.Burst{
			From: start, To: start.Add(10 * time.Second), Boundary: start.Add(9 * time.Second),
			Demand: []int64{0, 0, 0, 0, 0, 0, 0, 0, 5, 5}, Fixed: []int64{0, 0, 0, 0, 0, 0, 0, 0, 5, 5}, Log: []int64{0, 0, 0, 0, 0, 0, 0, 0, 5, 0},
		},
	}}
	b := newBurst(l)
	if b == nil || b.Top != 10 || len(b.Lines) != 2 || b.Lines[0].Hits != 10 || b.Lines[1].Hits != 5 || b.Times(10) != "2.0\u00a0×\u00a0the\u00a0limit" || b.Demand != 10 {
		t.Fatalf("got %+v", b)
	}
	// The picture begins at 7 s, and 9 s is two thirds of it.
	if b.EdgeX < 666 || b.EdgeX > 667 || !b.Shown.Equal(start.Add(7*time.Second)) {
		t.Errorf("the boundary is at %g of the picture from %v", b.EdgeX, b.Shown)
	}
	l.Comparison.Algorithms[0].Burst = 5
	if newBurst(l) != nil {
		t.Error("a picture of a burst within the limit")
	}
}

func TestNumbersAreRoundedForReaders(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{terminal.Grouped(1234567), "1,234,567"}, {terminal.Grouped(-1234), "-1,234"}, {terminal.Grouped(999), "999"}, {share(1, 3), "33.3\u00a0%"}, {share(1, 0), "0\u00a0%"}, {percent(0.00001), "<\u00a00.01\u00a0%"},
		{seconds(0), "0\u00a0s"}, {seconds(0.25), "250\u00a0ms"}, {seconds(30), "30\u00a0s"}, {seconds(90), "1\u00a0min\u00a030\u00a0s"}, {seconds(3660), "1\u00a0h\u00a01\u00a0min"}, {seconds(90000), "1\u00a0d\u00a01\u00a0h"},
		{seconds(9.5e9), "109,953\u00a0d"},
		{count(1, "line"), "1\u00a0line"}, {count(2000, "line"), "2,000\u00a0lines"}, {key("user_id=a\\=b\u202e"), `user_id=a\=b\u202e`}, {moment(time.Time{}), "–"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestReportReturnsTheErrorOfItsWriter(t *testing.T) {
	if err := Write(failing{}, &simulate.Result{}); err == nil {
		t.Error("no error")
	}
}
