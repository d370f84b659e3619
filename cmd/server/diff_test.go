package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

var (
	// fileBlock matches a file of a page, and its name.
	fileBlock = regexp.MustCompile("(?ms)^```[a-z]+ (\\S+)(?: warns)?\n(.*?)^```$")
	// shownRun matches a command of weir and its output, which may be empty.
	shownRun = regexp.MustCompile("(?ms)^```sh\n(weir [^`]*?)\n```\n\n```text\n(.*?)^```$")
	argument = regexp.MustCompile(`'[^']*'|[^\s']+`)
)

// testPage writes the files of a page and runs its commands in order. Their output must be what the
// page shows, and their exit codes must be codes. The flag -update writes the output into the page.
func testPage(t *testing.T, name string, codes ...int) {
	t.Helper()
	page, err := filepath.Abs("../../docs/" + name)
	must.Succeed(t, err)
	text := must.Read(t, page)
	t.Chdir(t.TempDir())
	for _, file := range fileBlock.FindAllStringSubmatch(string(text), -1) {
		write(t, file[1], file[2])
	}
	var got []int
	want := shownRun.ReplaceAllStringFunc(string(text), func(block string) string {
		command := shownRun.FindStringSubmatch(block)[1]
		var out, errs bytes.Buffer
		var args []string
		for _, arg := range argument.FindAllString(strings.ReplaceAll(command, "\\\n", " "), -1) {
			args = append(args, strings.Trim(arg, "'"))
		}
		got = append(got, run(t.Context(), "weir", args[1:], &out, &errs))
		return "```sh\n" + command + "\n```\n\n```text\n" + out.String() + errs.String() + "```"
	})
	if len(got) != len(codes) {
		t.Errorf("%d commands, want %d", len(got), len(codes))
	}
	for i := range min(len(got), len(codes)) {
		if got[i] != codes[i] {
			t.Errorf("command %d ends with %d, want %d", i+1, got[i], codes[i])
		}
	}
	if *update {
		must.Succeed(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	if want != string(text) {
		t.Errorf("go test ./cmd/server -run %s -update writes\n%s", t.Name(), want)
	}
}

func TestDiffPageShowsTheOutput(t *testing.T) { testPage(t, "diff.md", 2, 0) }

func TestDiffCommandExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	in := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	rules := "domain: ugc\ndescriptors: [{key: user_id, rate_limit: {unit: hour, requests_per_unit: %}}]\n"
	two, same, one := in("two.yaml", strings.ReplaceAll(rules, "%", "2")), in("same.yaml", "# same\n"+strings.ReplaceAll(rules, "%", "2")), in("one.yaml", strings.ReplaceAll(rules, "%", "1"))
	value := in("value.yaml", "domain: ugc\ndescriptors:\n- {key: user_id, rate_limit: {unit: hour, requests_per_unit: 2}}\n- {key: user_id, value: bigco, rate_limit: {unit: hour, requests_per_unit: 9}}\n")
	bad := in("bad.yaml", faultyRules)
	overlay := in("overlay.yaml", "domain: ugc\ndescriptors: [{key: user_id, rate_limit: {count_denied: false}}]\n")
	line := `{"t":"2026-11-22T10:00:0%Z","domain":"ugc","descriptors":[[["user_id","hmac:42"]]]}` + "\n"
	first, second := in("first.ndjson", strings.ReplaceAll(line, "%", "1")+"not a line\n"), in("second.ndjson", strings.ReplaceAll(line, "%", "2"))
	other := in("other.ndjson", strings.ReplaceAll(line, "%", "1")+strings.ReplaceAll(strings.ReplaceAll(line, "%", "2"), "42", "43"))
	junk, empty := in("junk.ndjson", "x\n"), in("empty.ndjson", "")
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	in("folder/a.yaml", strings.ReplaceAll(rules, "%", "2"))
	diff := "diff " + two + " " + one + " --against " + first + " " + second
	for _, c := range []commandTest{
		{diff, 2, []string{"newly denied: 1 key, 1 request; newly allowed: 0 keys, 0 requests\n2 requests of 1 key from 2026-11-22T10:00:01Z to 2026-11-22T10:00:02Z", "user_id=hmac:42", "1 line of the recording could not be compared."}, []string{first + ":2: no JSON object"}},
		{diff + " --against " + first, 1, nil, []string{"given twice"}},
		{diff + " --worst 0 -o json", 2, []string{`"newly_denied_keys": 1`, `"worst_denied": []`}, nil},
		{"diff " + one + " " + two + " --against " + first + " --against " + second, 2, []string{"newly allowed: 1 key, 1 request"}, nil},
		{"diff " + two + " " + same + " --against " + first, 0, []string{"no change\n1 request of 1 key from"}, nil},
		{"diff " + filepath.Join(dir, "folder") + " " + two + " --against " + first, 0, []string{"no change\n"}, nil},
		{"diff " + two + " " + value + " --against " + first, 2, []string{"no verdict changes, but new rules could not be compared", "user_id=bigco (" + value + ":4): the values of user_id are hashes"}, nil},
		{"diff " + two + " " + value + " --against " + first + " -o markdown", 2, []string{"**Not compared:**", "- `user_id=bigco` (`" + value + ":4`): the values of `user_id`"}, nil},
		{"diff " + two + " " + two + " --overlay " + overlay + " --against " + first, 0, []string{"no change\n"}, nil},
		{"diff " + two + " " + bad + " --against " + first, 1, nil, []string{"the new rules: " + bad + ":1:9: "}},
		{"diff " + bad + " " + two + " --against " + first, 1, nil, []string{"the old rules: " + bad + ":1:9: "}},
		{"diff " + two + " " + one, 1, nil, []string{"diff needs --against with a recording, for example: weir diff"}},
		{"diff " + two, 1, nil, []string{"weir: diff needs two sets of rules, for example: "}},
		{"diff - - --against " + first, 1, nil, []string{"only one of the rules, the overlays and the recordings can be standard input"}},
		{"diff " + two + " " + one + " --against " + filepath.Join(dir, "none"), 1, nil, []string{"none: no such file"}},
		{"diff " + two + " " + one + " --against " + junk, 1, nil, []string{"junk.ndjson:1: no JSON object", "no line can be replayed"}},
		{"diff " + two + " " + one + " --against " + empty, 1, nil, []string{empty + " has no requests: record some with RECORD_PATH"}},
		{diff + " --fail-if newly_denied_keys>1", 0, []string{"newly denied: 1 key"}, nil},
		{diff + " --fail-if newly_denied_keys>1 --fail-if newly_denied_requests>=1", 2, nil, []string{"--fail-if: newly_denied_requests>=1"}},
		{diff + " --fail-if skipped_lines>0", 2, nil, []string{"--fail-if: skipped_lines>0"}},
		{diff + " --fail-if denied>1", 1, nil, []string{`unknown name "denied"`, "names are newly_denied_keys, "}},
		{"diff " + two + " " + one + " --against " + other + " --max-keys 1 --fail-if newly_denied_keys>5", 1, []string{"The counts of keys are lower bounds."}, []string{"raise --max-keys"}},
		{diff + " --max-keys 0", 1, nil, []string{"--max-keys at least 1"}},
		{diff + " -o yaml", 1, nil, []string{"--output"}},
	} {
		c.test(t)
	}
}
