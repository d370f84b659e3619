package rulesfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Fault is a mistake in a file, certain or probable.
type Fault struct {
	File         string
	Line, Column int    // from 1; a column is a character
	ID           string // names the kind: a section of docs/lint.md
	Message      string // what is wrong, on one line
	Remedy       string // what to write or do instead, on one line; may be empty
}

// SyntaxFault returns the fault for an error of the YAML library, in a file of any grammar.
func SyntaxFault(f File, err error) Fault {
	m := syntaxMistake(f.Data, err)
	return Fault{File: f.Name, Line: m.line, Column: m.column, ID: syntax, Message: m.message, Remedy: m.remedy}
}

// String returns "file:line:column: message: remedy".
func (f Fault) String() string {
	text := fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
	if f.Remedy != "" {
		text += ": " + f.Remedy
	}
	return text
}

// Faults are the faults of a set of files. [Parse] returns them as its error.
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
	slices.SortFunc(fs, Fault.compare)
}

func (f Fault) compare(other Fault) int {
	return cmp.Or(strings.Compare(f.File, other.File), cmp.Compare(f.Line, other.Line), cmp.Compare(f.Column, other.Column),
		strings.Compare(f.Message, other.Message))
}
