package rulesfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Fault is a mistake in a file, or a probable one.
type Fault struct {
	File         string
	Line, Column int    // from 1
	Message      string // what is wrong, on one line
	Remedy       string // what to write or do instead, on one line; may be empty
}

// String returns "file:line:column: message: remedy".
func (f Fault) String() string {
	text := fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
	if f.Remedy != "" {
		text += ": " + f.Remedy
	}
	return text
}

// Faults are the mistakes in a set of files. [Parse] returns them as its error.
type Faults []Fault

// Error returns one line for each fault, sorted by file, line and column.
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
