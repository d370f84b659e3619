package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

func TestConvertPageShowsTheOutput(t *testing.T) { testPage(t, "convert.md", 1, 0, 0, 0) }

// A log, its recording, and a simulation: each request of the log is one of the simulation, and the
// limit denies as often as it must.
func TestConvertedLogsCanBeSimulated(t *testing.T) {
	dir := t.TempDir()
	log, rules, recording := filepath.Join(dir, "access.log"), filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "day.ndjson.zst")
	write(t, rules, "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: minute, requests_per_unit: 5}}]\n")
	var text strings.Builder
	const users, each = 40, 8
	for i := range users * each { // the last request comes first
		second := (users*each - i) * 60 / (users*each + 1)
		fmt.Fprintf(&text, "2026-11-22T10:00:%02dZ 200 user%d\n", second, i%users)
	}
	write(t, log, text.String())
	code, said := runWeir("convert", "--format", "envoy", "--log-format", "%START_TIME% %RESPONSE_CODE% %REQ(X-USER)%", "--domain", "shop",
		"--descriptor", "user_id=%{x-user}", "--out", recording, log)
	if code != 0 {
		t.Fatalf("exit code %d: %s, want 0", code, said)
	}
	packed, err := os.ReadFile(recording)
	if err != nil || len(packed) < 4 || string(packed[:4]) != "\x28\xb5\x2f\xfd" {
		t.Errorf("%v: the recording is not compressed: %.20q", err, packed)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("temporary files are left: %q", left)
	}
	_, said = runWeir("simulate", "--config", rules, "-o", "json", recording)
	var result struct{ Requests, Denied, Unmatched int }
	if err := json.Unmarshal([]byte(said), &result); err != nil || result.Requests != users*each || result.Denied != users*(each-5) || result.Unmatched != 0 {
		t.Errorf("%v, %+v in\n%s", err, result, said)
	}
}

func TestConvertCommandExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	in := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	good := in("good.csv", "time,user\n1795341600,a\n1795341599,b\n")
	bad := in("bad.csv", "time,user\n"+strings.Repeat("x,a\n", 30)+"1795341600,a\n")
	object := in("a.json", `{"start_time":"2026-11-22T10:00:00Z","user":"a"}`+"\n")
	out, link := filepath.Join(dir, "out.ndjson"), filepath.Join(dir, "current.csv")
	must.Succeed(t, os.Symlink(good, link))
	convert := "convert --domain d --descriptor user_id=%{user} "
	for _, c := range []commandTest{
		{convert + "--format csv " + good, 0, []string{`{"t":"2026-11-22T09:59:59.000000Z","domain":"d","descriptors":[[["user_id","b"]]]}` + "\n" + `{"t":"2026-11-22T10:00:00.0`},
			[]string{"lines 2, requests 2, unreadable lines 0, lines without a descriptor 0\nweir: from 2026-11-22T09:59:59Z to 2026-11-22T10:00:00Z"}},
		{convert + "--format csv " + bad, 1, []string{`"user_id","a"`}, []string{bad + ":2: the time is in no known format", "the first 20 unreadable lines are listed; in all:\n  30 bad_time: "}},
		{convert + "--format json " + object + " --descriptor id=%{usr}", 0, []string{`[[["user_id","a"]]]`}, []string{"left out in 1 requests, because a value is missing: id=%{usr}", "no line has the field usr"}},
		{convert + "--format json " + good, 2, nil, []string{"no line yields a request: nothing is written", good + ":1: not a JSON object", good + ": its first lines are in the format csv, not json"}},
		{convert + "--format nginx " + object, 2, nil, []string{object + ": its first lines are in the format json, not nginx"}},
		{convert + "--format csv " + in("escape.csv", "a\x1b[2J,b\n1,2\n"), 2, nil, []string{`fields are a\x1b[2J, b`}},
		{convert + "--format csv --out " + out + " " + bad + " " + filepath.Join(dir, "none"), 2, nil, []string{"none: no such file"}},
		{convert + "--format csv --out " + good + " " + good, 2, nil, []string{"weir: --out: " + good + " is the input " + good + ": write to another file\n"}},
		// A recording that cannot be written is reported before a log is read, which may take
		// minutes.
		{convert + "--format csv --out " + filepath.Join(dir, "none", "out") + " " + filepath.Join(dir, "missing.csv"), 2, nil, []string{"none does not exist: create it first"}},
		{convert + "--format csv " + good + " " + good, 2, nil, []string{"given twice"}},
		{convert + "--format csv " + good + " " + link, 2, nil, []string{good + " and " + link + " are one file: remove one"}},
		{convert + "--format csv " + dir, 2, nil, []string{"is a folder: name the files in it"}},
		{"convert --domain d --format csv --descriptor user_id=%{usr} " + good, 2, nil, []string{`the log has no field "usr": did you mean user? The fields are time, user`}},
		{"convert --domain d --format csv --descriptor user_id=%{user|up} " + good, 2, nil, []string{`the value of user_id: "%{user|up}": unknown filter "up"`}},
		{"convert --domain d --format csv --descriptor user_id " + good, 2, nil, []string{"has no '=': want key=value"}},
		{"convert --domain d --format csv " + good, 2, nil, []string{"convert needs --descriptor"}},
		{"convert --domain d --format csv --descriptor user_id=user " + good, 2, nil, []string{`--descriptor "user_id=user" is the same for every line: write %{field}`}},
		{"convert --domain d --format csv --descriptor user_id=%REQ(USER)% " + good, 2, nil, []string{"write %{field} with a field of the log"}},
		{"convert --domain d --format csv --descriptor generic_key=all " + good, 0, []string{`[[["generic_key","all"]]]`}, nil},
		{"convert --format csv --descriptor a=b " + good, 2, nil, []string{"convert needs --domain"}},
		{convert + good, 2, nil, []string{"convert needs --format envoy, nginx, json or csv"}},
		{convert + "--format csv --time time --duration d " + good, 2, nil, []string{"cannot be used with --time: remove them"}},
		{convert + "--format csv --duration d " + good, 2, nil, []string{"--duration needs --end-time"}},
		{convert + "--format csv --time-zone Mars " + good, 2, nil, []string{`--time-zone "Mars": unknown zone`}},
		{convert + "--format csv --denied-status 4290 " + good, 2, nil, []string{"--denied-status=4290: want an HTTP status, from 100 to 599"}},
		{convert + "--format csv --comma ab " + good, 2, nil, []string{`--comma "ab": want one character`}},
		{convert + "--format json --columns a " + good, 2, nil, []string{"--columns needs --format csv"}},
		{convert + "--format json --log-format a " + good, 2, nil, []string{"--log-format needs --format envoy or nginx"}},
		{convert + "--format csv --hits %{a " + good, 2, nil, []string{"--hits: ", "has no end"}},
	} {
		c.test(t)
	}
	if _, err := os.Stat(out); err == nil {
		t.Errorf("a recording was written although a log does not exist")
	}
}
