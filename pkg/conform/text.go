package conform

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes a result as lines: the outcome and the id, and below them what was observed and why it failed.
func (r *Result) WriteText(to io.Writer) error {
	var b strings.Builder
	outcome := map[Outcome]string{Pass: "pass", Fail: "FAIL", Skipped: "skip", Observation: "note"}[r.Outcome]
	fmt.Fprintf(&b, "%s  %-36s %s\n", outcome, r.ID, r.Asks)
	if r.Reason != "" {
		fmt.Fprintf(&b, "      %s\n", r.Reason)
	}
	for _, text := range r.Observations {
		fmt.Fprintf(&b, "      %s\n", text)
	}
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "      fault:    %s\n", e.Fault)
		for _, line := range [][2]string{{"request: ", e.Request}, {"answer:  ", e.Answer}, {"expected:", e.Expected}} {
			if line[1] != "" {
				fmt.Fprintf(&b, "      %s %s\n", line[0], line[1])
			}
		}
		for _, line := range e.History {
			fmt.Fprintf(&b, "        %s\n", line)
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// Summary returns the numbers of a report as a line.
func (r *Report) Summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped, %d observed, in %.1f s (run %s of %s)",
		r.Passed, r.Failed, r.Skipped, r.Observed, r.Seconds, r.RunID, r.Target)
}
