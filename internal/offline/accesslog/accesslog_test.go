package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/accesslog"
	"github.com/weir-rls/weir/pkg/recording"
)

// descriptor returns a descriptor of keys and templates.
func descriptor(t testing.TB, pairs ...string) (d accesslog.Descriptor) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		value, err := accesslog.ParseTemplate(pairs[i+1])
		must.Succeed(t, err)
		d = append(d, accesslog.Entry{Key: pairs[i], Value: value})
	}
	return d
}

// convert returns the lines of the recording, and the report.
func convert(t testing.TB, o accesslog.Options, logs ...string) ([]string, accesslog.Report) {
	t.Helper()
	if o.Domain == "" {
		o.Domain = "d"
	}
	c, err := accesslog.New(o)
	must.Succeed(t, err)
	defer c.Close()
	for i, log := range logs {
		must.Succeed(t, c.Read(fmt.Sprintf("%d.log", i), strings.NewReader(log)))
	}
	var out bytes.Buffer
	must.Succeed(t, c.WriteRecording(&out))
	return slices.Collect(strings.Lines(out.String())), c.Report()
}

// expect compares lines, each without its end.
func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	for i := range want {
		want[i] += "\n"
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", strings.Join(got, ""), strings.Join(want, ""))
	}
}

const envoyLog = `[2026-11-22T10:00:05.250Z] "GET /api/items?id=1 HTTP/1.1" 200 - 0 12 7000 3 "192.0.2.1, 10.0.0.7" "curl/8" "11aa" "shop.test" "[2001:db8::5]:8080"
[2026-11-22T10:00:01.000Z] "POST /login HTTP/2" 429 RL 0 0 1 - "-" "say \"hi\"" "22bb" "shop.test" "-"
[2026-11-22T11:00:01.001+01:00] "GET /x HTTP/2" 0 DC 0 0 1 - "2001:db8::9" "-" "33cc" "shop.test" "-"
`

func TestEnvoyDefaultFormatIsConverted(t *testing.T) {
	o := accesslog.Options{Format: accesslog.Envoy, Descriptors: []accesslog.Descriptor{
		descriptor(t, "path", "%{path|path}", "method", "%{:method}"), descriptor(t, "client", "%{x-forwarded-for|item -1|host}"),
	}}
	got, report := convert(t, o, envoyLog)
	expect(t, got,
		`{"t":"2026-11-22T10:00:01.000000Z","domain":"d","descriptors":[[["path","/login"],["method","POST"]]],"allowed":false}`,
		`{"t":"2026-11-22T10:00:01.001000Z","domain":"d","descriptors":[[["path","/x"],["method","GET"]],[["client","2001:db8::9"]]]}`,
		`{"t":"2026-11-22T10:00:05.250000Z","domain":"d","descriptors":[[["path","/api/items"],["method","GET"]],[["client","10.0.0.7"]]],"allowed":true}`)
	if report.Lines != 3 || report.Written != 3 || report.Unreadable != 0 || !slices.Equal(report.LeftOut, []int64{0, 1}) {
		t.Errorf("%+v, want 3 of 3 lines written, and 1 second descriptor left out", report)
	}
	o.Denied = 200
	if got, _ := convert(t, o, envoyLog); !strings.Contains(got[2], `"allowed":false`) || !strings.Contains(got[0], `"allowed":true`) {
		t.Errorf("%s\nwant the outcome of each line", got)
	}
}

// A client may send what separates two fields. The line is then unreadable, and no field takes the
// text of another.
func TestFieldsThatClientsMoveAreUnreadable(t *testing.T) {
	o := accesslog.Options{Format: accesslog.Envoy, Descriptors: []accesslog.Descriptor{descriptor(t, "id", "%{x-request-id}")}}
	line := `[2026-11-22T10:00:05Z] "GET %s HTTP/2" 200 - 0 0 1 - "-" "%s" "id" "host" "%s"` + "\n"
	for _, c := range []struct {
		path, agent, upstream string
		readable              bool
	}{
		{"/", "x", "up", true}, {"/", `a "quote"`, "up", true}, {"/", `a"quote"b`, "up", true}, {"/", `a" b`, `u"p`, true}, {`/"x`, "x", "up", true},
		{"/", `x" "forged" "host" "up`, "up", false}, {"/", `x" "forged`, "up", false}, {"/", `x" `, "up", false}, {"/", `x" "`, "up", false}, {"/", `" "`, "up", false},
		{"/ HTTP/2", "x", "up", false}, {"/a b", "x", "up", false}, {`/" 200 - 0`, "x", "up", false},
	} {
		got, report := convert(t, o, fmt.Sprintf(line, c.path, c.agent, c.upstream))
		switch {
		case !c.readable && report.Reasons[accesslog.Ambiguous] == 1:
		case c.readable && len(got) == 1 && strings.Contains(got[0], `["id","id"]`):
		default:
			t.Errorf("%+v: got %q with %+v, want one line with the entry id if readable, else one ambiguous line", c, got, report)
		}
	}
	o.Layout = `[%START_TIME%] "%REQ(USER-AGENT)%" %REQ(X-REQUEST-ID)% "%REQ(HOST)%"`
	for text, readable := range map[string]bool{`"x" id "host"`: true, `"x" forged" id "host"`: false, `"x" forged "y" id "host"`: false, `"x"y" id "host"`: true, `"x" forged "host" id "host"`: false} {
		if _, report := convert(t, o, "[2026-11-22T10:00:05Z] "+text); (report.Written == 1) != readable || !readable && report.Reasons[accesslog.Ambiguous] != 1 {
			t.Errorf("%s: got %+v, want a written line: %t, else an ambiguous one", text, report, readable)
		}
	}
}

func TestEnvoyFormatStringsAreParsed(t *testing.T) {
	o := accesslog.Options{Format: accesslog.Envoy, Layout: "%START_TIME(%s.%6f)% 100%% %REQ(X-User?:PATH):40% %DYNAMIC_METADATA(a:b)% %RESPONSE_CODE%\n",
		Descriptors: []accesslog.Descriptor{descriptor(t, "user", "%{x-user}", "path", "%{path}", "plan", "%{dynamic_metadata(a:b)}")}}
	got, _ := convert(t, o, "1795341600.000007 100% bob gold 200\r\n\r\n1795341599.9 100% eve - 200\n")
	expect(t, got, `{"t":"2026-11-22T10:00:00.000007Z","domain":"d","descriptors":[[["user","bob"],["path","bob"],["plan","gold"]]],"allowed":true}`)
	for layout, want := range map[string]string{
		"%START_TIME%%REQ(X)%":    "no text separates start_time and x",
		"%START_TIME":             "has no second '%'",
		"%REQ(X %START_TIME%":     "has a '(' without a ')'",
		"text":                    "has no fields",
		"%REQ(X)% %REQ(Y)%":       `the log has no field "start_time": the fields are x, y`,
		"%START_TIME% %REQ(USR)%": `the log has no field "x": the fields are start_time, usr`,
		"%STRT_TIME% %REQ(X)%":    `the log has no field "start_time": did you mean strt_time? The fields are strt_time, x`,
	} {
		c, err := accesslog.New(accesslog.Options{Format: accesslog.Envoy, Layout: layout, Domain: "d", Descriptors: []accesslog.Descriptor{descriptor(t, "k", "%{x}")}})
		must.Succeed(t, err)
		if err := c.Read("a.log", strings.NewReader("x\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", layout, err, want)
		}
	}
}

func TestNginxLogsAreConverted(t *testing.T) {
	o := accesslog.Options{Format: accesslog.Nginx, Descriptors: []accesslog.Descriptor{descriptor(t, "address", "%{remote_addr}", "path", "%{path|segment 1}")}}
	got, report := convert(t, o, `2001:db8::1 - bob [22/Nov/2026:11:00:02 +0100] "GET /a\x22b/c HTTP/1.1" 200 5 "-" "x \x22y\x22"
192.0.2.9 - - [22/Nov/2026:10:00:01 +0000] "\x16\x03\x01" 400 0 "-" "-"
192.0.2.9 - - [22/Nov/2026:10:00:01 +0000] "GET /login HTTP/2.0" 429 0 "-" "-"
192.0.2.9 - - [22/Nov/2026 10:00:01] "GET /login HTTP/2.0" 429 0 "-" "-"
no log
`)
	expect(t, got, `{"t":"2026-11-22T10:00:01.000000Z","domain":"d","descriptors":[[["address","192.0.2.9"],["path","login"]]],"allowed":false}`,
		`{"t":"2026-11-22T10:00:02.000000Z","domain":"d","descriptors":[[["address","2001:db8::1"],["path","a\"b"]]],"allowed":true}`)
	first := []accesslog.Unreadable{{File: "0.log", Line: 4, Reason: accesslog.BadTime}, {File: "0.log", Line: 5, Reason: accesslog.NotInFormat}}
	if report.NoDescriptors != 1 || !slices.Equal(report.First, first) || report.Unreadable != 2 || report.Lines != 5 {
		t.Errorf("%+v, want 2 unreadable lines of 5: %+v", report, first)
	}

	o.Layout = `$remote_addr [$time_local] "$request" $status $request_time ${http_x_user}`
	o.Descriptors = []accesslog.Descriptor{descriptor(t, "user", "%{http_x_user}")}
	got, report = convert(t, o, `::1 [22/Nov/2026:10:00:09 +0000] "GET / HTTP/1.1" 200 8.500 bob
::1 [22/Nov/2026:10:00:01 +0000] "GET / HTTP/1.1" 200 0.000 eve
::1 [22/Nov/2026:10:00:01 +0000] "GET / HTTP/1.1" 200 - eve
`)
	expect(t, got, `{"t":"2026-11-22T10:00:00.500000Z","domain":"d","descriptors":[[["user","bob"]]],"allowed":true}`,
		`{"t":"2026-11-22T10:00:01.000000Z","domain":"d","descriptors":[[["user","eve"]]],"allowed":true}`)
	if report.Reasons[accesslog.BadDuration] != 1 {
		t.Errorf("%+v, want one bad duration", report)
	}
}

func TestJSONLogsAreConverted(t *testing.T) {
	o := accesslog.Options{Format: accesslog.JSON, Descriptors: []accesslog.Descriptor{descriptor(t, "user", "%{headers.x-user}", "plan", "free")}}
	hits, err := accesslog.ParseTemplate("%{tokens}")
	must.Succeed(t, err)
	o.Hits = hits
	got, report := convert(t, o, `{"start_time":"2026-11-22T10:00:00Z","headers":{"x-user":"ж\u2028"},"response_code":429,"tokens":12}
{"start_time":1795341601123,"headers.x-user":7,"response_code":null,"tokens":1}
{"start_time":"2026-11-22T10:00:00Z","headers":{"x-user":null},"tokens":1}
{"start_time":"2026-11-22T10:00:00Z","headers":"-","tokens":1.5}
{"start_time":null,"headers":{"x-user":"a"},"tokens":1}
{"start_time":"2026-11-22T10:00:00","tokens":1}
{"start_time":"1969-11-22T10:00:00Z","tokens":1}
[1]
{"start_time":"2026-11-22T10:00:00Z"} {}
null
`)
	expect(t, got, `{"t":"2026-11-22T10:00:00.000000Z","domain":"d","descriptors":[[["user","ж\u2028"],["plan","free"]]],"hits":12,"allowed":false}`,
		`{"t":"2026-11-22T10:00:01.123000Z","domain":"d","descriptors":[[["user","7"],["plan","free"]]]}`)
	want := map[accesslog.Reason]int64{accesslog.BadHits: 1, accesslog.NoTime: 1, accesslog.NoZone: 1, accesslog.BadTime: 1, accesslog.NotJSON: 3}
	if !reflect.DeepEqual(report.Reasons, want) || report.NoDescriptors != 1 {
		t.Errorf("%+v, want %v", report, want)
	}
	o.Descriptors = []accesslog.Descriptor{descriptor(t, "user", "%{x-usr}")}
	o.Status = "cod"
	if _, report := convert(t, o, `{"start_time":"2026-11-22T10:00:00Z","tokens":1,"code":429}`); !slices.Equal(report.Unknown, []string{"cod", "x-usr"}) {
		t.Errorf("%+v, want the unknown fields cod and x-usr", report)
	}
}

func TestCSVLogsAreConverted(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must.Succeed(t, err)
	o := accesslog.Options{Format: accesslog.CSV, Zone: berlin, Status: "code", Descriptors: []accesslog.Descriptor{descriptor(t, "user", "%{user}")}}
	got, report := convert(t, o, "\ufefftime,user,code\n2026-11-22 11:00:00.5,\"a,\"\"b\"\"\n c\",200\n\n2026-11-22 11:00:01,\"no end,200\n2026-11-22 11:00:02,bob,429\nx\n2026-11-22 11:00:03,eve,200,9\n")
	expect(t, got, `{"t":"2026-11-22T10:00:00.500000Z","domain":"d","descriptors":[[["user","a,\"b\"\n c"]]],"allowed":true}`,
		`{"t":"2026-11-22T10:00:02.000000Z","domain":"d","descriptors":[[["user","bob"]]],"allowed":false}`)
	var bad []int64
	for _, u := range report.First {
		bad = append(bad, u.Line)
		if u.Reason != accesslog.BadCSV {
			t.Errorf("%+v, want bad CSV", u)
		}
	}
	if !slices.Equal(bad, []int64{5, 7, 8}) {
		t.Errorf("lines %d cannot be read, want 5, 7, 8", bad)
	}

	o.Comma, o.Columns, o.Time, o.Status = ';', []string{"at", "who"}, "at", ""
	o.Descriptors = []accesslog.Descriptor{descriptor(t, "user", "%{who}")}
	got, _ = convert(t, o, "\ufeff1795341600;eve\n", "")
	expect(t, got, `{"t":"2026-11-22T10:00:00.000000Z","domain":"d","descriptors":[[["user","eve"]]]}`)
	for text, want := range map[string]string{"a;a\n": "has the column \"a\" twice", "at;whom\n": `the log has no field "who": did you mean whom? The fields are at, whom`, "\"\n": "line 1: the header cannot be read"} {
		o.Columns = nil
		c, err := accesslog.New(accesslog.Options{Format: accesslog.CSV, Domain: "d", Descriptors: o.Descriptors, Comma: ';', Time: "at"})
		must.Succeed(t, err)
		if err := c.Read("a.csv", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Two values that are not UTF-8 are two keys, by the names that the server gives them.
func TestValuesThatAreNotUTF8StayApart(t *testing.T) {
	for _, tt := range []struct {
		format accesslog.Format
		log    string
	}{
		{accesslog.CSV, "time,user\n1795341600,a\xff\n1795341601,a\xfe\n1795341602,a\uFFFDff\n"},
		{accesslog.JSON, `{"start_time":1795341600,"user":"a` + "\xff" + `"}` + "\n" + `{"start_time":1795341601,"user":"a` + "\xfe" + `"}` +
			"\n" + `{"start_time":1795341602,"user":"a` + "\uFFFD" + `ff"}`},
		{accesslog.JSON, `{"start_time":1795341600,"user":"/?u=a%FF"}` + "\n" + `{"start_time":1795341601,"user":"/?u=a%FE"}` +
			"\n" + `{"start_time":1795341602,"user":"/?u=a` + "\uFFFD" + `ff"}`},
		{accesslog.Nginx, `1795341600 a\xFF` + "\n" + `1795341601 a\xFE` + "\n" + `1795341602 a\xEF\xBF\xBDff` + "\n"},
	} {
		o := accesslog.Options{Format: tt.format, Descriptors: []accesslog.Descriptor{descriptor(t, "u", "%{user}")}}
		if tt.format == accesslog.Nginx {
			o.Layout = "$msec $user"
		}
		if strings.Contains(tt.log, "?u=") {
			o.Descriptors = []accesslog.Descriptor{descriptor(t, "u", "%{user|query u}")}
		}
		got, report := convert(t, o, tt.log)
		for i, want := range []string{"a\uFFFDff", "a\uFFFDfe", "a\uFFFDef\uFFFDbf\uFFFDbdff"} {
			if i >= len(got) || !strings.Contains(got[i], `[["u","`+want+`"]]`) {
				t.Errorf("%s: line %d of %q, %+v, want the user %s", tt.format, i, got, report, want)
			}
		}
	}
}

// The default field of the status is that of each log, so a log without this field may follow a log
// with it.
func TestLogsMayDifferInTheStatusColumn(t *testing.T) {
	o := accesslog.Options{Format: accesslog.CSV, Descriptors: []accesslog.Descriptor{descriptor(t, "user", "%{user}")}}
	got, _ := convert(t, o, "time,user,status\n1795341600,eve,429\n", "time,user\n1795341601,bob\n")
	expect(t, got, `{"t":"2026-11-22T10:00:00.000000Z","domain":"d","descriptors":[[["user","eve"]]],"allowed":false}`,
		`{"t":"2026-11-22T10:00:01.000000Z","domain":"d","descriptors":[[["user","bob"]]]}`)
}

// With room for a few lines in memory, the recording is that of a stable sort.
func TestSortInFilesIsStable(t *testing.T) {
	type request struct{ second, number int }
	random := rand.New(rand.NewPCG(1, 2))
	var all []request
	var logs [2]strings.Builder
	const n = 4000
	for i := range n {
		r := request{random.IntN(300), i}
		all = append(all, r)
		fmt.Fprintf(&logs[2*i/n], "{\"start_time\":%d,\"n\":%d}\n", 1795341600+r.second, i)
	}
	slices.SortStableFunc(all, func(a, b request) int { return a.second - b.second })
	o := accesslog.Options{Format: accesslog.JSON, Descriptors: []accesslog.Descriptor{descriptor(t, "n", "%{n}")}, MaxMemory: 3000}
	got, report := convert(t, o, logs[0].String(), logs[1].String())
	if len(got) != n || report.Written != n {
		t.Fatalf("%d lines, %+v", len(got), report)
	}
	for i, r := range all {
		if !strings.Contains(got[i], fmt.Sprintf(`[["n","%d"]]`, r.number)) {
			t.Fatalf("line %d is %s, want request %d", i, got[i], r.number)
		}
	}
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	c, err := accesslog.New(accesslog.Options{Format: accesslog.JSON, Domain: "d", Descriptors: o.Descriptors, MaxMemory: 1})
	must.Succeed(t, err)
	if err := c.Read("a", strings.NewReader(logs[0].String())); err == nil {
		t.Error("no error without a folder for temporary files")
	}
}

func TestLogsThatEndInTheMiddleAreReadUpToTheirEnd(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, strings.Repeat(envoyLog, 2000))
	must.Succeed(t, w.Close())
	o := accesslog.Options{Format: accesslog.Envoy, Descriptors: []accesslog.Descriptor{descriptor(t, "path", "%{path}")}}
	got, report := convert(t, o, packed.String())
	if len(got) != 6000 || report.Broken != nil {
		t.Errorf("%d lines, %v, want 6000", len(got), report.Broken)
	}
	got, report = convert(t, o, packed.String()[:packed.Len()/2], envoyLog)
	if len(got) < 10 || len(got) >= 6000 || len(report.Broken) != 1 || !errors.Is(report.Broken[0], io.ErrUnexpectedEOF) {
		t.Errorf("%d lines, %v", len(got), report.Broken)
	}
	_, report = convert(t, o, strings.Repeat("x", 300<<10)+"\n"+envoyLog+strings.Repeat("y\n", 50)+envoyLog[:40])
	if report.Reasons[accesslog.TooLong] != 1 || report.Reasons[accesslog.NotInFormat] != 51 || len(report.First) != 20 || report.Written != 3 {
		t.Errorf("%+v, want 1 line too long, 51 not in the format, 20 of them listed, and 3 written", report)
	}
}

// If a compressed log is cut off within a line, the line is left out, because its last value may be
// the beginning of another one. The line may be the header of a table. Further logs are read.
func TestCutLinesOfCompressedLogsAreLeftOut(t *testing.T) {
	flushed := func(text string) string {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = io.WriteString(w, text)
		must.Succeed(t, w.Flush())
		return packed.String()
	}
	user := []accesslog.Descriptor{descriptor(t, "user", "%{user}")}
	for _, c := range []struct {
		o        accesslog.Options
		log, cut string
	}{
		{accesslog.Options{Format: accesslog.CSV, Descriptors: user}, "time,user\n1795341600,alice\n", "1795341600,bo"},
		{accesslog.Options{Format: accesslog.CSV, Descriptors: user}, "", "time,us"},
		{accesslog.Options{Format: accesslog.Envoy, Layout: "%START_TIME% %REQ(USER)%", Descriptors: user}, "1795341600 alice\n", "1795341600 bo"},
		{accesslog.Options{Format: accesslog.JSON, Descriptors: user}, `{"start_time":1795341600,"user":"alice"}` + "\n", `{"start_time":1795341600,"user":"bo`},
	} {
		got, report := convert(t, c.o, flushed(c.log+c.cut), c.log)
		for _, line := range got {
			if !strings.Contains(line, `["user","alice"]`) {
				t.Errorf("%s: got %s, want no request of the line that is cut off", c.o.Format, line)
			}
		}
		if want := 2 * strings.Count(c.log, "alice"); len(got) != want || report.Unreadable != 0 || len(report.Broken) != 1 {
			t.Errorf("%s: %q, %+v, want %d requests, and a file that could not be read to its end", c.o.Format, got, report, want)
		}
	}
}

// Every line of a recording is one that a replay reads.
func TestReplayReadsEveryConvertedLine(t *testing.T) {
	got, _ := convert(t, accesslog.Options{Format: accesslog.Envoy, Descriptors: []accesslog.Descriptor{descriptor(t, "agent", "%{user-agent}")}},
		"[2026-11-22T10:00:05.250Z] \"GET / HTTP/1.1\" 200 - 0 12 7 3 \"-\" \"\xff\x01 \\ é\" \"11aa\" \"shop.test\" \"-\"\n")
	r, err := recording.NewReader(strings.NewReader(strings.Join(got, "")), recording.ReaderOptions{Reorder: 1})
	must.Succeed(t, err)
	defer r.Close()
	var line recording.Line
	if err := r.Next(&line); err != nil || line.Request.Descriptors[0].Entries[0].Value != "\ufffdff\x01 \\ é" || !line.HasAllowed || !line.Allowed {
		t.Errorf("got error %v, %+v, want an allowed line with the value of the log, and U+FFFD and ff for its invalid byte", err, line)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestAFullDiskIsOneError(t *testing.T) {
	c, err := accesslog.New(accesslog.Options{Format: accesslog.CSV, Domain: "d", Descriptors: []accesslog.Descriptor{descriptor(t, "user", "%{user}")}})
	must.Succeed(t, err)
	must.Succeed(t, c.Read("log", strings.NewReader("time,user\n"+strings.Repeat("1795341600,a\n", 10_000))))
	if err := c.WriteRecording(full{}); err == nil || err.Error() != "the disk is full" {
		t.Errorf("error %q, want that of the disk", err)
	}
}

// A log in another format than that of the options is named, whether its fields are missing or all
// its lines are unreadable.
func TestHintsAtTheFormatOfALog(t *testing.T) {
	logs := map[string]string{
		"json":      `{"start_time":"2026-11-22T10:00:00Z","response_code":200,"user":"a"}` + "\n",
		"envoy":     `[2026-11-22T10:00:01.000Z] "GET / HTTP/2" 200 - 12 5 3 2 "-" "app/3" "77ab" "shop.test" "10.0.0.5:8080"` + "\n",
		"nginx":     `192.0.2.1 - - [22/Nov/2026:10:00:09 +0000] "GET /a HTTP/1.1" 200 8 "-" "curl"` + "\n",
		"csv":       "time,user\n1795341600,a\n",
		"recording": `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["user","a"]]]}` + "\n",
		"text":      "one\ntwo\n",
		"empty":     "",
	}
	for name, log := range logs {
		for _, format := range []accesslog.Format{accesslog.Envoy, accesslog.Nginx, accesslog.JSON, accesslog.CSV} {
			for _, value := range []string{"%{no_such_field}", "a"} {
				want := fmt.Sprintf("its first lines are in the format %s, not %s", name, format)
				switch {
				case name == "recording":
					want = "it is a recording already"
				case name == string(format) || name == "text" || name == "empty":
					want = ""
				}
				c, err := accesslog.New(accesslog.Options{Format: format, Domain: "d", Descriptors: []accesslog.Descriptor{descriptor(t, "generic_key", value)}})
				must.Succeed(t, err)
				err = c.Read("log", strings.NewReader(strings.Repeat(log, 1000)))
				got := strings.Join(c.Report().Hints, "")
				if err != nil {
					got = err.Error()
				}
				if want == "" && strings.Contains(got, "its first lines") || want != "" && got != "log: "+want {
					t.Errorf("%s read as %s: %q, want %q", name, format, got, want)
				}
			}
		}
	}
	for layout, want := range map[string][]string{"%START_TIME% %REQ(X-USER)%": {"log: its first lines are in the default format of envoy: leave the format string out"}, "": nil} {
		c, err := accesslog.New(accesslog.Options{Format: accesslog.Envoy, Layout: layout, Domain: "d", Descriptors: []accesslog.Descriptor{descriptor(t, "generic_key", "a")}})
		must.Succeed(t, err)
		if err := c.Read("log", strings.NewReader(logs["envoy"])); err != nil || !slices.Equal(c.Report().Hints, want) {
			t.Errorf("%q: %v, %q, want %q", layout, err, c.Report().Hints, want)
		}
	}
}
