package rulesfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Fault is something wrong, or suspicious, at a place in a file.
type Fault struct {
	File         string
	Line, Column int // from 1
	Message      string
}

// String is "file:line:column: message".
func (f Fault) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

// Faults are all that is wrong with a set of files. It is the error of [Parse], never empty there.
type Faults []Fault

// Error tells every fault on a line of its own, by file, line and column.
func (fs Faults) Error() string {
	sorted := slices.Clone(fs)
	sorted.sort()
	lines := make([]string, len(sorted))
	for i, f := range sorted {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func (fs Faults) sort() {
	slices.SortFunc(fs, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			strings.Compare(a.Message, b.Message))
	})
}
