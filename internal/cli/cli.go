// Package cli contains the commands of weir that do not serve. A command is a struct with the tags of kong and a method Run, which
// calls a package under pkg and prints what it returns.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"regexp/syntax"
	"strings"

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

// compile returns the regular expression of a flag.
func compile(flag, text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if fault := (*syntax.Error)(nil); errors.As(err, &fault) {
		err = fmt.Errorf("%s: %q is not a regular expression: %s", flag, text, fault.Code)
	}
	return re, err
}

// colored reports whether an output is a terminal that shows colors. NO_COLOR turns them off.
func colored(out io.Writer) bool {
	return isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// isTerminal reports whether a stream is a device of characters, as a terminal is. It is a variable for tests.
var isTerminal = func(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
