package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

func TestSimulateWritesAReport(t *testing.T) {
	rules := planFile(t, "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	dir := t.TempDir()
	recording, page := filepath.Join(dir, "recording.ndjson"), filepath.Join(dir, "report.html")
	line := `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["user","<b>42"]]]}` + "\n"
	for path, text := range map[string]string{recording: strings.Repeat(line, 7), page: "an earlier report"} {
		must.Write(t, path, text)
	}
	s := Simulate{rulesFlags: rulesFlags{Config: []string{rules}}, HTML: page, Recordings: []string{recording}, Output: "json"}
	must.Succeed(t, s.Validate())
	var out, stderr bytes.Buffer
	if err := s.Run(t.Context(), Streams{Out: &out, Err: &stderr}); err != nil {
		t.Fatal(err, stderr.String())
	}
	text := must.Read(t, page)
	if !strings.Contains(string(text), "2 of 7 requests denied") || !strings.Contains(string(text), "user=&lt;b&gt;42") {
		t.Errorf("the report is\n%s", text)
	}
	// A file that cannot be written is a fault before the run. After the run too, it leaves no
	// file.
	s.HTML = filepath.Join(dir, "folder")
	must.Succeed(t, os.MkdirAll(filepath.Join(s.HTML, "not-empty"), 0o700))
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "--html: "+s.HTML+" is a folder: name a file in it") {
		t.Errorf("a folder: got %v", err)
	}
	if code := ExitCode(s.Run(t.Context(), Streams{Out: &out, Err: &stderr}), &stderr); code != 2 || !strings.Contains(stderr.String(), "--html") {
		t.Errorf("exit code %d and %q, want a fault", code, &stderr)
	}
	if left, _ := filepath.Glob(s.HTML + ".*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	s.HTML = filepath.Join(dir, "missing", "report.html")
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing folder: got %v", err)
	}
}
