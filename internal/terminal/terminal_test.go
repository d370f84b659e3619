package terminal_test

import (
	"encoding/json"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/terminal"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"user_id=42": "user_id=42", "größe": "größe", "\x1b[31m": `\x1b[31m`, "a\nb": `a\nb`, "\xff": `\xff`, "\u202e": `\u202e`,
	} {
		if got := terminal.Printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got, want := terminal.PrintableLines("a\x07\nb\n"), "a\\a\nb\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestControlCharactersOfJSONAreEscaped(t *testing.T) {
	text := "a ö \u009b2J \x7f \u202e \U000e0001 \ufffd \x1b \n"
	in, err := json.Marshal(text)
	must.Succeed(t, err)
	out := terminal.JSON(in)
	if want := `"a ö \u009b2J \u007f \u202e \udb40\udc01 ` + "\ufffd" + ` \u001b \n"`; string(out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
	var again string
	if err := json.Unmarshal(out, &again); err != nil || again != text {
		t.Errorf("the JSON has the text %q, %v, want %q", again, err, text)
	}
	if indented := "{\n  \"a\": 1\n}\n"; string(terminal.JSON([]byte(indented))) != indented {
		t.Error("the line ends of JSON are escaped")
	}
}

func TestCellsOfARowAreEscaped(t *testing.T) {
	if got, want := terminal.Row("a\tb", 7, time.Second), "a\\tb\t7\t1s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestColumnsAreAligned(t *testing.T) {
	rows := []string{"RULE\tLIMIT\t", "user_id\t5\t"}
	for flags, want := range map[uint][]string{
		0:                    {"RULE     LIMIT", "user_id  5"},
		tabwriter.AlignRight: {"     RULE  LIMIT", "  user_id      5"},
	} {
		if got := terminal.Columns(rows, flags); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
