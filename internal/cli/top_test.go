package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/explain"
)

const topToken = "0123456789abcdef0123456789abcdef"

// observedKeys has the busiest keys and the decisions of an admin API.
type observedKeys struct{ stop chan struct{} }

func (observedKeys) Top(by api.TopOrder, domain string, n int) api.Top {
	top := api.Top{Since: time.Now().Add(-100 * time.Second), Total: 1234, Error: 3, Keys: []api.TopKey{
		{Domain: "shop", Rule: "user_id.action=login", Key: []explain.Entry{{"user_id", "42"}, {"action", "login"}}, KeyHash: "0011223344556677", Count: 900, Error: 2},
		{Domain: "shop", Rule: "ip", Key: []explain.Entry{{"ip", "\x1b]0;evil\x07"}}, KeyHash: "8899aabbccddeeff", Count: 100},
		{Domain: "shop", Rule: "hidden", KeyHash: "0123456789abcdef", Count: 7},
	}}
	if by == api.ByDenied {
		top.Keys, top.Total = top.Keys[:1], 55
		top.Keys[0].Count = 55
	}
	top.Keys = top.Keys[:min(n, len(top.Keys))]
	return top
}

func (o observedKeys) Subscribe(f api.Filter) (*api.Subscription, error) {
	decisions := make(chan api.Decision, 10)
	decisions <- api.Decision{
		Time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), Domain: "shop", Rule: "user_id.action=login", Limit: "burst", Algorithm: "funnel",
		Key: []explain.Entry{{"user_id", "4\n2"}, {f.Entry[0], f.Entry[1]}}, KeyHash: "0011223344556677", Enforced: true, Outcome: "denied", Reason: "over_limit", Hits: 1, Used: 5,
		RetryAfter: "12.5s", ResetAfter: "1m0s", By: "cache",
	}
	decisions <- api.Decision{Domain: "shop", Rule: "user_id", Limit: "0", KeyHash: "0123456789abcdef", Outcome: "denied", By: "store", RetryAfter: "never"}
	decisions <- api.Decision{Domain: "shop", Key: []explain.Entry{{"a", "b"}}, Outcome: "allowed", Reason: "no_rule", Hits: 1}
	if o.stop != nil {
		close(decisions)
	}
	return &api.Subscription{C: decisions, Dropped: func() int64 { return 7 }, Close: func() {}}, nil
}

// observing returns a running admin API and the flags to reach it. While down is set, it answers
// 503.
func observing(t *testing.T, o observedKeys) (flags AdminServer, down *atomic.Bool) {
	t.Helper()
	path := t.TempDir() + "/token"
	must.Write(t, path, topToken+"\n")
	tokens, err := admin.ReadTokens(path, func(err error) { t.Error(err) })
	must.Succeed(t, err)
	rules := rulesfiletest.Parse(t, "domain: shop\ndescriptors: [{key: user_id, descriptors: "+
		"[{key: action, value: login, rate_limit: {name: burst, unit: minute, requests_per_unit: 5, algorithm: funnel}}]}]")
	handler := admin.New(admin.Options{
		Rules: func() *descriptors.Rules { return rules }, Status: func() api.Status { return api.Status{} }, Auth: admin.Auth{Tokens: tokens}, Top: o.Top, Subscribe: o.Subscribe,
		Answered: func(string, int) {}, Unauthorized: func(admin.UnauthorizedCall) {}, Panicked: func(string, any) {},
	})
	down = &atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return AdminServer{Server: server.URL, adminCredentials: adminCredentials{TokenFile: path}}, down
}

func fastRetries(t *testing.T) {
	before := retries
	retries = backoff.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	t.Cleanup(func() { retries = before })
}

func TestTopPrintsOneTableIntoAPipe(t *testing.T) {
	flags, _ := observing(t, observedKeys{})
	top := Top{AdminServer: flags, By: "hits", N: 20, Output: "text"}
	start := time.Now()
	out, errs, code := runWithInput("", top.Run)
	// The period is 100 s, and the time that the machine took for the answer.
	_, rest, _ := strings.Cut(out, " hits in ")
	text, _, _ := strings.Cut(rest, ";")
	period, _ := time.ParseDuration(text)
	if period < 100*time.Second || period > 101*time.Second+time.Since(start) {
		t.Errorf("the period is %q, want 1m40s", text)
	}
	rate := func(count int) string { return fmt.Sprintf("%-10.1f", float64(count)/period.Seconds()) }
	want := "1234 hits in " + period.String() + "; counts may be up to 3 too high\n" +
		"COUNT  ERROR  PER_SECOND  DOMAIN  RULE                  KEY\n" +
		"900    2      " + rate(900) + "  shop    user_id.action=login  user_id=42,action=login\n" +
		"100    0      " + rate(100) + "  shop    ip                    ip=\\x1b]0;evil\\a\n" +
		"7      0      " + rate(7) + "  shop    hidden                #0123456789abcdef\n"
	if code != 0 || errs != "" || out != want {
		t.Errorf("exit code %d %s\ngot\n%s\nwant\n%s", code, errs, out, want)
	}
	top.By, top.N, top.Output = "denied", 1, "json"
	out, _, code = runWithInput("", top.Run)
	var got api.Top
	if code != 0 || strings.Count(out, "\n") != 1 || json.Unmarshal([]byte(out), &got) != nil || got.Total != 55 || len(got.Keys) != 1 {
		t.Errorf("exit code %d %s, want one line of JSON with a total of 55 and one key", code, out)
	}
}

func TestTopReportsExactCounts(t *testing.T) {
	got := summary(&api.Top{Total: 2, Since: time.Now()}, "denied", time.Now())
	if want := "2 denied hits in 1s; counts are exact"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTopRepeatsAndOutlivesAnOutage(t *testing.T) {
	fastRetries(t)
	flags, down := observing(t, observedKeys{})
	down.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, errs := &watched{}, &watched{}
	top := Top{AdminServer: flags, By: "hits", N: 20, Output: "json", Interval: time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- top.Run(ctx, Streams{Out: out, Err: errs}) }()
	errs.await(t, "next attempt in")
	down.Store(false)
	out.await(t, "}\n{")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%v at the end of the context", err)
	}
	top.Interval = 0
	down.Store(true)
	if _, errs, code := runWithInput("", top.Run); code != 2 || errs == "" {
		t.Errorf("a server that cannot answer: exit code %d %q, want 2", code, errs)
	}
}

func TestTopAndTailExitWith2IfCredentialsAreRejected(t *testing.T) {
	flags, _ := observing(t, observedKeys{})
	flags.TokenFile = ""
	for name, run := range map[string]func(context.Context, Streams) error{
		"top":            (&Top{AdminServer: flags, By: "hits", N: 1, Output: "text"}).Run,
		"top --interval": (&Top{AdminServer: flags, By: "hits", N: 1, Output: "json", Interval: time.Second}).Run,
		"tail":           (&Tail{AdminServer: flags, Sample: 1, Output: "text"}).Run,
	} {
		if out, errs, code := runWithInput("", run); code != 2 || out != "" || !strings.Contains(errs, "credentials") {
			t.Errorf("%s: exit code %d %q %q", name, code, out, errs)
		}
	}
}

func TestTailWarnsOfUnknownRule(t *testing.T) {
	flags, _ := observing(t, observedKeys{stop: make(chan struct{})})
	for rule, want := range map[string]string{
		"user_id.acton=login": "no rule has the path user_id.acton=login now: did you mean user_id.action=login?",
		"nothing":             "no rule has the path nothing now\n", "user_id.action=login": "",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		out, errs := &watched{}, &watched{}
		ended := make(chan error, 1)
		tail := Tail{AdminServer: flags, Rule: rule, Sample: 1, Output: "text"}
		go func() { ended <- tail.Run(ctx, Streams{Out: out, Err: errs}) }()
		out.await(t, "\n")
		if got := errs.String(); !strings.Contains(got, want) || want == "" && strings.Contains(got, "warning") {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Another text could name the key of another client.
func TestKeysOfTopAndTailAreArgumentsOfPeek(t *testing.T) {
	key := []explain.Entry{{"user_id", "x,plan=free"}, {"path", `/a\=b`}}
	if entries, err := descriptors.ParseEntries(keyText(key, "")); err != nil || !slices.Equal(explain.EntriesOf(entries), key) {
		t.Errorf("%s is read as %v, %v, want %v", keyText(key, ""), entries, err, key)
	}
}

func TestTailPrintsDecisionsAndConnectsAgain(t *testing.T) {
	fastRetries(t)
	flags, down := observing(t, observedKeys{stop: make(chan struct{})})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, errs := &watched{}, &watched{}
	tail := Tail{AdminServer: flags, Entry: "action=login", Sample: 1, Output: "text"}
	ended := make(chan error, 1)
	go func() { ended <- tail.Run(ctx, Streams{Out: out, Err: errs}) }()
	for _, want := range []string{
		` denied    shop user_id=4\n2,action=login rule=user_id.action=login limit=burst hits=1 used=5 remaining=0 retry_after=12.5s reason=over_limit by=cache` + "\n",
		" denied(not enforced) shop #0123456789abcdef rule=user_id limit=0 hits=0 used=0 remaining=0 retry_after=never\n",
		" allowed   shop a=b hits=1 reason=no_rule\n",
	} {
		out.await(t, want)
	}
	errs.await(t, "7 decisions dropped")
	errs.await(t, "the server ended the stream; next attempt in")
	down.Store(true)
	errs.await(t, "503")
	n := strings.Count(out.String(), "no_rule")
	down.Store(false)
	out.awaitCount(t, "no_rule", n+1)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%v at the end of the context", err)
	}
}

func TestTailPrintsJSONLines(t *testing.T) {
	flags, _ := observing(t, observedKeys{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tail := Tail{AdminServer: flags, Entry: "action", Sample: .5, Output: "json"} // any value of action
	lines, out := io.Pipe()
	go func() { out.CloseWithError(tail.Run(ctx, Streams{Out: out, Err: &watched{}})) }()
	found := false
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		var d api.Decision
		if err := json.Unmarshal(scanner.Bytes(), &d); err != nil || d.Domain != "shop" {
			t.Errorf("error %v, got %s, want a decision of the domain shop", err, scanner.Text())
		}
		if d.Reason == "no_rule" {
			found = true
			cancel()
		}
	}
	if scanner.Err() != nil || !found {
		t.Errorf("error %v, found %v, want a decision with the reason no_rule", scanner.Err(), found)
	}
}

// A key with a = would select another entry, and another attempt would not help.
func TestTailRejectsAKeyWithAnEqualsSign(t *testing.T) {
	fastRetries(t)
	flags, _ := observing(t, observedKeys{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tail := Tail{AdminServer: flags, Entry: `a\=b=c`, Sample: 1, Output: "text"}
	if err := tail.Run(ctx, Streams{Out: &watched{}, Err: &watched{}}); err == nil || !strings.Contains(err.Error(), "'='") {
		t.Errorf("error %v, want that the key has a =", err)
	}
}

func TestTopAndTailRejectInvalidValues(t *testing.T) {
	for name, err := range map[string]error{
		"-n 0": (&Top{N: 0}).Validate(), "-n 1001": (&Top{N: 1001}).Validate(), "--interval 1ms": (&Top{N: 1, Interval: time.Millisecond}).Validate(),
		"--sample 0": (&Tail{}).Validate(), "--sample 2": (&Tail{Sample: 2}).Validate(),
	} {
		if err == nil {
			t.Errorf("no error for %s", name)
		}
	}
}

// In a terminal, top shows the table, follows the keys and the size of the terminal, and quits with
// q.
func TestTopInATerminal(t *testing.T) {
	fastRetries(t)
	flags, down := observing(t, observedKeys{})
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Skip("no pseudo-terminal:", err)
	}
	defer screen.Close()
	must.Succeed(t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 120}))
	shown := &watched{}
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, err := screen.Read(buffer)
			_, _ = shown.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	})
	top := Top{AdminServer: flags, By: "hits", N: 20, Output: "text", Interval: 100 * time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- top.Run(t.Context(), Streams{In: terminal, Out: terminal, Err: &watched{}}) }()
	press := func(key string) {
		if _, err := screen.WriteString(key); err != nil {
			t.Error(err)
		}
	}
	shown.await(t, "user_id=42,action=login")
	press("d")
	shown.await(t, "55")
	down.Store(true)
	shown.await(t, "next attempt in")
	down.Store(false)
	if strings.Contains(shown.String(), "\x1b]0;evil") {
		t.Error("a value of a key reached the terminal as a control sequence")
	}
	press("q")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("q did not end weir top")
	}
	terminal.Close()
	reading.Wait()
}

func TestTopFitsTheTerminal(t *testing.T) {
	m := topModel{top: &Top{}, width: 40, height: 6, fetchedAt: time.Now()}
	for i := range 100 {
		m.found.Keys = append(m.found.Keys, api.TopKey{Domain: "日本語", Key: []explain.Entry{{"user_id", fmt.Sprint(strings.Repeat("x", i))}}})
	}
	lines := m.lines()
	if len(lines) > 6 {
		t.Errorf("%d lines on a terminal of 6", len(lines))
	}
	for _, line := range lines {
		if ansi.StringWidth(line) > 40 {
			t.Errorf("wider than 40: %q", line)
		}
	}
}

// watched is output that tests wait for.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *watched) await(t *testing.T, text string) { t.Helper(); w.awaitCount(t, text, 1) }

func (w *watched) awaitCount(t *testing.T, text string, n int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); strings.Count(w.String(), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q", text, w.String())
		}
	}
}
