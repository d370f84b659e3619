package e2e_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// readSupportPage returns docs/support.md with the blocks of docs/admin.md that set up the example.
func readSupportPage(t *testing.T) docPage {
	t.Helper()
	p, operator := readPage(t, "support.md"), readPage(t, "admin.md")
	for _, name := range []string{"sh setup", "sh receipt-keys", "sh support-settings", "yaml access-log"} {
		if p.named[name] = operator.named[name]; p.named[name] == "" {
			t.Fatalf("docs/admin.md has no block %s", name)
		}
	}
	return p
}

// A supportStory is the example of docs/support.md: one Envoy, two replicas behind it, and their
// Redis.
type supportStory struct {
	dir      string
	replicas [2]*harness.Weir
	admins   [2]string
	envoy    *harness.Envoy
	script   string // begins every script
	shown    string // the receipt of the page
	receipt  string // the receipt of this run
}

func startSupportStory(t *testing.T, page docPage) *supportStory {
	t.Helper()
	bin := binary(t)
	s := &supportStory{dir: t.TempDir()}
	must.Write(t, filepath.Join(s.dir, "rules.yaml"), page.named["yaml rules.yaml"])
	s.script = `weir() { "` + bin + `" "$@"; }` + "\n"
	if out, code := s.run(t, page.named["sh setup"]+page.named["sh receipt-keys"]); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	redis := redistest.Start(t).Addr
	var settings []string
	for line := range strings.Lines(page.named["sh setup"] + page.named["sh support-settings"]) {
		if settingsOfLine, isExport := strings.CutPrefix(line, "export "); isExport {
			settings = append(settings, strings.Fields(settingsOfLine)...)
		}
	}
	for i := range s.replicas {
		s.admins[i] = redistest.FreeAddr(t)
		// Without the message of the other replica, a denial stays in the deny cache for half an
		// hour.
		env := []string{"DENY_CACHE_MAX=1h", "STORE_TIMEOUT=1m"}
		for _, setting := range settings {
			for _, file := range []string{"token", "receipt-keys"} {
				setting = strings.ReplaceAll(setting, "="+file, "="+filepath.Join(s.dir, file))
			}
			env = append(env, strings.NewReplacer("127.0.0.1:6071", s.admins[i]).Replace(setting))
		}
		s.replicas[i] = harness.MustStartWeir(t, harness.WeirOptions{
			Binary: bin, Rules: filepath.Join(s.dir, "rules.yaml"), Redis: redis, Env: env,
		})
	}
	s.startEnvoy(t, page.named["yaml access-log"])
	s.script += strings.ReplaceAll(page.named["sh variables"], "127.0.0.1:6071", s.admins[0])
	return s
}

// startEnvoy starts an Envoy with both replicas and the access log of the page.
func (s *supportStory) startEnvoy(t *testing.T, accessLog string) {
	t.Helper()
	_, second, err := net.SplitHostPort(s.replicas[1].GRPC)
	must.Succeed(t, err)
	port, err := strconv.Atoi(second)
	must.Succeed(t, err)
	s.envoy = harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("..", "envoy", "bootstrap.yaml"), Weir: s.replicas[0].GRPC, Dir: s.dir, Timeout: testTimeout, Ports: []int{port},
		Edit: func(text string) string {
			const first = "- endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8081}}}"
			both := first + "\n              " + strings.Replace(first, "8081", second, 1)
			return strings.Replace(loggingTo(filepath.Join(s.dir, "access.log"), accessLog)(text), first, both, 1)
		},
	})
}

// run runs commands of the page, and returns what they print and their exit code. The page's
// receipt is replaced by the real one, and any other receipt of the page by a forged one.
func (s *supportStory) run(t *testing.T, commands string) (string, int) {
	t.Helper()
	commands = receiptText.ReplaceAllStringFunc(commands, func(shown string) string {
		if shown == s.shown {
			return s.receipt
		}
		middle := len(s.receipt) / 2
		other := "x"
		if s.receipt[middle] == 'x' {
			other = "y"
		}
		return s.receipt[:middle] + other + s.receipt[middle+1:]
	})
	if s.envoy != nil {
		commands = strings.ReplaceAll(commands, "localhost:10000", strings.TrimPrefix(s.envoy.URL, "http://"))
	}
	return bash(t, s.dir, s.script+commands)
}

var (
	// spans and times differ from run to run.
	spans = regexp.MustCompile(`\b([0-9]+h)?([0-9]+m)?[0-9]+(\.[0-9]+)?s\b`)
	times = regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+( UTC|Z)`)
	names = regexp.MustCompile(`(?m)replica \S{1,8}$`) // as long as a receipt can hold
)

// comparable replaces the texts that differ from run to run, and the columns and line breaks that
// depend on their lengths.
func (s *supportStory) comparable(text string) string {
	text = strings.ReplaceAll(comparableText(text+"\n."), s.dir+"/", "/etc/weir/")
	text = spans.ReplaceAllString(times.ReplaceAllString(names.ReplaceAllString(text, "replica NAME"), "TIME"), "SPAN")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "│", "")), " ")
}

// passes sends a login of user 42 to one replica, and reports whether it is allowed.
func (s *supportStory) passes(t *testing.T, replica int) bool {
	t.Helper()
	const login = `{"domain":"weir","descriptors":[{"entries":[{"key":"user_id","value":"42"},{"key":"action","value":"login"}]}]}`
	response, err := http.Post(s.replicas[replica].HTTP+"/json", "application/json", strings.NewReader(login))
	must.Succeed(t, err)
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// deny uses up the limit of user 42, so that each replica remembers the denial.
func (s *supportStory) deny(t *testing.T) {
	t.Helper()
	for i := range s.replicas {
		for s.passes(t, i) {
		}
	}
}

// passAfterReset returns the time until user 42 passes on every replica. Before the reset, each
// replica remembers the denial for far longer than the test waits.
func (s *supportStory) passAfterReset(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	for i := range s.replicas {
		must.Until(t, "replica "+strconv.Itoa(i)+" allows user 42", func() bool { return s.passes(t, i) })
	}
	return time.Since(began)
}

// Every part of a denial names the same limit: header, receipt, access log, peek, explain and
// reset. After the reset, the next request passes on every replica within a second. The commands
// and the output are those of docs/support.md.
func TestSupportFindsAndResetsALimit(t *testing.T) {
	t.Parallel()
	page := readSupportPage(t)
	s := startSupportStory(t, page)
	s.shown = receiptText.FindString(page.steps[0].output)
	for range 3 {
		s.run(t, "curl -s localhost:10000 -H 'x-user-id: 42' -H 'x-action: login'")
	}
	named := 0
	for _, step := range page.steps {
		if strings.HasPrefix(step.commands, "weir reset user_id=42") {
			s.deny(t)
		}
		out := s.follow(t, step)
		if strings.Contains(out, "logins") {
			named++
		}
	}
	if len(page.steps) != 11 || named < 6 {
		t.Errorf("%d steps, and %d name the limit: this test no longer reads the page", len(page.steps), named)
	}
	s.expectSameLimit(t)

	// A busy machine delays most attempts. If each attempt takes longer, the message of the reset
	// does.
	took := time.Hour
	for deadline := time.Now().Add(testTimeout); took >= time.Second && time.Now().Before(deadline); {
		s.deny(t)
		if out, code := s.run(t, "weir reset user_id=42,action=login"); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		took = s.passAfterReset(t)
	}
	t.Logf("user 42 passed on both replicas %v after the reset", took)
	if took >= time.Second {
		t.Errorf("user 42 passed on both replicas %v after the reset, want less than 1s", took)
	}
	for _, line := range []string{`"admin change"`, `"admin call without valid credentials"`} {
		if log := s.replicas[0].Log(); !strings.Contains(log, strings.Trim(line, `"`)) {
			t.Errorf("no line %s in the log\n%s", line, log)
		}
	}
}

// follow runs a step of the page, and returns its output. A line of the log and a reset take up to
// a second to arrive.
func (s *supportStory) follow(t *testing.T, step docStep) string {
	t.Helper()
	repeats := strings.HasPrefix(step.commands, "grep") || strings.HasPrefix(step.commands, "curl -si")
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Second / 4) {
		out, code := s.run(t, step.commands)
		if found := receiptText.FindString(out); found != "" && s.receipt == "" {
			s.receipt = found
		}
		if code == step.code && s.comparable(out) == s.comparable(step.output) {
			return out
		}
		if !repeats || time.Now().After(deadline) {
			t.Errorf("%s\nprints (exit code %d, want %d)\n%s\nand the page shows\n%s\nin comparison\n%s\n%s", step.commands, code, step.code, out, step.output,
				s.comparable(out), s.comparable(step.output))
			return out
		}
	}
}

// expectSameLimit reads the parts of a denial as JSON. All must name the same limit.
func (s *supportStory) expectSameLimit(t *testing.T) {
	t.Helper()
	var version struct {
		Version string `json:"rules_version"`
	}
	read := func(commands string, into any) string {
		out, _ := s.run(t, commands)
		out = out[strings.Index(out, "{"):]
		for _, into := range []any{into, &version} {
			if err := json.Unmarshal([]byte(out), into); err != nil {
				t.Errorf("%s: %v\n%s", commands, err, out)
			}
		}
		return version.Version
	}
	type limit struct{ Domain, Rule, Limit, Source, Version string }
	got := map[string]limit{}

	var receipt limit
	receipt.Version = read("weir explain -o json --config rules.yaml --keys receipt-keys --receipt "+s.shown, &receipt)
	got["receipt"] = receipt
	var logged limit
	logged.Version = read(`grep -o '{.*}' access.log | head -1`, &logged)
	logged.Source = receipt.Source // Envoy has no rules
	got["access log"] = logged
	type limits struct {
		Domain string
		Limits []struct{ Rule, Name, Source string }
	}
	for name, commands := range map[string]string{"peek": "weir peek -o json user_id=42,action=login", "reset": "weir reset -o json user_id=42,action=login"} {
		var l limits
		v := read(commands, &l)
		if len(l.Limits) != 1 {
			t.Fatalf("%s names %d limits", name, len(l.Limits))
		}
		got[name] = limit{l.Domain, l.Limits[0].Rule, l.Limits[0].Name, filepath.Base(l.Limits[0].Source), v}
	}
	var live struct {
		Domain      string
		Descriptors []struct {
			Rule   string
			Limits []struct{ Name, Source string }
		}
	}
	v := read("weir explain -o json --live $WEIR_ADMIN_URL --domain weir user_id=42,action=login", &live)
	got["explain"] = limit{live.Domain, live.Descriptors[0].Rule, live.Descriptors[0].Limits[0].Name, filepath.Base(live.Descriptors[0].Limits[0].Source), v}
	for name, l := range got {
		if l != receipt || l.Rule == "" || l.Limit == "" || l.Source == "" || l.Version == "" {
			t.Errorf("the %s names %+v, the receipt %+v", name, l, receipt)
		}
	}
}
