// Package cli contains the commands of weir that do not serve. A command is a struct with the tags of kong and a method Run, which
// calls a package under pkg and prints what it returns.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"regexp/syntax"
	"strings"
	"syscall"

	"github.com/weir-rls/weir/internal/terminal"
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

// printFault prints an error with the name of the program. Faults of rules begin with their file and line instead. The result is [Fault].
func printFault(err error, to Streams) error {
	if errors.As(err, new(rulesfile.Faults)) {
		printEscaped(to.Err, err)
		return Fault
	}
	printEscaped(to.Err, "weir:", ReadError(err))
	return Fault
}

// printEscaped prints values as [fmt.Fprintln] does, with every control character as an escape: the values may contain text of a stranger's file.
func printEscaped(to io.Writer, values ...any) {
	fmt.Fprintln(to, terminal.PrintableLines(strings.TrimSuffix(fmt.Sprintln(values...), "\n")))
}

// A fileError is the error of a file, as a sentence with a remedy.
type fileError struct {
	text string
	err  error
}

func (e *fileError) Error() string { return e.text }
func (e *fileError) Unwrap() error { return e.err }

// ReadError returns the error of a file or folder that a command cannot read, with a remedy. It returns other errors, and nil, unchanged.
func ReadError(err error) error { return withRemedy(err, "read", "correct the path") }

// writeError is [ReadError] for a file that a command cannot write.
func writeError(err error) error {
	return withRemedy(err, "write", "create the folder, or correct the path")
}

func withRemedy(err error, verb, correct string) error {
	var done *fileError
	if err == nil || errors.As(err, &done) {
		return err
	}
	text := err.Error()
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		// The name of the system call says nothing to a user.
		text = strings.Replace(text, path.Error(), fmt.Sprintf("%s %s: %v", verb, path.Path, path.Err), 1)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		text += ": " + correct
	case errors.Is(err, fs.ErrPermission):
		text += ": run weir as a user that may " + verb + " it"
	case errors.Is(err, syscall.EISDIR):
		text += ": name a file"
	default:
		return err
	}
	return &fileError{text, err}
}

// compile returns the regular expression of a flag.
func compile(flag, text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if fault := (*syntax.Error)(nil); errors.As(err, &fault) {
		err = fmt.Errorf("%s: %q is not a regular expression: %s", flag, text, fault.Code)
	}
	return re, err
}
