package lines_test

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/lines"
	"github.com/weir-rls/weir/internal/must"
)

// A byte order mark at the beginning, as editors on Windows write it, is not part of the first
// line.
func TestLinesBeginAfterByteOrderMark(t *testing.T) {
	r := lines.NewReader(bufio.NewReader(strings.NewReader("\ufeffa\n\ufeffb")), 8)
	for _, want := range []string{"a\n", "\ufeffb"} {
		if line, _, err := r.Next(); string(line) != want || err != nil {
			t.Errorf("line %d is %q, %v: want %q", r.Number, line, err, want)
		}
	}
}

// A line that is too long has a number, and the line behind it is whole. The last line needs no
// end.
func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 40)
	r := lines.NewReader(bufio.NewReaderSize(strings.NewReader("a\n"+long+"\n\n1234567\n12345678\nb"), 16), 8)
	var got []string
	for {
		line, tooLong, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Succeed(t, err)
		text := string(line)
		if tooLong {
			text += "too long"
		}
		got = append(got, text)
	}
	if want := []string{"a\n", "too long", "\n", "1234567\n", "too long", "b"}; !slices.Equal(got, want) || r.Number != 6 {
		t.Errorf("got %q and %d lines, want %q", got, r.Number, want)
	}
}
