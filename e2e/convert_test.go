package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

const convertedRules = `domain: weir
descriptors:
  - key: user_id
    descriptors:
      - {key: action, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding_log}}
`

// A loggedRequest is a request through Envoy, and its response.
type loggedRequest struct {
	user, path, cost, agent, delay string
	sent, answered                 time.Time
	status                         int
}

// do sends the request.
func (r *loggedRequest) do(t *testing.T, e *harness.Envoy) error {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL+r.path+"?cost="+r.cost, nil)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"x-user-id": r.user, "x-forwarded-for": r.user, "x-action": r.path, "x-cost": r.cost, "user-agent": r.agent, "x-envoy-fault-delay-request": r.delay,
	} {
		if value != "" {
			q.Header.Set(name, value)
		}
	}
	r.sent = time.Now()
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	r.answered, r.status = time.Now(), response.StatusCode
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// A recordedLine is a line of a recording.
type recordedLine struct {
	T           time.Time
	Domain      string
	Descriptors [][][2]string
	Hits        int // 1 if the line has none
	Allowed     *bool
}

// logTo has Envoy charge the header x-cost, delay requests that ask for it, and write three logs.
func logTo(text, dir string) string {
	const file = `
                  - name: envoy.access_loggers.file
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                      path: `
	const format = `
                      log_format:
                        `
	logs := file + filepath.Join(dir, "default.log") +
		file + filepath.Join(dir, "json.log") + format + `json_format: {start_time: "%START_TIME(%Y-%m-%dT%H:%M:%S.%6fZ)%", response_code: "%RESPONSE_CODE%", path: "%REQ(:PATH)%", ` +
		`request: {user: "%REQ(X-USER-ID)%", cost: "%REQ(X-COST)%"}, agent: "%REQ(USER-AGENT)%"}` +
		file + filepath.Join(dir, "text.log") + format + `text_format_source: {inline_string: ` + strconv.Quote(loggedFormat+"\n") + "}"
	const delay = `- name: envoy.filters.http.fault
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
                      delay: {header_delay: {}, percentage: {numerator: 100}}
                  `
	const cost = `typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions:
                                    - request_headers: {header_name: x-user-id, descriptor_key: user_id}
                                    - request_headers: {header_name: x-action, descriptor_key: action}
                                  hits_addend: {format: "%REQ(X-COST)%"}
                          `
	const router, route, prefix = "- name: envoy.filters.http.router", "route:\n", "stat_prefix: ingress\n"
	text = strings.Replace(text, prefix, prefix+"                access_log:"+logs+"\n", 1)
	text = strings.Replace(text, router, delay+router, 1)
	return strings.Replace(text, route, cost+route, 1)
}

const loggedFormat = `%START_TIME(%s.%6f)% %RESPONSE_CODE% "%REQ(X-USER-ID)%" [%REQ(:PATH)%] cost=%REQ(X-COST)%`

// A recording from each kind of log of a real Envoy has the requests, in the order of their starts.
// A simulation of the recording denies the requests that were denied.
func TestLogsOfEnvoyBecomeRecordings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := must.Write(t, filepath.Join(dir, "rules.yaml"), convertedRules)
	w := startWeir(t, "", rules)
	e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("..", "envoy", "bootstrap.yaml"), Weir: w.GRPC, Dir: dir, Timeout: testTimeout,
		Edit: func(text string) string { return logTo(text, dir) },
	})

	const alice, bob, carol, eve = "192.0.2.1", "192.0.2.2", "2001:db8::3", "192.0.2.66"
	requests := []*loggedRequest{
		{user: alice, path: "/export", cost: "3", delay: "700"}, // its line is the last one
		{user: alice, path: "/login", cost: "1"},
		{user: alice, path: "/login", cost: "2", agent: "app/3 (a b)"},
		{user: alice, path: "/login", cost: "1"},
		{user: bob, path: "/login", cost: "1"},
		{user: carol, path: "/login", cost: "4"},
		{user: carol, path: "/export", cost: "2"},
		{path: "/health", cost: "1"}, // without a user
		{user: eve, path: "/login", cost: "1", agent: `x" "y`},
		{user: bob, path: "/login", cost: "2"},
	}
	slow := make(chan error, 1)
	go func() { slow <- requests[0].do(t, e) }()
	must.Until(t, "the first request has arrived", func() bool {
		stats, _ := harness.Get(t.Context(), e.Admin+"/stats?filter=delays_injected")
		return strings.Contains(stats, "delays_injected: 1")
	})
	for _, r := range requests[1:] {
		must.Succeed(t, r.do(t, e))
	}
	must.Succeed(t, <-slow)
	denied := 0
	for _, r := range requests {
		if r.status == http.StatusTooManyRequests {
			denied++
		} else if r.status != http.StatusOK {
			t.Fatalf("%+v", r)
		}
	}
	if denied != 2 {
		t.Errorf("%d requests denied, want 2", denied)
	}
	harness.MustStop(t, e.Process) // it writes its logs at the latest when it stops

	for _, c := range []struct {
		log       string
		arguments []string
		precision time.Duration
		code      int
		said      []string
		unread    string // the user whose request the log does not show clearly
	}{
		{"default.log", []string{"--format", "envoy", "--hits", "%{path|query cost}", "--descriptor", "user_id=%{x-forwarded-for|item -1},action=%{path|path}"},
			time.Millisecond, 1, []string{"lines 10, requests 8, unreadable lines 1, lines without a descriptor 1", "a field has the characters that separate fields"}, eve},
		{"json.log", []string{"--format", "json", "--hits", "%{request.cost}", "--descriptor", "user_id=%{request.user},action=%{path|path}"},
			time.Microsecond, 0, []string{"lines 10, requests 9, unreadable lines 0, lines without a descriptor 1"}, ""},
		{"text.log", []string{"--format", "envoy", "--log-format", loggedFormat, "--hits", "%{x-cost}", "--descriptor", "user_id=%{x-user-id},action=%{path|path}"},
			time.Microsecond, 0, []string{"lines 10, requests 9, unreadable lines 0, lines without a descriptor 1"}, ""},
	} {
		t.Run(c.log, func(t *testing.T) {
			recording := filepath.Join(dir, c.log+".ndjson")
			said, code := runWeir(t, append(append([]string{"convert", "--domain", "weir", "--out", recording}, c.arguments...), filepath.Join(dir, c.log))...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.said {
				if !strings.Contains(said, want) {
					t.Errorf("the report lacks %q:\n%s", want, said)
				}
			}
			sent := slices.DeleteFunc(slices.Clone(requests), func(r *loggedRequest) bool { return r.user == "" || r.user == c.unread })
			lines := readLines(t, recording)
			if len(lines) != len(sent) {
				t.Fatalf("%d lines of a recording, want %d", len(lines), len(sent))
			}
			for i, r := range sent {
				got := lines[i]
				if got.T.Before(r.sent.Truncate(c.precision)) || got.T.After(r.answered) {
					t.Errorf("line %d: %v, want between %v and %v", i+1, got.T, r.sent, r.answered)
				}
				request := fmt.Sprintf("weir [[[user_id %s] [action %s]]] %s %t", r.user, r.path, r.cost, r.status == http.StatusOK)
				if line := fmt.Sprint(got.Domain, " ", got.Descriptors, " ", got.Hits, " ", *got.Allowed); line != request {
					t.Errorf("line %d: %s, want %s", i+1, line, request)
				}
			}
			out, _ := runWeir(t, "simulate", "--config", rules, "-o", "json", recording)
			var result struct{ Requests, Denied, Unmatched int }
			if err := json.Unmarshal([]byte(out), &result); err != nil || result.Requests != len(sent) || result.Denied != denied || result.Unmatched != 0 {
				t.Errorf("%v, %+v, want %d requests and %d denied in\n%s", err, result, len(sent), denied, out)
			}
		})
	}
}

// runWeir runs a command of Weir, and returns its standard output or, if that is empty, standard
// error, and its exit code.
func runWeir(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	bin := binary(t)
	var out, report bytes.Buffer
	c := exec.CommandContext(t.Context(), bin, arguments...)
	c.Stdout, c.Stderr = &out, &report
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		out = report
	}
	return out.String(), c.ProcessState.ExitCode()
}

// readLines reads a plain recording.
func readLines(t *testing.T, path string) (lines []recordedLine) {
	t.Helper()
	text := must.Read(t, path)
	for line := range bytes.Lines(text) {
		l := recordedLine{Hits: 1}
		if err := json.Unmarshal(line, &l); err != nil || l.Allowed == nil {
			t.Fatalf("%s: %v, or no outcome", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}
