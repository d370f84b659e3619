package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/lines"
	"github.com/weir-rls/weir/internal/must"
)

func TestTemplatesAreExpandedOrRejected(t *testing.T) {
	fields := map[string]string{
		"path": "/api/v1/items?user=a%20b&q=", "xff": "192.0.2.1, 10.0.0.7", "dash": "-", "empty": "", "port": "[2001:db8::1]:443",
		"mapped": "::ffff:192.0.2.1", "method": "GET", "v4": "192.0.2.1:80",
	}
	field := func(name string) (string, bool) { s, ok := fields[name]; return s, ok }
	for text, want := range map[string]string{
		"%{method}": "GET", "%{method|lower}": "get", "a-%{method}-b": "a-GET-b", "literal": "literal", "%%{method}": "%{method}", "50%": "50%",
		"%{path|segment 1}": "api", "%{path|segment 3}": "items", "%{path|segment -1}": "items", "%{path|segment 4}": "", "%{path|path}": "/api/v1/items",
		"%{path|query user}": "a b", "%{path|query q}": "", "%{path|query none}": "", "%{xff|item 1}": "192.0.2.1", "%{xff|item -1|host}": "10.0.0.7",
		"%{xff|item 3}": "", "%{port|host}": "2001:db8::1", "%{mapped|host}": "192.0.2.1", "%{v4|host}": "192.0.2.1", "%{method|host}": "",
		`%{path|match ^/api/(v\d{1,2})/}`: "v1", `%{path|match v\d}`: "v1", "%{path|match none}": "", "%{path|match (x|items)}": "items",
		"%{ method | lower }": "get", "%{dash}": "", "%{empty}": "", "%{none}": "", "a%{none}": "", "%{method}%{path|segment 2}": "GETv1",
	} {
		tpl, err := ParseTemplate(text)
		if err != nil {
			t.Errorf("parse the template %s: %v", text, err)
			continue
		}
		if got, ok := tpl.value(field); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %t, want %q", text, got, ok, want)
		}
	}
	for text, want := range map[string]string{
		"": "the value is empty", "%{": "has no end", "%{}": "the name of a field is missing", "%{a|frobnicate}": `unknown filter "frobnicate": the filters are segment N`,
		"%{a|segment}": "unknown filter", "%{a|segment 0}": "unknown filter", "%{a|item x}": "unknown filter", "%{a|match (}": "missing closing )", "%{a|}": "unknown filter",
		"%{a|lower x}": "unknown filter", "%{a|match }": "unknown filter",
		"%REQ(X-USER-ID)%": `would be the text %REQ(X-USER-ID)% in every line: write %{field}`, "a%START_TIME%": "write %{field}", "%REQ(A?B):10%": "write %{field}",
	} {
		if _, err := ParseTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestTimesAreReadInEveryFormat(t *testing.T) {
	tokyo := time.FixedZone("", 9*3600)
	for text, want := range map[string]string{
		"2026-11-22T10:00:00.123456Z": "10:00:00.123456", "2026-11-22T11:30:00+01:30": "10:00:00", "2026-11-22 10:00:00Z": "10:00:00",
		"22/Nov/2026:05:00:00 -0500": "10:00:00", "1795341600": "10:00:00", "1795341600.25": "10:00:00.25", "1795341600250": "10:00:00.25",
		"1795341600250001": "10:00:00.250001", "1795341600250001999": "10:00:00.250001999", "2026-11-22T19:00:00": "10:00:00", "22/Nov/2026:19:00:00": "10:00:00",
		"2026/11/22 19:00:00": "10:00:00", "2026-11-22 19:00:00.5": "10:00:00.5",
	} {
		got, reason := parseTime(text, tokyo)
		if reason != "" || got.UTC().Format("2006-01-02 15:04:05.999999999") != "2026-11-22 "+want {
			t.Errorf("time %s: got %v, reason %q, want %s UTC of 2026-11-22", text, got, reason, want)
		}
	}
	for _, text := range []string{"", "x", "2026-11-22", "2026-02-30T10:00:00Z", "1e9", "-5", "1795341600.x", "99999999999999999999", "10:00"} {
		if got, reason := parseTime(text, tokyo); reason != BadTime {
			t.Errorf("%q: %v, %s, want %s", text, got, reason, BadTime)
		}
	}
	if _, reason := parseTime("2026-11-22 10:00:00", nil); reason != NoZone {
		t.Errorf("without a zone: %s, want %s", reason, NoZone)
	}
}

// Whatever clients send in the fields of a line, each field is read as it was written, or the line
// is unreadable.
func TestNoFieldTakesTheTextOfAnother(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	text := func(maximum int) string {
		var b strings.Builder
		for range random.IntN(maximum) {
			b.WriteByte("a\" -"[random.IntN(4)])
		}
		return b.String()
	}
	readable, ambiguous := 0, 0
	for range 300_000 {
		log := &textLog{literals: []string{text(2)}}
		n := 2 + random.IntN(4)
		for i := range n {
			log.fields = append(log.fields, nil)
			literal := []string{" ", `" "`, ` "`, `" `, "--", `a`, `""`, ` a `}[random.IntN(8)]
			if i == n-1 {
				literal = text(2)
			}
			log.literals = append(log.literals, literal)
		}
		log.values = make([]string, n)
		line := log.literals[0]
		var want []string
		for i := range n {
			want = append(want, text(6))
			line += want[i] + log.literals[i+1]
		}
		switch log.split(line) {
		case "":
			if readable++; !slices.Equal(log.values, want) {
				t.Fatalf("%q with %q is %q, want %q", line, log.literals, log.values, want)
			}
		case Ambiguous:
			ambiguous++
		}
	}
	if readable < 50_000 || ambiguous < 10_000 {
		t.Errorf("%d lines readable, %d ambiguous", readable, ambiguous)
	}
}

// A readable line of a layout is its literals and fields, joined again.
func FuzzTextLog(f *testing.F) {
	f.Add(envoyLayout, `[2026-11-22T10:00:05Z] "GET / HTTP/2" 200 - 0 0 1 - "-" "x" "id" "host" "up"`, false)
	f.Add(nginxLayout, `::1 - - [22/Nov/2026:10:00:09 +0000] "GET / HTTP/1.1" 200 8 "-" "\x22\x5c"`, true)
	f.Add("%A(%s.%3f)%-%B:3%", "1-2", false)
	f.Fuzz(func(t *testing.T, layout, line string, nginx bool) {
		format := Envoy
		if nginx {
			format = Nginx
		}
		log, err := newTextLog(nil, format, layout)
		if err != nil || log.split(line) != "" || nginx && strings.Contains(line, `\x`) {
			return
		}
		got := log.literals[0]
		for i, v := range log.values {
			got += v + log.literals[i+1]
		}
		if got != line {
			t.Errorf("%q of %q gives %q", line, layout, got)
		}
		for _, name := range append(log.names(), "path", "none") {
			log.field(name)
		}
	})
}

// No input stops a parser, and it returns every line once: as a record, or as unreadable.
func FuzzLogs(f *testing.F) {
	f.Add([]byte("time,a\n1,\"x\ny\"\n2,\"z\n3,4\n"))
	f.Add([]byte(`{"a":{"b":1}}` + "\n{\n\n[]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := newCSVLog(lines.NewReader(bufio.NewReader(bytes.NewReader(text)), maxLineBytes), []string{"a", "b"}, ',')
		must.Succeed(t, err)
		for _, p := range []parser{table, &jsonLog{in: lines.NewReader(bufio.NewReader(bytes.NewReader(text)), maxLineBytes)}} {
			last := int64(0)
			for {
				line, reason, err := p.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || line <= last || line > int64(bytes.Count(text, []byte("\n"))+1) {
					t.Fatalf("line %d after %d, %v", line, last, err)
				}
				last = line
				if reason == "" {
					p.field("a")
					p.field("a.b")
				}
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"%{path|segment 1}x", "%%{%{a|match (\\d{2})|x}", "%{a|query b}", "%{a|item -1|host|lower}"} {
		f.Add(text, "/a?b=%20,2")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		tpl, err := ParseTemplate(text)
		if err != nil {
			return
		}
		if got, ok := tpl.value(func(string) (string, bool) { return value, true }); ok && got == "" {
			t.Errorf("%q of %q is empty", text, value)
		}
		parseTime(value, time.UTC)
		parseDecimal(value, "s")
	})
}
