// Package cli contains the commands of weir that do not serve. A command is a struct with the tags of kong and a method Run, which
// calls a package under pkg and prints what it returns.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
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

// printFault prints an error with the name of the program. Faults of rules begin with their file and line instead.
func printFault(to io.Writer, err error) {
	if errors.As(err, new(rulesfile.Faults)) {
		fmt.Fprintln(to, err)
		return
	}
	fmt.Fprintln(to, "weir:", err)
}

// unreadable returns the error of a file or folder that a command cannot read, with a remedy. It returns other errors, and nil, unchanged.
func unreadable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("read %s: %w", path.Path, path.Err) // without the name of the system call
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: correct the path", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run weir as a user that may read it", err)
	}
	return err
}
