package e2e_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// A responsesPage holds the examples of docs/responses.md.
type responsesPage struct {
	named map[string]string // other blocks
	parts []responsesPart
}

// A responsesPart is a section of the page that starts Weir.
type responsesPart struct {
	name, rules string
	settings    []string
	steps       []docStep
	explain     docStep
}

func readResponsesPage(t *testing.T) responsesPage {
	t.Helper()
	text := must.Read(t, "../docs/responses.md")
	p := responsesPage{named: map[string]string{}}
	start := regexp.MustCompile(`^(.*\b)?weir --config (\S+)\n$`)
	for _, section := range strings.Split(string(text), "\n## ") {
		name, _, _ := strings.Cut(section, "\n")
		blocks := readBlocks(section)
		part := responsesPart{name: name, steps: blocks.steps, explain: docStep{commands: blocks.named["sh explain"], output: blocks.named["text explain"]}}
		if command := blocks.named["sh start-weir"]; command != "" {
			m := start.FindStringSubmatch(command)
			if m == nil {
				t.Fatalf("%s: %q starts no Weir with rules", name, command)
			}
			part.settings, part.rules = strings.Fields(m[1]), m[2]
		}
		maps.Copy(p.named, blocks.named)
		if part.rules != "" {
			p.parts = append(p.parts, part)
		}
	}
	if len(p.parts) < 5 {
		t.Fatalf("docs/responses.md has only %d sections that start Weir", len(p.parts))
	}
	return p
}

// loggingTo returns an edit of a bootstrap that adds an access log with a path, and removes Envoy's
// own rate limit headers.
func loggingTo(path, accessLog string) func(string) string {
	return func(bootstrap string) string {
		lines := strings.ReplaceAll(strings.Replace(accessLog, "access.log", path, 1), "\n", "\n                ")
		bootstrap = strings.Replace(bootstrap, "stat_prefix: ingress\n", "stat_prefix: ingress\n                "+strings.TrimRight(lines, " "), 1)
		bootstrap = strings.Replace(bootstrap, "enable_x_ratelimit_headers: DRAFT_VERSION_03", "", 1)
		return strings.Replace(bootstrap, "enable_retry_after_header: true", "", 1)
	}
}

var (
	receiptText = regexp.MustCompile(`A[\w-]{117}\b`)
	secondsText = regexp.MustCompile(`(;t=|retry-after: )[0-9]+`)
	// envoysHeaders are those that the page omits.
	envoysHeaders = regexp.MustCompile(`(?m)^(date|server|content-length|x-envoy-[a-z-]+|content-type: text/plain)[^\n]*\n`)
)

// comparableText replaces the texts that differ from run to run.
func comparableText(text string) string {
	text = envoysHeaders.ReplaceAllString(strings.ReplaceAll(text, "\r", ""), "")
	return strings.TrimSpace(secondsText.ReplaceAllString(receiptText.ReplaceAllString(text, "RECEIPT"), "${1}N"))
}

// startEarlyIn waits for the next window of the clock if less than two minutes of this window
// remain. Otherwise a test that fills a limit could end in another window.
func startEarlyIn(t *testing.T, window time.Duration) {
	t.Helper()
	if left := untilNext(time.Now(), window); left < 2*time.Minute {
		t.Logf("%v of the window of %v remain: waiting for the next one", left, window)
		time.Sleep(left)
	}
}

// untilNext returns the time until the next window of the clock in UTC.
func untilNext(now time.Time, window time.Duration) time.Duration {
	return now.Truncate(window).Add(window).Sub(now)
}

// A real Envoy sends the responses of each section of docs/responses.md, and writes its access log.
func TestResponsesPageMatchesEnvoy(t *testing.T) {
	t.Parallel()
	page := readResponsesPage(t)
	bin := binary(t)
	for i, part := range page.parts {
		t.Run(part.name, func(t *testing.T) {
			dir := t.TempDir()
			key, err := exec.CommandContext(t.Context(), "openssl", "rand", "-base64", "32").Output()
			must.Succeed(t, err)
			keys := must.Write(t, filepath.Join(dir, "receipt-keys"), string(key))
			env := []string{"STORE_TIMEOUT=1m"}
			for _, setting := range part.settings {
				env = append(env, strings.Replace(setting, "=receipt-keys", "="+keys, 1))
			}
			w := harness.MustStartWeir(t, harness.WeirOptions{
				Binary: bin, Rules: must.Write(t, filepath.Join(dir, part.rules), page.named["yaml "+part.rules]), Dir: dir, Env: env,
			})
			logged := filepath.Join(dir, "access.log")
			e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
				Bootstrap: filepath.Join("..", "envoy", "bootstrap.yaml"), Weir: w.GRPC, Dir: dir, Timeout: testTimeout, Edit: loggingTo(logged, page.named["yaml access-log"]),
			})

			startEarlyIn(t, 24*time.Hour)
			receipt := part.run(t, strings.TrimPrefix(e.URL, "http://"))
			part.mustExplain(t, bin, dir, receipt)
			if i > 0 {
				return
			}
			harness.MustStop(t, e.Process) // it writes its log at the latest when it stops
			log := must.Read(t, logged)
			if got, want := comparableText(string(log)), comparableText(page.named["text access-log"]); got != want {
				t.Errorf("the access log\n got %s\nwant %s", got, want)
			}
		})
	}
}

// run runs the commands of a section against an Envoy, compares what they print, and returns the
// last receipt.
func (part *responsesPart) run(t *testing.T, envoy string) (receipt string) {
	t.Helper()
	if len(part.steps) == 0 {
		t.Error("no commands")
	}
	for _, step := range part.steps {
		out, err := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(step.commands, "localhost:10000", envoy)).Output()
		if err != nil {
			t.Fatalf("%s: %v", step.commands, err)
		}
		if got, want := comparableText(string(out)), comparableText(step.output); got != want {
			t.Errorf("%s\n got %s\nwant %s", step.commands, got, want)
		}
		receipt = receiptText.FindString(string(out))
	}
	return receipt
}

// mustExplain opens a receipt with the command of a section, if it has one.
func (part *responsesPart) mustExplain(t *testing.T, bin, dir, receipt string) {
	t.Helper()
	if part.explain.commands == "" {
		return
	}
	out, code := bash(t, dir, `weir() { "`+bin+`" "$@"; }`+"\n"+receiptText.ReplaceAllLiteralString(part.explain.commands, receipt))
	first, rest, _ := strings.Cut(out, "\n")
	wantFirst, want, _ := strings.Cut(part.explain.output, "\n")
	denied := regexp.MustCompile(`^denied   20[0-9: .-]+ UTC by replica \S{1,8}$`)
	if code != 0 || !denied.MatchString(first) || !denied.MatchString(wantFirst) || rest != want {
		t.Errorf("%s: exit code %d\n got %s\nwant %s", part.explain.commands, code, out, part.explain.output)
	}
}

// Even if Envoy adds its own headers, a 429 has only one Retry-After, and the standard headers
// parse.
func TestStandardHeadersBesideEnvoysOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := harness.MustStartWeir(t, harness.WeirOptions{
		Binary: binary(t), Rules: must.Write(t, filepath.Join(dir, "rules.yaml"), hourly(1)), Dir: dir,
		Env: []string{"RESPONSE_HEADERS_STANDARD=draft-11", "RETRY_AFTER_JITTER=100%", "STORE_TIMEOUT=1m"},
	})
	c := startEnvoy(t, "bootstrap.yaml", w)
	for _, action := range []string{"login", "reply", "post"} {
		c.allowed(t, 1, "alice", action)
		out, err := exec.CommandContext(t.Context(), "curl", "-si", c.envoy.URL, "-H", "x-user-id: alice", "-H", "x-action: "+action).Output()
		must.Succeed(t, err)
		headers := strings.ReplaceAll(string(out), "\r", "")
		if n := strings.Count(headers, "\nretry-after: "); n != 1 || !strings.HasPrefix(headers, "HTTP/1.1 429") {
			t.Errorf("%s: %d Retry-After in\n%s", action, n, headers)
		}
		for _, name := range []string{"ratelimit", "ratelimit-policy"} {
			values := regexp.MustCompile(`(?m)^`+name+`: (.*)$`).FindAllStringSubmatch(headers, -1)
			if len(values) != 1 {
				t.Fatalf("%s: %d %s in\n%s", action, len(values), name, headers)
			}
			if _, err := httpsfv.UnmarshalList([]string{values[0][1]}); err != nil {
				t.Errorf("%s: %s: %v", action, values[0][1], err)
			}
		}
	}
}
