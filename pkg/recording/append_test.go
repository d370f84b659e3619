package recording

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

func TestAppendedLinesAreReadBack(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 1000, time.UTC)
	entry := func(key, value string) []descriptors.Entry { return []descriptors.Entry{{Key: key, Value: value}} }
	for name, all := range map[string][]decide.Descriptor{
		"one hit":      {{Entries: entry("user", "42"), Hits: 1}},
		"many hits":    {{Entries: entry("user", "42"), Hits: 7}, {Entries: entry("ip", "::1"), Hits: 7}},
		"list of hits": {{Entries: entry("user", "42"), Hits: 1}, {Entries: entry("ip", ""), Hits: -3, Refund: true}},
		"peek":         {{Entries: entry("user", "42")}},
		"no refund":    {{Entries: entry("user", "42"), Refund: true}},
		"list of 0":    {{Entries: entry("user", "42"), Refund: true}, {Entries: entry("ip", "::1")}},
		"overrides": {
			{Entries: entry("user", "42"), Hits: 1}, {Entries: entry("ip", "::1"), Hits: 1, Override: &decide.Override{RequestsPerUnit: 5, Unit: descriptors.Minute, UnitMultiplier: 2}},
			{Entries: entry("slots", "1"), Hits: 1, Override: &decide.Override{RequestsPerUnit: 0}},
		},
		"quoting": {{Entries: entry("a\"b\\", "line\nend <&> é \u2028 \x7f"), Hits: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			want := Line{At: at, Request: decide.Request{Domain: "d\"é", Descriptors: all}, Allowed: true, HasAllowed: true}
			r, err := NewReader(bytes.NewReader(AppendLine(nil, &want)), ReaderOptions{})
			must.Succeed(t, err)
			defer r.Close()
			var got Line
			if err := r.Next(&got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("read %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestMarksOfALineAreReadBack(t *testing.T) {
	for _, text := range []string{
		`{"t":"2026-11-22T10:00:00.000001Z","domain":"d","descriptors":[[["k","v"]]],"allowed":false,"by":"cache","left_out":3}`,
		` {"t":"2026-11-22T10:00:00.000001Z","domain":"d","descriptors":[[["k","v"]]],"allowed":false,"by":"cache","left_out":3}`, // not in the plain form
	} {
		line, kind := parseLine([]byte(strings.TrimSpace(text)))
		if decoded, slow := decodeLine([]byte(strings.TrimSpace(text))); slow != "" || !reflect.DeepEqual(decoded, line) {
			t.Errorf("%+v by encoding/json, %+v in the plain form", decoded, line)
		}
		if kind != "" || line.By != FromCache || line.LeftOut != 3 || line.Allowed || !line.HasAllowed {
			t.Errorf("%s: got kind %q, %+v, want a denial by the cache with 3 descriptors left out", text, kind, line)
		}
		if again := AppendLine(nil, &line); string(again) != strings.TrimSpace(text)+"\n" {
			t.Errorf("written as %s", again)
		}
	}
}

func TestNotesOfTheRecorderAreRead(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	line := Line{At: at, Request: decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: []descriptors.Entry{{Key: "k", Value: "v"}}, Hits: 1}}}}
	text := AppendNote(nil, at, RecorderNote{Sample: .25, Secret: "0123"})
	text = AppendDropped(AppendLine(text, &line), at, 40)
	text = AppendDropped(AppendLine(text, &line), at, 2)
	r, err := NewReader(bytes.NewReader(text), ReaderOptions{})
	must.Succeed(t, err)
	defer r.Close()
	n := 0
	for ; err == nil; n++ {
		err = r.Next(&line)
	}
	if want := []SkipCount{{Reason: Dropped, Lines: 42, First: 3}}; n != 3 || !reflect.DeepEqual(r.Skipped(), want) || !slices.Equal(r.Notes(), []RecorderNote{{.25, "0123"}}) {
		t.Errorf("%d lines, %+v, %+v", n-1, r.Skipped(), r.Notes())
	}
}

func TestDifferentNotesAreBounded(t *testing.T) {
	var text []byte
	for i := range maxNotes + 1 {
		text = AppendNote(text, time.Now(), RecorderNote{Sample: 1, Secret: strconv.Itoa(i)})
	}
	r, err := NewReader(bytes.NewReader(text), ReaderOptions{})
	must.Succeed(t, err)
	defer r.Close()
	if err := r.Next(&Line{}); !errors.Is(err, io.EOF) || len(r.Notes()) != maxNotes {
		t.Errorf("%v, and %d notes, want EOF and %d", err, len(r.Notes()), maxNotes)
	}
}

// A reader that holds much text returns a line although an earlier one may follow.
func TestHeldTextIsBounded(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	line := Line{At: at, Request: decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: []descriptors.Entry{{Key: "k", Value: "v"}}, Hits: 1}}}}
	text := AppendLine(nil, &line)
	line.At = at.Add(-time.Second)
	text = AppendLine(text, &line)
	for free, want := range map[int]time.Time{1000: line.At, 1: at} {
		r, err := NewReader(bytes.NewReader(text), ReaderOptions{})
		must.Succeed(t, err)
		defer r.Close()
		r.bufferedBytes = maxHeldBytes - free
		var first Line
		if err := r.Next(&first); err != nil || !first.At.Equal(want) {
			t.Errorf("with %d bytes free: %v, %v, want %v", free, first.At, err, want)
		}
	}
}

func TestOverridesOfAnotherLengthOrUnitAreSkipped(t *testing.T) {
	for _, overrides := range []string{`[]`, `[null,null]`, `[{"requests_per_unit":1,"unit":"fortnight"}]`} {
		text := `{"t":1,"domain":"d","descriptors":[[["k","v"]]],"overrides":` + overrides + `}`
		if _, kind := decodeLine([]byte(strings.Replace(text, `"t":1`, `"t":1795373037431903`, 1))); kind != BadOverrides {
			t.Errorf("%s: kind %q, want %q", overrides, kind, BadOverrides)
		}
	}
}
