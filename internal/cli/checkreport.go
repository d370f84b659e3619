package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// Severities of a diagnostic.
const (
	fault   = "fault"
	warning = "warning"
)

// maxPrinted bounds the diagnostics printed as text or annotations.
const maxPrinted = 100

// A diagnostic is a fault or a warning. Its JSON is documented in docs/lint.md.
type diagnostic struct {
	File     string `json:"file"`   // "" for a setting
	Line     int    `json:"line"`   // from 1; 0 if unknown
	Column   int    `json:"column"` // from 1, in characters; 0 if unknown
	Severity string `json:"severity"`
	ID       string `json:"id"`
	Message  string `json:"message"`
	Hint     string `json:"hint"`    // what to write instead; may be ""
	Excerpt  string `json:"excerpt"` // the line in the file, cut if it is long; may be ""

	caret string // spaces and tabs as wide as the excerpt before the column
}

// A checkReport collects diagnostics.
type checkReport struct {
	strict      bool // a warning fails the check
	diagnostics []diagnostic
	results     []string            // a line for each part without a fault
	lines       map[string][][]byte // each file's lines
}

func (r *checkReport) add(f diagnostic) { r.diagnostics = append(r.diagnostics, f) }

func (r *checkReport) addTexts(files []rulesfile.File) {
	for _, f := range files {
		r.lines[f.Name] = bytes.Split(rulesfile.UTF8(f.Data), []byte("\n"))
	}
}

// addError adds the faults in err, or err itself.
func (r *checkReport) addError(err error) {
	faults, ok := errors.AsType[rulesfile.Faults](err)
	if !ok {
		r.add(diagnostic{Severity: fault, ID: "unreadable", Message: err.Error()})
		return
	}
	for _, f := range faults {
		r.addAt(f, fault)
	}
}

// addAt adds a fault or a warning of a file.
func (r *checkReport) addAt(d rulesfile.Diagnostic, severity string) {
	found := diagnostic{File: d.File, Line: d.Line, Column: d.Column, Severity: severity, ID: d.ID, Message: d.Message, Hint: d.Remedy}
	if lines := r.lines[d.File]; d.Line > 0 && d.Line <= len(lines) {
		found.Excerpt, found.caret = excerpt(lines[d.Line-1], d.Column)
	}
	r.add(found)
}

// fails reports whether there is a fault, or with strict a warning.
func (r *checkReport) fails() bool {
	return slices.ContainsFunc(r.diagnostics, func(f diagnostic) bool { return r.strict || f.Severity == fault })
}

func (r *checkReport) print(streams Streams, format string) error {
	if format == "json" {
		return printJSON(streams.Out, r.diagnostics)
	}
	out := streams.Err
	if format == "github" {
		out = streams.Out
	}
	for i, f := range r.diagnostics {
		if i == maxPrinted {
			fmt.Fprintf(streams.Err, "%d more\n", len(r.diagnostics)-i)
			break
		}
		line := r.text(f)
		if format == "github" {
			line = f.annotation()
		}
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
	}
	for _, result := range r.results {
		if _, err := fmt.Fprintln(streams.Out, result); err != nil {
			return err
		}
	}
	return nil
}

// text formats f for a terminal: position, message, the line with a caret, and the hint.
func (r *checkReport) text(f diagnostic) string {
	if f.Line == 0 {
		if f.Severity == warning && !r.strict {
			return "weir: warning: " + terminal.PrintableLines(f.Message) + "\n"
		}
		return "weir: " + terminal.PrintableLines(f.Message) + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s: %s [%s]\n", terminal.Printable(f.File), f.Line, f.Column, f.Severity, terminal.Printable(f.Message), f.ID)
	margin := strings.Repeat(" ", len(fmt.Sprint(f.Line)))
	if f.Excerpt != "" {
		fmt.Fprintf(&b, "  %d | %s\n  %s | %s^\n", f.Line, f.Excerpt, margin, f.caret)
	}
	if f.Hint != "" {
		fmt.Fprintf(&b, "  %s = %s\n", margin, terminal.Printable(f.Hint))
	}
	return b.String()
}

var (
	annotationText = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationKey  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// annotation formats f as a workflow command of GitHub Actions.
func (f diagnostic) annotation() string {
	command, at := "error", ""
	if f.Severity == warning {
		command = "warning"
	}
	if f.Line > 0 {
		at = fmt.Sprintf("file=%s,line=%d,col=%d,", annotationKey.Replace(f.File), f.Line, f.Column)
	}
	message := f.Message
	if f.Hint != "" {
		message += "\n" + f.Hint
	}
	return fmt.Sprintf("::%s %stitle=%s::%s\n", command, at, annotationKey.Replace(f.ID), annotationText.Replace(message))
}
