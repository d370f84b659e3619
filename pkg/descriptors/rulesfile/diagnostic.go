package rulesfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Diagnostic describes a mistake in a file. A fault, which is a certain mistake, stops the file
// from loading; a warning does not.
type Diagnostic struct {
	File         string
	Line, Column int    // from 1; a column is a character
	ID           string // names the kind: a section of docs/lint.md
	Message      string // what is wrong, on one line
	Remedy       string // what to write or do instead, on one line; may be empty
}

// SyntaxFault returns the fault for an error of the YAML library, in a file of any grammar.
func SyntaxFault(f File, err error) Diagnostic {
	d := syntaxMistake(f.Data, err)
	d.File = f.Name
	return d
}

// String returns "file:line:column: message: remedy".
func (d Diagnostic) String() string {
	text := fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, d.Message)
	if d.Remedy != "" {
		text += ": " + d.Remedy
	}
	return text
}

// compare orders by file, line and column.
func (d Diagnostic) compare(other Diagnostic) int {
	return cmp.Or(strings.Compare(d.File, other.File), cmp.Compare(d.Line, other.Line), cmp.Compare(d.Column, other.Column),
		strings.Compare(d.Message, other.Message))
}

// Faults are the faults of a set of files, sorted by file, line and column. [Parse] returns them as
// its error.
type Faults []Diagnostic

func sortedFaults(all []Diagnostic) Faults {
	slices.SortFunc(all, Diagnostic.compare)
	return all
}

// Error returns one line for each fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}
