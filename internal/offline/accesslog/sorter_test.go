package accesslog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// line is the format of a line with a second and a domain.
const line = `{"t":"2026-11-22T10:00:%02d.000000Z","domain":"%03d"}` + "\n"

// A log of any size is sorted with few open files, and lines of equal times stay in their order.
func TestSorterKeepsFewFilesOpen(t *testing.T) {
	const lines = 5 * maxRuns
	s := sorter{max: 1} // so each line but the last becomes a run
	for i := range lines {
		must.Succeed(t, s.add(fmt.Appendf(nil, line, i%3, i)))
		if len(s.runs) >= maxRuns {
			t.Fatalf("%d files are open after %d lines, want less than %d", len(s.runs), i+1, maxRuns)
		}
	}
	var got, want strings.Builder
	must.Succeed(t, s.write(&got))
	for at := range 3 {
		for i := at; i < lines; i += 3 {
			fmt.Fprintf(&want, line, at, i)
		}
	}
	if got.String() != want.String() {
		t.Errorf("the lines are in another order:\n%s, want %s", got.String(), want.String())
	}
	must.Succeed(t, s.close())
}

// A run that ends within a record is an error, not the end of the run.
func TestTruncatedSortRunIsAnError(t *testing.T) {
	s := sorter{max: 1}
	for i := range 2 {
		must.Succeed(t, s.add(fmt.Appendf(nil, line, 1, i)))
	}
	whole := size(t, s.runs[0])
	for cut := whole - 1; cut > 0; cut-- {
		must.Succeed(t, s.runs[0].Truncate(cut))
		if err := s.write(io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v, want %v", cut, whole, err, io.ErrUnexpectedEOF)
		}
	}
	must.Succeed(t, s.close())
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	must.Succeed(t, err)
	return info.Size()
}
