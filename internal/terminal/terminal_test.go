package terminal_test

import (
	"slices"
	"testing"
	"text/tabwriter"
	"time"

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
