// Package cli contains the commands of weir except serve. A command is a struct with kong's tags
// and a method Run, which calls another package and prints its result.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"regexp/syntax"
	"strings"
	"syscall"

	"github.com/charmbracelet/x/term"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// An Exit is an exit code, returned as the error of a command that has already printed everything.
type Exit int

// Exit codes. Each command documents what Failed means for it.
const (
	Failed Exit = 1
	Error  Exit = 2
)

// Error implements error. The program does not print it.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, v any) error { return writeJSON(w, v, "  ") }

// printLine prints a value as one line of JSON.
func printLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

func writeJSON(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(terminal.JSON(text.Bytes()))
	return err
}

// printResult prints a value as JSON if the output is json, and its text otherwise.
func printResult(w io.Writer, output string, v any, text func() string) error {
	if output == "json" {
		return printJSON(w, v)
	}
	_, err := io.WriteString(w, text())
	return err
}

// ExitCode prints the error of a command, unless it is an [Exit], and returns the exit code: 0
// without an error, and [Error] for an error that names no other.
func ExitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[Exit](err); ok {
		return int(exit)
	}
	printError(err, stderr)
	if _, ok := errors.AsType[failedError](err); ok {
		return int(Failed)
	}
	return int(Error)
}

// A failedError is an error to print whose exit code is [Failed].
type failedError struct{ error }

// Unwrap returns the error.
func (e failedError) Unwrap() error { return e.error }

// printError prints an error, prefixed by the program's name or, for faults of rules, by file and
// line.
func printError(err error, stderr io.Writer) {
	if _, ok := errors.AsType[rulesfile.Faults](err); ok {
		printEscaped(stderr, err)
	} else {
		printEscaped(stderr, "weir:", ReadError(err))
	}
}

// printEscaped is [fmt.Fprintln] with escaped control characters, for values from untrusted files.
func printEscaped(to io.Writer, values ...any) {
	fmt.Fprintln(to, terminal.PrintableLines(strings.TrimSuffix(fmt.Sprintln(values...), "\n")))
}

// warn prints a warning as one line, with escaped control characters.
func warn(to io.Writer, format string, args ...any) {
	fmt.Fprintln(to, terminal.Printable("weir: warning: "+fmt.Sprintf(format, args...)))
}

// untilSignal returns a context that ends at SIGINT or SIGTERM.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// compile parses the regular expression of a flag.
func compile(flag, text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if fault, ok := errors.AsType[*syntax.Error](err); ok {
		err = fmt.Errorf("%s: %q is not a regular expression: %s", flag, text, fault.Code)
	}
	return re, err
}

// colored reports whether an output is a terminal and NO_COLOR is not set.
func colored(out io.Writer) bool {
	return isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// isTerminal reports whether a stream is a terminal. Tests replace it.
var isTerminal = func(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}
