package recording

import (
	"reflect"
	"strings"
	"testing"
)

// plainLines are lines that the scanner must take, for its speed.
var plainLines = []string{
	`{"t":"2026-11-22T10:00:00.000001Z","domain":"ugc","descriptors":[[["user_id","42"],["action","reply"]]],"hits":1,"allowed":true}`,
	`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]],[],[["c",""]]],"hits":-3,"allowed":false}`,
	`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]],"allowed":false}`,
	`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]],"hits":0}`,
	`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]],"hits":-0}`,
	`{"t":1795341600000002,"domain":"ugc","descriptors":[[]]}`,
	`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]],"left_out":100}`,
}

func TestScannerReadsExactlyPlainLines(t *testing.T) {
	for _, text := range plainLines {
		got, ok := scan([]byte(text))
		want, kind := decodeLine([]byte(text))
		if !ok || kind != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%t %+v\nwant %s %+v", text, ok, got, kind, want)
		}
	}
	for _, text := range []string{
		`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]],"hits":01}`, `{"t":1795341600000002,"domain":"ugc","descriptors":[]}`,
		`{"t":1795341600000002,"domain":"","descriptors":[[["a","b"]]]}`, `{"t":1795341600000002,"domain":"ugc","descriptors":[[["","b"]]]}`,
		`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b",]]]}`, `{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"],]]}`,
		`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]],]}`, `{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]]} `,
		`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","\u0062"]]]}`, `{"t":1,"domain":"ugc","descriptors":[[["a","b"]]]}`,
		`{"t":1795341600000002,"domain":"ugc","descriptors":[[["a","b"]]],"hits":9223372036854775808}`, `{`, ``,
		`{"t":1795341600000002,"domain":"ugc","descriptors":[` + strings.Repeat(`[],`, 100) + `[]]}`,
		`{"t":1795341600000002,"domain":"ugc","descriptors":[[` + strings.Repeat(`["a","b"],`, 64) + `["a","b"]]]}`,
	} {
		if got, ok := scan([]byte(text)); ok {
			t.Errorf("the scanner takes %s as %+v", text, got)
		}
	}
}

// The scanner takes only lines that encoding/json reads alike.
func FuzzScanner(f *testing.F) {
	for _, text := range plainLines {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := scan(text)
		if !ok {
			return
		}
		if want, kind := decodeLine(text); kind != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%q\n%+v\nwant %s %+v", text, got, kind, want)
		}
	})
}
