package explain_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/explain"
)

var update = flag.Bool("update", false, "write testdata/texts.txt")

func shop(t testing.TB) *descriptors.Rules {
	t.Helper()
	read := func(name string) rulesfile.File {
		data := must.Read(t, "testdata/"+name)
		return rulesfile.File{Name: name, Data: data}
	}
	overlay, err := rulesfile.ParseOverlay(read("overlay.yaml"))
	must.Succeed(t, err)
	rules, _, err := rulesfile.ParseWith(rulesfile.Options{Overlay: overlay}, read("rules.yaml"))
	must.Succeed(t, err)
	return rules
}

// request reads "domain: k=v k=v, k=v": a descriptor of two entries and another. Hits follow a '#',
// where 0 is a refund, and a limit of requests per hour a '!'.
func request(text string) *decide.Request {
	domain, rest, _ := strings.Cut(text, ": ")
	r := &decide.Request{Domain: domain}
	for part := range strings.SplitSeq(rest, ", ") {
		d := decide.Descriptor{Hits: 1}
		for _, field := range strings.Fields(part) {
			key, value, _ := strings.Cut(field, "=")
			switch field[0] {
			case '#':
				_, _ = fmt.Sscanf(field, "#%d", &d.Hits)
				d.Refund = d.Hits == 0
			case '!':
				d.Override = &decide.Override{Unit: descriptors.Hour}
				_, _ = fmt.Sscanf(field, "!%d", &d.Override.RequestsPerUnit)
			default:
				d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

var requests = []string{
	// limits
	"shop: user_id=42 action=login", "shop: user_id=42 action=reply", "shop: user_id=bigco", "shop: ip=10.9.9.9", "shop: ip=11.0.0.1",
	"shop: client=192.0.2.7", "shop: user_id=42 lease=a1b2", "shop: user_id=42 lease=a1b2 release=1", "shop: budget=team lease=a1b2 settle=1 #250",
	"shop: user_id=42 action=login !7", "shop: nobody=1 !7", "shop: user_id=42 action=login #0",
	// other rules and several descriptors
	"shop: user_id=42 action=login, path=/admin/x", "shop: user_id=42 lease=", "shop: ",
	// no limit
	"shop: user_id=bigco action=login", "shop: user_id=42 action=post", "shop: user_id=42 Action=login", "shop: user_id=42", "shop: user_id=staff action=login",
	"shop: user-id=42", "shop: client=198.51.100.1", "shop: client=localhost", "shop: path=/x", "shop: user_id=42 action=login more=1",
	// another domain
	"shopp: user_id=42", "elsewhere: user_id=42", ": user_id=42",
}

// The texts are in testdata/texts.txt. The flag -update writes them.
func TestReasonTextsMatchGoldenFile(t *testing.T) {
	const file = "testdata/texts.txt"
	rules := shop(t)
	var got bytes.Buffer
	for _, text := range requests {
		fmt.Fprintf(&got, "=== %s\n", text)
		got.WriteString(explain.ForRequest(explain.Options{}, rules, request(text)).Text(false))
	}
	if *update {
		must.Succeed(t, os.WriteFile(file, got.Bytes(), 0o644))
	}
	want := must.Read(t, file)
	wanted := strings.Split(string(want), "=== ")
	for i, part := range strings.Split(got.String(), "=== ") {
		if i >= len(wanted) || part != wanted[i] {
			t.Errorf("got\n%s\nwant\n%s", part, append(wanted, "")[min(i, len(wanted))])
		}
	}
	for line := range strings.Lines(got.String()) {
		if columns := len([]rune(strings.TrimSuffix(line, "\n"))); columns > 80 {
			t.Errorf("%d columns: %s", columns, line)
		}
	}
}

func TestKeysAreHashesUnderSecret(t *testing.T) {
	example := request("shop: user_id=42 action=login")
	plain := explain.ForRequest(explain.Options{}, shop(t), example).Descriptors[0].Limits[0]
	hidden := explain.ForRequest(explain.Options{KeyHashSecret: []byte("0123456789abcdef")}, shop(t), example).Descriptors[0].Limits[0]
	if plain.KeyHash != descriptors.KeyHash(nil, plain.Key) || !strings.Contains(plain.Key, "42") {
		t.Errorf("key %q, hash %s", plain.Key, plain.KeyHash)
	}
	if want := descriptors.KeyHash([]byte("0123456789abcdef"), plain.Key); hidden.Key != want || hidden.KeyHash != want {
		t.Errorf("key %q, hash %s, want %s for both", hidden.Key, hidden.KeyHash, want)
	}
}

// A text from a request or a server cannot drive the terminal.
func TestTextHasNoControlCharacters(t *testing.T) {
	example := &decide.Request{Domain: "shop\x1b[31m", Descriptors: []decide.Descriptor{{
		Entries: []descriptors.Entry{{Key: "user_id\x07", Value: "a\r\nb\u009b" + strings.Repeat("long ", 100)}, {Key: "\xff", Value: "\u202e"}},
	}}}
	for _, domain := range []string{example.Domain, "shop"} {
		example.Domain = domain
		out := explain.ForRequest(explain.Options{}, shop(t), example).Text(false)
		if i := strings.IndexFunc(out, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("control character at %d of %q", i, out)
		}
		if len(out) > 4000 {
			t.Errorf("%d bytes", len(out))
		}
	}
}

// An explanation from a server has the text of the same explanation without a server.
func TestTextOfLargeParametersSurvivesJSON(t *testing.T) {
	parameters := map[string]any{"capacity": int64(25_000_000), "penalty": map[string]any{"after": int64(4_503_599_627_370_495), "for": "10m"}}
	before := explain.Explanation{Descriptors: []explain.Descriptor{{Limits: []explain.Limit{{Parameters: parameters}}}}}
	encoded, err := json.Marshal(before)
	must.Succeed(t, err)
	var after explain.Explanation
	must.Succeed(t, json.Unmarshal(encoded, &after))
	const want = "capacity=25000000, penalty after=4503599627370495 for=10m"
	if got := after.Text(false); got != before.Text(false) || !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s, as in\n%s", got, want, before.Text(false))
	}
}

// Two values that differ in their spaces are two keys.
func TestTextKeepsSpacesOfValues(t *testing.T) {
	example := request("shop: user_id=42")
	example.Descriptors[0].Entries[0].Value = "a  b"
	out := explain.ForRequest(explain.Options{}, shop(t), example).Text(false)
	if strings.Contains(out, "a b") || strings.Count(out, "a  b") < 2 {
		t.Errorf("got\n%s\nwant the value with two spaces", out)
	}
	if strings.Contains(out, " \n") {
		t.Errorf("got\n%s\nwant no line that ends with a space", out)
	}
}

func TestRoundUpKeepsThreeDigits(t *testing.T) {
	for text, want := range map[string]string{
		"0s": "0s", "never": "never", "": "", "-1s": "-1s", "1ns": "1ns", "999ns": "999ns", "1.001µs": "1.01µs", "12.345678ms": "12.4ms",
		"999.999999ms": "1s", "8.571429s": "8.58s", "42.8s": "42.8s", "42.857142s": "42.9s", "1m39.999s": "1m40s", "59m59.883907s": "1h0m0s",
		"9m0s": "9m0s", "1h2m3.4s": "1h2m4s", "2562047h47m16.854775807s": "2562047h47m16.854775807s",
	} {
		if got := explain.RoundUp(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestErrorOfBothRequestsOfEnvoyIsReportedOnce(t *testing.T) {
	invalid := &decide.Request{Descriptors: []decide.Descriptor{{}}}
	want := explain.ForRequest(explain.Options{}, nil, invalid).Error
	got := explain.ForEnvoy(explain.Options{}, nil, &explain.Envoy{}, invalid, invalid).Error
	if got != want || want == "" {
		t.Errorf("got %q, want %q", got, want)
	}
}
