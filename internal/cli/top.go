package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/admin/client"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// Top shows the busiest or the most denied keys of a running server. In a terminal it refreshes
// them until q; into a pipe it prints one table.
type Top struct {
	AdminServer
	By       string        `enum:"hits,denied" default:"hits" help:"The order: hits, or denied for denied hits."`
	Domain   string        `placeholder:"NAME" help:"Only keys of this domain."`
	N        int           `short:"n" default:"20" placeholder:"N" help:"How many keys to show."`
	Interval time.Duration `default:"0s" placeholder:"DURATION" help:"The time between two refreshes. 0s: 2s in a terminal; otherwise print once."`
	Output   string        `short:"o" enum:"text,json" default:"text" help:"The format of the output: text, or json with one object per line."`
}

// Help returns the text after the flags in the command's help.
func (*Top) Help() string {
	return `Examples:
  weir top --by denied
  weir top --interval 10s -o json

In a terminal, h shows the busiest keys, d the most denied keys, and q quits. The exit code is 0, or 2 after an error.`
}

// Validate reports values that have no meaning.
func (t *Top) Validate() error {
	switch {
	case t.N < 1 || t.N > 1000:
		return errors.New("-n must be from 1 to 1000")
	case t.Interval != 0 && t.Interval < 100*time.Millisecond:
		return errors.New("--interval must be at least 100ms")
	}
	return nil
}

// Run prints or shows the keys. It returns an error if the server refuses the call, or, without an
// interval, does not answer.
func (t *Top) Run(ctx context.Context, streams Streams) error {
	conn, err := t.client()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if t.Output == "text" && isTerminal(streams.In) && isTerminal(streams.Out) {
		return t.show(ctx, conn, streams)
	}
	return t.print(ctx, conn, streams)
}

func (t *Top) fetch(ctx context.Context, conn *client.Client, by string) (api.Top, error) {
	return conn.Top(ctx, api.TopOrder(by), t.Domain, t.N)
}

// print prints the keys, once or at each interval. While the server cannot be reached, an interval
// is an attempt to reach it.
func (t *Top) print(ctx context.Context, conn *client.Client, streams Streams) error {
	failures := 0
	for {
		top, err := t.fetch(ctx, conn, t.By)
		wait := t.Interval
		switch {
		case ctx.Err() != nil:
			return nil
		case isRejected(err), err != nil && t.Interval == 0:
			return err
		case err != nil:
			wait = max(wait, retries.Wait(failures))
			failures++
			printRetry(streams.Err, err, wait)
		default:
			failures = 0
			if err := t.write(streams.Out, &top); err != nil {
				return err
			}
		}
		if t.Interval == 0 || backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

func (t *Top) write(w io.Writer, top *api.Top) error {
	if t.Output == "json" {
		return printLine(w, top)
	}
	now := time.Now()
	var table []string
	for _, row := range rows(top, now) {
		table = append(table, strings.Join(row[:], "\t"))
	}
	_, err := fmt.Fprintf(w, "%s\n%s", summary(top, t.By, now), terminal.Table(table...))
	return err
}

// summary describes the counts and their largest error.
func summary(top *api.Top, by string, now time.Time) string {
	what := "hits"
	if by == "denied" {
		what = "denied hits"
	}
	accuracy := "counts are exact"
	if top.Error > 0 {
		accuracy = fmt.Sprintf("counts may be up to %d too high", top.Error)
	}
	return fmt.Sprintf("%d %s in %v; %s", top.Total, what, age(top, now), accuracy)
}

func age(top *api.Top, now time.Time) time.Duration {
	return max(now.Sub(top.Since), time.Second).Round(time.Second)
}

// A row is a line of the table.
type row [6]string

var header = row{"COUNT", "ERROR", "PER_SECOND", "DOMAIN", "RULE", "KEY"}

// rows returns the table with its header.
func rows(top *api.Top, now time.Time) []row {
	all := []row{header}
	for i := range top.Keys {
		k := &top.Keys[i]
		rate := float64(k.Count) / age(top, now).Seconds()
		all = append(all, row{
			strconv.FormatInt(k.Count, 10), strconv.FormatInt(k.Error, 10), strconv.FormatFloat(rate, 'f', 1, 64),
			terminal.Printable(k.Domain), terminal.Printable(k.Rule), keyText(k.Key, k.KeyHash),
		})
	}
	return all
}

// keyText returns the entries of a key as an argument of weir peek, or the hash of the key if the
// server hashes keys.
func keyText(key []explain.Entry, hash string) string {
	if len(key) == 0 {
		return "#" + terminal.Printable(hash)
	}
	var parts []string
	for _, e := range key {
		parts = append(parts, terminal.Printable(descriptors.EntriesText([]descriptors.Entry{{Key: e[0], Value: e[1]}})))
	}
	return strings.Join(parts, ",")
}

// show shows the keys in a terminal until the user quits.
func (t *Top) show(ctx context.Context, conn *client.Client, streams Streams) error {
	shown := *t
	shown.Interval = cmp.Or(t.Interval, 2*time.Second)
	model := topModel{top: &shown, conn: conn, ctx: ctx, sortBy: t.By}
	last, err := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(streams.In), tea.WithOutput(streams.Out)).Run()
	if err != nil && !errors.Is(err, tea.ErrInterrupted) && !errors.Is(err, tea.ErrProgramKilled) {
		return fmt.Errorf("the terminal: %w", err)
	}
	if m, ok := last.(topModel); ok && isRejected(m.err) {
		return m.err
	}
	return nil
}
