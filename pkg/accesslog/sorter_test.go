package accesslog

import (
	"fmt"
	"strings"
	"testing"
)

// A log of any size is sorted with few open files, and lines of equal times stay in their order.
func TestSorterKeepsFewFilesOpen(t *testing.T) {
	const lines = 5 * maxRuns
	s := sorter{max: 1, dir: t.TempDir()} // so each line but the last becomes a run
	for i := range lines {
		if err := s.add(int64(i%3), fmt.Appendf(nil, "%d %03d\n", i%3, i)); err != nil {
			t.Fatal(err)
		}
		if len(s.runs) >= maxRuns {
			t.Fatalf("%d files are open after %d lines, want less than %d", len(s.runs), i+1, maxRuns)
		}
	}
	var got, want strings.Builder
	if err := s.write(&got); err != nil {
		t.Fatal(err)
	}
	for at := range 3 {
		for i := at; i < lines; i += 3 {
			fmt.Fprintf(&want, "%d %03d\n", at, i)
		}
	}
	if got.String() != want.String() {
		t.Errorf("the lines are in another order:\n%s", got.String())
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}
