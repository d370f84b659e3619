// Package cli contains the commands of weir that do not serve. A command is a struct with the tags of kong and a method Run, which
// calls a package under pkg and prints what it returns.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
)

// Streams are the inputs and outputs of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// An Exit is the error of a command that has printed or logged everything that it has to report. Its value is the exit code.
type Exit int

// The exit codes. Each command documents the one that it uses for a result which is no success and no fault.
const (
	Failed Exit = 1
	Fault  Exit = 2
)

// Error implements error. The program prints it for no Exit.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
