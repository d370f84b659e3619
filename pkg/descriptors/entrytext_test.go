package descriptors_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-rls/weir/pkg/descriptors"
)

func TestParseEntriesReadsEscapes(t *testing.T) {
	for text, want := range map[string][]descriptors.Entry{
		"":                                nil,
		"a=1":                             {{Key: "a", Value: "1"}},
		"user_id=42,action=login":         {{Key: "user_id", Value: "42"}, {Key: "action", Value: "login"}},
		"a=":                              {{Key: "a"}},
		"a=1, b =2":                       {{Key: "a", Value: "1"}, {Key: "b", Value: "2"}},
		"a=b=c":                           {{Key: "a", Value: "b=c"}},
		`a=1\,2,b\=c=\=`:                  {{Key: "a", Value: "1,2"}, {Key: "b=c", Value: "="}},
		`path=C:\x\\,b=\`:                 {{Key: "path", Value: `C:\x\`}, {Key: "b", Value: `\`}},
		"a= spaces stay ,b=\uFFFDff":      {{Key: "a", Value: " spaces stay "}, {Key: "b", Value: "\uFFFDff"}},
		`ua=Mozilla/5.0 (X11\, a\=b),x=1`: {{Key: "ua", Value: "Mozilla/5.0 (X11, a=b)"}, {Key: "x", Value: "1"}},
	} {
		if got, err := descriptors.ParseEntries(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"a": `entry 1, "a", has no '='`, "a=1,": "entry 2 is empty", ",a=1": "entry 1 is empty", "a=1,=2": `entry 2, "=2", has no key`, `a\=1`: "has no '='",
		"a=1,b=\xff": `entry 2, "b=\xff", is not UTF-8: write each invalid byte as U+FFFD and its two hexadecimal digits`,
	} {
		if got, err := descriptors.ParseEntries(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v, want the error %s", text, got, err, want)
		}
	}
}

func TestParsePathRejectsInvalidUTF8(t *testing.T) {
	for _, text := range []string{"a,b\xff", "a=\xff"} {
		if got, err := descriptors.ParsePath(text); err == nil || !strings.Contains(err.Error(), "is not UTF-8: write each invalid byte") {
			t.Errorf("%q: %v, %v, want the error that it is not UTF-8", text, got, err)
		}
	}
}

// EntriesText writes what ParseEntries reads, except spaces around keys and invalid UTF-8. No text
// makes the parser fail otherwise than with an error.
func FuzzParseEntries(f *testing.F) {
	for _, text := range []string{"a=1,b=2", `a=1\,2`, `\\\=\,==,=`, "a", "", `a=\`} {
		f.Add(text, text)
	}
	f.Add("0= ", " ")
	f.Add(" ", "")
	f.Fuzz(func(t *testing.T, key, value string) {
		entries, err := descriptors.ParseEntries(key)
		if err == nil && key != "" && len(entries) == 0 || err != nil && len(entries) > 0 {
			t.Errorf("ParseEntries(%q): got %q, error %v, want entries or an error, never both or neither", key, entries, err)
		}
		written := []descriptors.Entry{{Key: key, Value: value}, {Key: value + "k", Value: key}}
		want := slices.Clone(written)
		for i := range want {
			want[i].Key = strings.TrimSpace(want[i].Key)
		}
		text := descriptors.EntriesText(written)
		got, err := descriptors.ParseEntries(text)
		if want[0].Key == "" || !utf8.ValidString(text) {
			if err == nil {
				t.Errorf("%q: %q, want an error", text, got)
			}
			return
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	})
}
