package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/must"
)

var update = flag.Bool("update", false, "write the output of the examples into docs/simulate.md")

// runCommand runs a command, which is the only one of command. The code is 2 for invalid arguments,
// too.
func runCommand(t *testing.T, command any, name, stdin string, args []string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	parser, err := kong.New(command)
	must.Succeed(t, err)
	parsed, err := parser.Parse(append([]string{name}, args...))
	if err != nil {
		return 2, "", err.Error()
	}
	parsed.BindTo(context.Background(), (*context.Context)(nil))
	code = cli.ExitCode(parsed.Run(cli.Streams{In: strings.NewReader(stdin), Out: &o, Err: &e}), &e)
	return code, o.String(), e.String()
}

// simulated runs weir simulate.
func simulated(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var command struct {
		Simulate cli.Simulate `cmd:""`
	}
	return runCommand(t, &command, "simulate", stdin, args)
}

// shellWords splits a command line at spaces outside of single quotes.
func shellWords(line string) (words []string) {
	for i, piece := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, piece)
		} else {
			words = append(words, strings.Fields(piece)...)
		}
	}
	return words
}

// The examples of docs/simulate.md print what the page shows.
func TestSimulatePageShowsTheOutput(t *testing.T) {
	path, err := filepath.Abs(filepath.Join("..", "..", "docs", "simulate.md"))
	must.Succeed(t, err)
	page := must.Read(t, path)
	t.Chdir(t.TempDir())
	ran, lastErrs, updated := 0, "", string(page)
	for _, block := range docBlock.FindAllStringSubmatch(string(page), -1) {
		kind, name, text := block[1], block[2], block[3]
		if name != "" {
			must.Write(t, name, text)
		}
		if kind == "text" && text != lastErrs {
			t.Errorf("standard error is %q, and the page has %q", lastErrs, text)
		}
		if kind != "console" {
			continue
		}
		line, want, _ := strings.Cut(text, "\n")
		code, out, errs := simulated(t, "", shellWords(strings.TrimPrefix(line, "$ weir simulate "))...)
		if code != 0 || out != want && !*update {
			t.Errorf("%s: exit code %d, %s, printed\n%s\nand the page has\n%s", line, code, errs, out, want)
		}
		updated = strings.Replace(updated, block[0], "```console\n"+line+"\n"+out+"```", 1)
		ran, lastErrs = ran+1, errs
	}
	if ran != 2 {
		t.Errorf("%d examples, want 2", ran)
	}
	if *update {
		must.Write(t, path, updated)
	}
}

func TestSimulateCommandExitCodesAndOutput(t *testing.T) {
	dir := folder(t, map[string]string{"other.yaml": "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 1}}\n"})
	rules := filepath.Join(dir, "other.yaml")
	for _, c := range []struct {
		name, stdin, args string
		code              int
		out, errs         string
	}{
		{"a recording", twoLines, "--config " + rules + " -", 0, "requests  2 in 1s: allowed 1, denied 1 (50.0 %)", ""},
		{"the verdicts of the recording", twoLines, "--config " + rules + " -", 0, "allowed 1, denied 1; newly denied 0, newly allowed 0", ""},
		{"one client model", twoLines, "--config " + rules + " --clients drop -", 0, "1 per minute, fixed_window", ""},
		{"a sample", twoLines, "--config " + rules + " --sample-share 0.1 -", 0, "sampled   0.1 of all keys", ""},
		{"nothing", "", "--config " + rules + " -", 2, "", "standard input has no requests: record some"},
		{"a cut line", twoLines + `{"t":"2026`, "--config " + rules + " -", 0, "requests  2", "standard input:3: the last line is cut (cut), skipped lines of this kind: 1"},
		{"no JSON", "hello\n", "--config " + rules + " -", 2, "", "no line can be replayed"},
		{"no file", "", "--config " + rules + " " + dir + "/none", 2, "", "no such file"},
		{"no rules", "", "-", 2, "", "needs --config with the rules"},
		{"faulty rules", "domain: [", "--config - x", 2, "", "stdin:1:9"},
		{"no recording", "", "--config " + rules, 2, "", "needs a recording"},
		{"an unknown client model", twoLines, "--config " + rules + " --clients pray -", 2, "", "must be one of"},
		{"two readers of standard input", "", "--config - -", 2, "", "cannot both be standard input"},
		{"a recording and a load", "", "--config " + rules + " --synthetic poisson -", 2, "", "--synthetic cannot be used with recordings"},
		{"a faulty load", "", "--config " + rules + " --synthetic rain", 2, "", `--synthetic: load 1: unknown shape "rain"`},
		{"a share", "", "--config " + rules + " --sample-share 2 -", 2, "", "--sample-share"},
		{"a share that is too small to estimate from", twoLines, "--config " + rules + " --sample-share 1e-307 -o json -", 2, "", "--sample-share must be from 1e-09 to 1"},
		{"a share that is not a number", twoLines, "--config " + rules + " --sample-share NaN -", 2, "", "--sample-share"},
	} {
		code, out, errs := simulated(t, c.stdin, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: exit code %d, want %d, printed\n%s\n%s\nwant %q and %q", c.name, code, c.code, out, errs, c.out, c.errs)
		}
	}
	// The default duration is an hour, which takes seconds under the race detector.
	if code, out, errs := simulated(t, "", "--config", rules, "--synthetic", "steady duration=1m"); code != 0 || !strings.Contains(out, "domain=ugc descriptor=user_id={user}") {
		t.Errorf("a load without a descriptor: exit code %d, printed\n%s\n%s", code, out, errs)
	}
}

// A load that is written is a recording of the same requests.
func TestWriteSyntheticLoad(t *testing.T) {
	dir := folder(t, map[string]string{"other.yaml": "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 1}}\n"})
	rules, file := filepath.Join(dir, "other.yaml"), filepath.Join(dir, "load.ndjson.zst")
	load := []string{"--config", rules, "--synthetic", "poisson rate=1 users=20 hits=2 duration=10m"}
	_, direct, _ := simulated(t, "", append(load, "--write", file)...)
	_, header, _ := strings.Cut(direct, "\n") // without the description
	if _, read, errs := simulated(t, "", "--config", rules, file); read != header || errs != "" {
		t.Errorf("read from the file:\n%s\n%s\nwant\n%s", read, errs, header)
	}
	_, lines, _ := simulated(t, "", append(load, "--write", "-")...)
	if _, read, _ := simulated(t, lines, "--config", rules, "-"); read != header {
		t.Errorf("read from standard input:\n%s\nwant\n%s", read, header)
	}
	if code, _, errs := simulated(t, "", "--config", rules, "--write", "x", file); code != 2 || !strings.Contains(errs, "--write needs --synthetic") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if code, _, errs := simulated(t, "", append(load, "--write", file, "--html", file)...); code != 2 || !strings.Contains(errs, "name one file") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if code, _, errs := simulated(t, "", append(load, "--write", filepath.Join(dir, "none", "x"))...); code != 2 || !strings.Contains(errs, "does not exist") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// The share of a sample comes from the note of the recorder.
func TestSimulateReadsTheShareOfTheRecorder(t *testing.T) {
	dir := folder(t, map[string]string{
		"other.yaml": "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 1}}\n",
		"a":          `{"t":"2026-11-22T10:00:00Z","sample":0.25,"secret":"01"}` + "\n" + twoLines, "b": `{"t":"2026-11-22T10:00:00Z","sample":0.5,"secret":"01"}` + "\n" + twoLines,
		"c": `{"t":"2026-11-22T10:00:00Z","sample":0.25,"secret":"02"}` + "\n" + twoLines,
		"d": `{"t":"2026-11-22T10:00:00Z","sample":1,"secret":"01"}` + "\n" + twoLines, "plain": twoLines, "empty": "",
	})
	path := func(name string) string { return filepath.Join(dir, name) }
	together := func(names ...string) (all string) {
		for _, name := range names {
			data := must.Read(t, path(name))
			all += string(data)
		}
		return all
	}
	for name, text := range map[string]string{"ab": together("a", "b"), "ac": together("a", "c"), "plain-d": together("plain", "d")} {
		must.Write(t, path(name), text)
	}
	for _, c := range []struct{ files, out, errs string }{
		{"a", "sampled   0.25 of all keys", ""},
		{"a b", "", "the recordings are samples of different shares, from 0.25 to 0.5"},
		{"a b --sample-share=0.3", "sampled   0.3 of all keys", ""},
		{"a c", "sampled   0.25 of all keys", "different secrets"},
		{"d plain", "requests  4", "some recordings have hashed values, and others plain ones"},
		{"a empty", "sampled   0.25 of all keys", ""}, // a recorder that was killed
		// Recordings in one file.
		{"ab", "", "the recordings are samples of different shares, from 0.25 to 0.5"},
		{"ab --sample-share=0.3", "sampled   0.3 of all keys", ""},
		{"ac", "sampled   0.25 of all keys", "different secrets"},
		{"plain-d", "requests  4", "some recordings have hashed values, and others plain ones"},
	} {
		args := []string{"--config", path("other.yaml")}
		for _, name := range strings.Fields(c.files) {
			if strings.HasPrefix(name, "-") {
				args = append(args, name)
			} else {
				args = append(args, path(name))
			}
		}
		code, out, errs := simulated(t, "", args...)
		if (code == 0) != (c.out != "") || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
			t.Errorf("%s: exit code %d, printed\n%s\n%s", c.files, code, out, errs)
		}
	}
}

// Scripts read these fields.
func TestSimulateJSONKeepsItsFields(t *testing.T) {
	dir := folder(t, map[string]string{"other.yaml": "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {name: n, unit: minute, requests_per_unit: 1}}\n"})
	lines := twoLines + `{"t":"2026-11-22T10:00:02Z","domain":"ugc","descriptors":[[["team","1"]]]}` + "\nx\n"
	_, out, _ := simulated(t, lines, "--config", filepath.Join(dir, "other.yaml"), "-o", "json", "-")
	var got map[string]any
	must.Succeed(t, json.Unmarshal([]byte(out), &got))
	for field, want := range map[string]float64{"requests": 3, "allowed": 2, "denied": 1, "unmatched": 1, "lines": 4} {
		if got[field] != want {
			t.Errorf("%s: %v, want %v", field, got[field], want)
		}
	}
	limit := got["limits"].([]any)[0].(map[string]any)
	for field, want := range map[string]any{"path": "user_id", "name": "n", "algorithm": "fixed_window", "requests": 2.0, "denied": 1.0, "keys": 1.0, "keys_denied": 1.0} {
		if limit[field] != want {
			t.Errorf("limits[0].%s: %v, want %v", field, limit[field], want)
		}
	}
	if skipped := got["skipped"].([]any)[0].(map[string]any); skipped["kind"] != "not_json" || skipped["first"] != 4.0 || skipped["file"] != "standard input" {
		t.Errorf("skipped: %v", skipped)
	}
}
