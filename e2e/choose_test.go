package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// A chooseStory is the example of docs/choose-limits.md: one Envoy, and one Weir behind it.
type chooseStory struct {
	dir, admin string
	docPage
	script *strings.Replacer
	weir   string
}

func startChooseStory(t *testing.T) *chooseStory {
	t.Helper()
	bin := binary(t)
	s := &chooseStory{dir: t.TempDir(), docPage: readPage(t, "choose-limits.md"), weir: bin}
	s.admin = redistest.FreeAddr(t)
	must.Write(t, filepath.Join(s.dir, "rules.yaml"), s.named["yaml rules.yaml"])
	s.script = strings.NewReplacer()
	s.run(t, docStep{commands: s.named["sh secrets"]})
	weir := harness.MustStartWeir(t, harness.WeirOptions{
		Binary: bin, Rules: filepath.Join(s.dir, "rules.yaml"), Env: s.settings(),
	})
	envoy := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("..", "envoy", "bootstrap.yaml"), Weir: weir.GRPC, Timeout: testTimeout,
	})
	s.script = strings.NewReplacer("localhost:10000", strings.TrimPrefix(envoy.URL, "http://"), "127.0.0.1:6071", s.admin)
	return s
}

// settings returns the settings of the page, with the files in the folder of the story.
func (s *chooseStory) settings() (env []string) {
	for _, setting := range strings.Fields(strings.ReplaceAll(s.named["sh settings"], "export ", "")) {
		name, value, _ := strings.Cut(setting, "=")
		if name == "ADMIN_ADDR" {
			value = s.admin
		} else {
			value = filepath.Join(s.dir, value)
		}
		env = append(env, name+"="+value)
	}
	return env
}

// run runs the commands of a step, and returns what they print.
func (s *chooseStory) run(t *testing.T, step docStep) string {
	t.Helper()
	out, code := bash(t, s.dir, `weir() { "`+s.weir+`" "$@"; }`+"\n"+s.script.Replace(step.commands))
	if code != step.code {
		t.Fatalf("%s\nexit code %d, want %d\n%s", step.commands, code, step.code, out)
	}
	return out
}

// send sends the traffic of the page, and returns the users by the status of their responses.
func (s *chooseStory) send(t *testing.T) map[string][]string {
	t.Helper()
	s.run(t, docStep{commands: s.named["sh traffic"]})
	text := must.Read(t, filepath.Join(s.dir, "statuses"))
	users := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		user, status, _ := strings.Cut(line, " ")
		if !slices.Contains(users[status], user) {
			users[status] = append(users[status], user)
		}
	}
	return users
}

// get returns the response of the admin API.
func (s *chooseStory) get(t *testing.T, path string) []byte {
	t.Helper()
	token := must.Read(t, filepath.Join(s.dir, "token"))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.admin+path, nil)
	must.Succeed(t, err)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v: %s", path, response.Status, err, body)
	}
	return body
}

// hashOf returns the hash that stands for a user in the recording.
func (s *chooseStory) hashOf(t *testing.T, user string) string {
	t.Helper()
	secret := must.Read(t, filepath.Join(s.dir, "secret"))
	h := hmac.New(sha256.New, bytes.TrimSpace(secret))
	h.Write([]byte("user_id\x00" + user))
	return "hmac:" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

var hashes = regexp.MustCompile(`hmac:[\w-]{22}`)

// follow runs the next step of the page, and compares its output with the page's.
func (s *chooseStory) follow(t *testing.T) string {
	t.Helper()
	step := s.steps[0]
	s.steps = s.steps[1:]
	out := s.run(t, step)
	comparable := func(text string) string {
		text = spans.ReplaceAllString(times.ReplaceAllString(hashes.ReplaceAllString(text, "HASH"), "TIME"), "SPAN")
		return strings.Join(strings.Fields(text), " ")
	}
	if comparable(out) != comparable(step.output) {
		t.Errorf("%s\nprints\n%s\nand the page shows\n%s", step.commands, out, step.output)
	}
	return out
}

// The users that the enforced limit denies are those that weir diff and the shadow file named
// before. The commands and the output are those of docs/choose-limits.md.
func TestLimitIsChosenByEvidence(t *testing.T) {
	t.Parallel()
	s := startChooseStory(t)
	startEarlyIn(t, 24*time.Hour)
	mustAllowAll := func(statuses map[string][]string) {
		t.Helper()
		if len(statuses) != 1 || len(statuses["200"]) != 41 {
			t.Fatalf("the responses of %d users before the limit is enforced: %v", len(statuses["200"]), statuses)
		}
	}
	mustAllowAll(s.send(t))
	must.Until(t, "the recording is complete", func() bool {
		c := exec.CommandContext(t.Context(), "bash", "-c", s.weir+" simulate --config rules.yaml -o json recording/*")
		c.Dir = s.dir
		out, _ := c.Output() // an incomplete recording has an error
		var result struct{ Requests int }
		return json.Unmarshal(out, &result) == nil && result.Requests == 160
	})
	s.follow(t) // suggest
	before := s.follow(t)
	var denied []string // the users that weir diff names
	for _, user := range []string{"mallory", "user1", "user3", "user40"} {
		if strings.Contains(before, s.hashOf(t, user)) {
			denied = append(denied, user)
		}
	}
	if found := hashes.FindAllString(before, -1); len(found) != len(denied) {
		t.Errorf("weir diff names %v, and the users %v", found, denied)
	}

	type report struct {
		Running  bool
		Error    string
		Requests struct {
			Compared     int
			BothAllowed  int `json:"both_allowed"`
			NewlyDenied  int `json:"newly_denied"`
			NewlyAllowed int `json:"newly_allowed"`
			BothDenied   int `json:"both_denied"`
			Undecided    int
			Dropped      int
		}
		Limits []struct {
			Rule        string
			NewlyDenied int `json:"newly_denied"`
		}
		Keys struct {
			Keys  int
			Exact bool
		} `json:"newly_denied_keys"`
	}
	shadow := func() (r report) {
		must.Succeed(t, json.Unmarshal(s.get(t, "/v1/shadow?limits=10&keys=10"), &r))
		return r
	}
	must.Until(t, "the candidate runs", func() bool { return shadow().Running })
	mustAllowAll(s.send(t))
	must.Until(t, "the candidate has decided all requests", func() bool { return shadow().Requests.Compared == 160 })
	var want report
	must.Succeed(t, json.Unmarshal([]byte(s.named["json shadow"]), &want))
	got, err := json.Marshal(shadow())
	must.Succeed(t, err)
	if shown, _ := json.Marshal(want); !bytes.Equal(got, shown) {
		t.Errorf("the shadow file reports\n%s\nand the page shows\n%s", got, shown)
	}

	s.steps = s.steps[1:] // the call of /v1/shadow
	version := func() string {
		var status struct {
			Version string `json:"rules_version"`
		}
		must.Succeed(t, json.Unmarshal(s.get(t, "/v1/status"), &status))
		return status.Version
	}
	old := version()
	s.follow(t) // enforce
	must.Until(t, "the candidate is in force", func() bool { return version() != old })
	after := s.send(t)["429"]
	slices.Sort(after)
	if !slices.Equal(after, denied) {
		t.Errorf("the enforced limit denies %v, and weir diff named %v", after, denied)
	}
	s.follow(t) // the statuses
	if len(s.steps) != 0 {
		t.Errorf("%d steps are left: this test no longer reads the page", len(s.steps))
	}
}
