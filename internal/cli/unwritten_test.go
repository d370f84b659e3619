package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
)

// A fullDisk fails every write.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// Output that cannot be written is an error, and not the failure that a command reports with 1.
func TestUnwrittenOutputIsAnError(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Write(t, path, text)
		return path
	}
	rules := write("rules.yaml", "domain: d\ndescriptors: [{key: user_id, rate_limit: {unit: minute, requests_per_unit: 5}}]\n")
	tests := write("rules_test.yaml", "rules: rules.yaml\ntests:\n- {name: n, steps: [{request: user_id=1, expect: allowed}]}\n")
	limits := write("limits.yaml", "- {namespace: d, max_value: 1, seconds: 60, conditions: [], variables: [user_id]}\n")
	url, _ := newFakeAdmin(t, map[string]any{
		"/v1/keys/peek": api.KeyState{Limits: []api.LimitState{{}}}, "/v1/keys/reset": api.KeyReset{Limits: []api.LimitReset{{}}}, "/v1/top": api.Top{},
		"/v1/keys/reset-by-entry": &[]api.ResetByEntryResult{{Done: true, Reset: 1}},
	})
	server, key := AdminServer{Server: url}, adminKey{Domain: "d", Descriptor: "user_id=1"}
	flags := rulesFlags{Config: []string{rules}}
	for name, run := range map[string]func(context.Context, Streams) error{
		"import": func(_ context.Context, streams Streams) error {
			return (&ImportLimitador{importFlags{File: limits}}).Run(streams)
		},
		"gen": func(_ context.Context, streams Streams) error {
			return (&GenEnvoyFilter{genFlags: genFlags{rulesFlags: flags, Timeout: 1}, Service: "weir:8081", Namespace: "n", Selector: "a=b", Context: "GATEWAY"}).Run(streams)
		},
		"check": func(_ context.Context, streams Streams) error {
			return (&Check{Paths: []string{rules}, Format: "json"}).Run(streams, nil)
		},
		"simulate --write": (&Simulate{rulesFlags: flags, Synthetic: "steady duration=1h", Write: "-"}).Run,
		"test":             (&Test{Files: []string{tests}, Output: "text"}).Run,
		"test json":        (&Test{Files: []string{tests}, Output: "json"}).Run,
		"test --init":      (&Test{Init: rules}).Run,
		"peek":             (&Peek{AdminServer: server, adminKey: key, Output: "text"}).Run,
		"reset":            (&Reset{AdminServer: server, adminKey: key, Output: "text"}).Run,
		"reset json":       (&Reset{AdminServer: server, adminKey: key, Output: "json"}).Run,
		"reset --entry":    (&Reset{AdminServer: server, adminKey: adminKey{Domain: "d"}, Entry: "a=b", Yes: true, Output: "text"}).Run,
		"top":              (&Top{AdminServer: server, By: "hits", N: 1, Output: "json"}).Run,
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			code := ExitCode(run(t.Context(), Streams{In: strings.NewReader(""), Out: fullDisk{}, Err: &errs}), &errs)
			if code != 2 || !strings.Contains(errs.String(), "weir: no space left on device") || strings.Count(errs.String(), "no space") > 1 {
				t.Errorf("exit code %d, want 2 and one error\n%s", code, &errs)
			}
		})
	}
}

// The remedy for a file that cannot be replaced is that of a write.
func TestFileThatCannotBeReplacedHasTheRemedyOfAWrite(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "day.ndjson", Err: fs.ErrPermission}
	err := writeAtomically(filepath.Join(t.TempDir(), "day.ndjson"), func(io.Writer) error { return denied })
	var errs bytes.Buffer
	const want = "weir: write day.ndjson: permission denied: run weir as a user that may write it\n"
	if ExitCode(err, &errs); errs.String() != want {
		t.Errorf("got %s, want %s", &errs, want)
	}
}

// Half a report would look like a whole one, and half a test file would keep --init from writing
// another.
func TestFileThatIsNotWrittenWholeIsRemoved(t *testing.T) {
	dir := t.TempDir()
	full := errors.New("no space left on device")
	half := func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return cmp.Or(err, full)
	}
	link := filepath.Join(dir, "link")
	must.Succeed(t, os.Symlink(os.DevNull, link))
	for name, stays := range map[string]bool{filepath.Join(dir, "report.xml"): false, link: true} {
		if err := writeFile(name, os.O_CREATE|os.O_TRUNC, half); !errors.Is(err, full) {
			t.Errorf("%s: error %v, want %v", name, err, full)
		}
		if _, err := os.Lstat(name); (err == nil) != stays {
			t.Errorf("%s exists: %v, want %v", name, err == nil, stays)
		}
	}
}

// A command replaces none of the files that it reads.
func TestOutputDoesNotReplaceAnInput(t *testing.T) {
	t.Chdir(t.TempDir())
	files := map[string]string{
		"rules.yaml":   "domain: d\ndescriptors: [{key: user_id, rate_limit: {unit: minute, requests_per_unit: 5, name: n}}]\n",
		"overlay.yaml": "domain: d\ndescriptors: [{key: user_id, rate_limit: {algorithm: sliding_log}}]\n",
		"test.yaml":    "rules: rules.yaml\ntests:\n- {name: n, steps: [{request: user_id=1, expect: allowed}]}\n",
		"day.ndjson":   `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["user_id","42"]]]}` + "\n",
		"access.log":   `{"time":"2026-11-22T10:00:00Z","user":"42"}` + "\n",
	}
	for name, text := range files {
		must.Write(t, name, text)
	}
	must.Succeed(t, os.Symlink("test.yaml", "link"))
	flags := rulesFlags{Config: []string{"rules.yaml"}}
	withOverlay := rulesFlags{Config: []string{"rules.yaml"}, rulesOptions: rulesOptions{Overlay: "overlay.yaml"}}
	day, load := []string{"day.ndjson"}, "steady rate=1 duration=2s descriptor=user_id=1"
	for name, c := range map[string]interface {
		Run(context.Context, Streams) error
	}{
		"--html of the recording": &Simulate{rulesFlags: flags, Recordings: day, Output: "text", HTML: "./day.ndjson"},
		"--html of the rules":     &Simulate{rulesFlags: flags, Recordings: day, Output: "text", HTML: "rules.yaml"},
		"--html of the overlay":   &Simulate{rulesFlags: withOverlay, Recordings: day, Output: "text", HTML: "overlay.yaml"},
		"--html of a rule folder": &Simulate{rulesFlags: rulesFlags{Config: []string{"."}}, Recordings: day, Output: "text", HTML: "rules.yaml"},
		"--html -":                &Simulate{rulesFlags: flags, Recordings: day, Output: "text", HTML: "-"},
		"--write of the rules":    &Simulate{rulesFlags: flags, Synthetic: load, Output: "text", Write: "rules.yaml"},
		"--junit of the tests":    &Test{Files: []string{"test.yaml"}, Output: "text", JUnit: "link"},
		"--junit of the rules":    &Test{Files: []string{"test.yaml"}, Output: "text", JUnit: "rules.yaml"},
		"--junit -":               &Test{Files: []string{"test.yaml"}, Output: "text", JUnit: "-"},
		"--out of the log":        &Convert{Format: "json", Domain: "d", Time: "time", Comma: ",", DeniedStatus: 429, Descriptors: []string{"user_id=%{user}"}, Out: "access.log", Paths: []string{"access.log"}},
	} {
		var errs bytes.Buffer
		err := error(nil)
		if v, ok := c.(interface{ Validate() error }); ok {
			err = v.Validate()
		}
		if err == nil {
			err = c.Run(t.Context(), Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
		}
		if err == nil || !strings.Contains(err.Error(), "write to another f") && !strings.HasSuffix(name, " -") {
			t.Errorf("%s: error %v, want that the command reads the file\n%s", name, err, &errs)
		}
		if _, missing := os.Stat("-"); missing == nil {
			t.Errorf("%s: there is a file -", name)
			must.Succeed(t, os.Remove("-"))
		}
		for file, text := range files {
			if got := string(must.Read(t, file)); got != text {
				t.Errorf("%s: %s is replaced", name, file)
				must.Write(t, file, text)
			}
		}
	}
}
