package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/admin/client"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// Tail prints the decisions of a running server as they are made.
type Tail struct {
	AdminServer
	Domain  string  `placeholder:"NAME" help:"Only decisions of this domain."`
	Rule    string  `placeholder:"PATH" help:"Only decisions of this rule, by its path, such as user_id.action=login."`
	Outcome string  `enum:",allowed,denied,undecided" default:"" placeholder:"OUTCOME" help:"Only decisions with this outcome: allowed, denied or undecided."`
	Entry   string  `placeholder:"KEY[=VALUE]" help:"Only descriptors with this entry."`
	Sample  float64 `default:"1" placeholder:"FRACTION" help:"The fraction of the keys, above 0 and at most 1. All decisions of a selected key are printed."`
	Output  string  `short:"o" enum:"text,json" default:"text" help:"The format of the output: text, or json with one object per line."`
}

// Help returns the text after the flags in the command's help.
func (*Tail) Help() string {
	return `Examples:
  weir tail --outcome denied --entry user_id=42
  weir tail --rule user_id.action=login --sample 0.1

Ctrl-C stops the command. The exit code is 0, or 2 after an error.`
}

// Validate reports values that have no meaning.
func (t *Tail) Validate() error {
	if !(t.Sample > 0 && t.Sample <= 1) {
		return errors.New("--sample must be above 0 and at most 1")
	}
	return nil
}

// Run prints decisions until a signal. If the server is unreachable, it connects again. It returns
// an error if the server refuses the call.
func (t *Tail) Run(ctx context.Context, streams Streams) error {
	conn, err := t.client()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	t.warnUnknown(ctx, conn, streams)
	filter, err := t.filter()
	if err != nil {
		return err
	}
	for failures := 0; ; failures++ {
		var unwritten error
		err := conn.Decisions(ctx, filter, func(d api.Decision) error {
			failures = 0
			unwritten = t.write(streams.Out, &d)
			return unwritten
		}, func(n int64) error {
			fmt.Fprintf(streams.Err, "weir: %d decisions dropped since the stream began, because they come too fast: choose a smaller --sample\n", n)
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case unwritten != nil:
			return unwritten
		case isRejected(err):
			return err
		}
		wait := retries.Wait(failures)
		printRetry(streams.Err, err, wait)
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// filter returns the filter that the flags describe.
func (t *Tail) filter() (api.Filter, error) {
	filter := api.Filter{Domain: t.Domain, Rule: t.Rule, Outcome: t.Outcome, Sample: t.Sample}
	if t.Entry == "" {
		return filter, nil
	}
	path, err := descriptors.ParsePath(t.Entry)
	if err == nil && len(path) != 1 {
		err = errors.New("want one entry, such as user_id or user_id=42")
	}
	if err != nil {
		return filter, fmt.Errorf("--entry: %w", err)
	}
	filter.Entry = explain.Entry{path[0].Key, path[0].Value}
	return filter, nil
}

// warnUnknown warns if the server has no such domain, or no rule of the path. It does not fail,
// because the rules may change later.
func (t *Tail) warnUnknown(ctx context.Context, conn *client.Client, streams Streams) {
	if t.Rule == "" && t.Domain == "" {
		return
	}
	rules, err := conn.Rules(ctx, t.Domain, maxRules, 0)
	switch {
	case client.IsNotFound(err):
		warn(streams.Err, "%v", err)
		return
	case err != nil || t.Rule == "" || len(rules) == maxRules: // the stream reports the error; of more rules some are unknown
		return
	}
	var paths []string
	for _, r := range rules {
		if r.Path == t.Rule {
			return
		}
		paths = append(paths, r.Path)
	}
	hint := ""
	if nearest := spelling.Nearest(t.Rule, paths); nearest != "" {
		hint = fmt.Sprintf(": did you mean %s?", nearest)
	}
	warn(streams.Err, "no rule has the path %s now%s", t.Rule, hint)
}

// maxRules is the most rules that the server returns in one call.
const maxRules = 10_000

func (t *Tail) write(w io.Writer, d *api.Decision) error {
	if t.Output == "json" {
		return printLine(w, d)
	}
	_, err := fmt.Fprintln(w, decisionText(d))
	return err
}

// decisionText returns a decision as a line.
func decisionText(d *api.Decision) string {
	outcome := d.Outcome
	if outcome == "denied" && !d.Enforced {
		outcome = "denied(not enforced)" // shadow mode or quota mode let the request pass
	}
	parts := []string{d.Time.Local().Format("15:04:05.000"), fmt.Sprintf("%-9s", terminal.Printable(outcome)),
		terminal.Printable(d.Domain), keyText(d.Key, d.KeyHash)}
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+terminal.Printable(value))
		}
	}
	add("rule", d.Rule)
	add("limit", d.Limit)
	add("hits", strconv.FormatInt(d.Hits, 10))
	if d.Limit != "" {
		add("used", strconv.FormatInt(d.Used, 10))
		add("remaining", strconv.FormatInt(d.Remaining, 10))
	}
	if d.Outcome == "denied" {
		add("retry_after", explain.RoundUp(d.RetryAfter))
	}
	add("reason", d.Reason)
	if d.By != "store" {
		add("by", d.By)
	}
	return strings.Join(parts, " ")
}
