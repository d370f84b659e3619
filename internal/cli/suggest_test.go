package cli_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// suggested runs weir suggest.
func suggested(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var command struct {
		Suggest cli.Suggest `cmd:""`
	}
	return runCommand(t, &command, "suggest", stdin, args)
}

var docBlock = regexp.MustCompile("(?ms)^```(\\S+)(?: (\\S+))?\n(.*?)^```$")

// The examples of docs/suggest.md print what the page shows, and their YAML is valid.
func TestSuggestPageShowsTheOutput(t *testing.T) {
	page := must.Read(t, filepath.Join("..", "..", "docs", "suggest.md"))
	t.Chdir(t.TempDir())
	ran := 0
	for _, block := range docBlock.FindAllStringSubmatch(string(page), -1) {
		kind, name, text := block[1], block[2], block[3]
		if name != "" {
			must.Write(t, name, text)
		}
		if name == "recording.sh" {
			if out, err := exec.Command("sh", name).CombinedOutput(); err != nil {
				t.Fatalf("run the script of the page: %v: %s", err, out)
			}
		}
		if kind != "console" {
			continue
		}
		line, want, _ := strings.Cut(text, "\n")
		code, out, errs := suggested(t, "", strings.Fields(strings.TrimPrefix(line, "$ weir suggest "))...)
		if code != 0 || errs != "" || out != want {
			t.Errorf("%s: exit code %d, %s, printed\n%s\nand the page has\n%s", line, code, errs, out, want)
		}
		ran++
		if strings.Contains(line, "yaml") {
			if _, err := rulesfile.Parse(rulesfile.File{Name: "suggested.yaml", Data: []byte(out)}); err != nil {
				t.Error(err)
			}
		}
	}
	if ran != 2 {
		t.Errorf("%d examples, want 2", ran)
	}
}

const twoLines = `{"t":"2026-11-22T10:00:00Z","domain":"ugc","descriptors":[[["user_id","1"]]],"allowed":true}
{"t":"2026-11-22T10:00:01Z","domain":"ugc","descriptors":[[["user_id","1"]]],"allowed":false}
`

func TestSuggestCommandExitCodesAndOutput(t *testing.T) {
	dir := folder(t, map[string]string{})
	rules := filepath.Join(dir, "rules.yaml")
	for _, c := range []struct {
		name, stdin, args string
		code              int
		out, errs         string
	}{
		{"a rule", twoLines, "--config " + rules + " -", 0, "Recommended: fixed_window of 3 per minute, name calls. It denies 0 requests of 0 keys", ""},
		{"a recording made under a limiter", twoLines, "--config " + rules + " -", 0, "1 of 2 lines were denied", ""},
		{"no headroom", twoLines, "--config " + rules + " --headroom 0 -", 0, "fixed_window of 2 per minute", ""},
		{"a path", twoLines, "--domain ugc --path user_id --window second --algorithm funnel -", 0, "Recommended: funnel of 2 per second", ""},
		{"several paths", twoLines, "--domain ugc --path user_id=2 --path user_id -", 0, "user_id=2, domain ugc: no suggestion", ""},
		{"a path of no request", twoLines, "--domain ugc --path other -", 1, "no request of the recording is under it", "--domain ugc --path user_id  (2)"},
		{"a sample", twoLines, "--config " + rules + " --sample-share 0.1 -", 0, "keys 10 (1 to", ""},
		{"a recorded sample", `{"t":"2026-11-22T10:00:00Z","sample":0.1}` + "\n" + twoLines, "--config " + rules + " -", 0, "has a sample of 10 % of the keys", ""},
		{"a path of no request, and an empty descriptor", `{"t":1793959200000000,"domain":"ugc","descriptors":[[],[["team","1"]]]}`, "--config " + rules + " -", 1,
			"no request of the recording is under it", "has descriptors with these keys:\n  --domain ugc --path team  (1)\n"},
		{"nothing", "", "--config " + rules + " -", 2, "", "standard input has no requests: record some"},
		{"another domain as YAML", strings.ReplaceAll(twoLines, "ugc", "shop"), "--config " + rules + " -o yaml -", 1, "", "there is no recommendation"},
		{"a cut line and one that is early", twoLines + `{"t":1,"domain":"ugc"}` + "\n" + `{"t":"2026`, "--config " + rules + " -", 0,
			"requests 2, keys 1", "standard input:4: the last line is cut"},
		{"no JSON", "hello\n", "--config " + rules + " -", 2, "", "no line can be replayed"},
		{"no file", "", "--config " + rules + " " + dir + "/none", 2, "", "no such file"},
		{"no rules", "", "-", 2, "", "needs --config with the rules, or --domain and --path"},
		{"no recording", "", "--config " + rules, 2, "", "needs a recording"},
		{"a path without a domain", "", "--path user_id -", 2, "", "--path needs --domain"},
		{"a path without a key", "", "--domain ugc --path a,,b -", 2, "", "entry 2 has no key"},
		{"a window for rules", "", "--config " + rules + " --window day -", 2, "", "need --path"},
		{"an unknown domain", "", "--config " + rules + " --domain x -", 2, "", "no domain"},
		{"two readers of standard input", "", "--config - -", 2, "", "cannot both be standard input"},
		{"headroom", "", "--config " + rules + " --headroom=-1 -", 2, "", "--headroom"},
		{"part", "", "--config " + rules + " --sample-share 2 -", 2, "", "--sample-share"},
		{"a share that is too small to estimate from", twoLines, "--config " + rules + " --sample-share 1e-20 -", 2, "", "--sample-share must be from 1e-09 to 1"},
		{"the smallest share", twoLines, "--config " + rules + " --sample-share 1e-9 -", 0, "keys 1,000,000,000 (", ""},
		{"a recorded share that is too small", `{"t":"2026-11-22T10:00:00Z","sample":1e-20}` + "\n" + twoLines, "--config " + rules + " -", 2, "",
			"the recording states a sample of 1e-20 of the keys: set --sample-share"},
		{"memory", "", "--config " + rules + " --max-memory 0 -", 2, "", "--max-memory"},
	} {
		code, out, errs := suggested(t, c.stdin, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: exit code %d, want %d, printed\n%s\n%s\nwant %q and %q", c.name, code, c.code, out, errs, c.out, c.errs)
		}
	}
}

// Scripts read these fields.
func TestSuggestJSONKeepsItsFields(t *testing.T) {
	dir := folder(t, map[string]string{})
	_, out, errs := suggested(t, twoLines, "--config", filepath.Join(dir, "rules.yaml"), "-o", "json", "-")
	var report struct {
		Requests int64
		Denied   int64 `json:"denied_when_recorded"`
		Rules    []struct {
			Path    string
			Note    string
			Keys    struct{ N, Low, High int64 }
			Windows []struct {
				Unit       string
				TooShort   bool `json:"too_short"`
				Algorithms []struct {
					Algorithm  string
					Current    *int64
					Smallest   *int64                              `json:"smallest_denies_nobody"`
					Candidates []struct{ Limit int64 }             `json:"candidates"`
					Curve      []struct{ Limit, Keys_hit float64 } `json:"curve"`
				}
			}
			Recommendations []struct {
				Algorithm, Unit, Name string
				Limit                 int64 `json:"requests_per_unit"`
				Reasons               []string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v, want JSON; errors: %s", err, errs)
	}
	r := report.Rules[0]
	if report.Requests != 2 || report.Denied != 1 || r.Path != "user_id" || r.Keys.N != 1 || len(r.Windows) != 4 || len(r.Recommendations) != 1 {
		t.Fatalf("%+v, want 1 denial of 2 requests of one key of user_id, 4 windows and 1 recommendation", report)
	}
	minute, rec := r.Windows[1], r.Recommendations[0]
	if a := minute.Algorithms[0]; minute.Unit != "minute" || !minute.TooShort || *a.Smallest != 2 || *a.Current != 2 || len(a.Candidates) == 0 || len(a.Curve) != 1 {
		t.Errorf("%+v, want a minute that is too short, with the limit 2 as smallest and current", minute)
	}
	if rec.Limit != 3 || rec.Name != "calls" || len(rec.Reasons) == 0 || report.Rules[1].Note == "" {
		t.Errorf("got %+v, note %q, want a limit of 3 named calls with reasons, and a note for the second rule", rec, report.Rules[1].Note)
	}
}
