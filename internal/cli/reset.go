package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/admin/client"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// Reset resets a key in a running server and all its replicas, or every key that contains an entry.
type Reset struct {
	AdminServer `embed:""`
	adminKey    `embed:""`
	Entry       string `placeholder:"KEY=VALUE" help:"Reset every key that contains this entry, instead of one key."`
	Cursor      string `help:"With --entry: continue where an interrupted command stopped."`
	Yes         bool   `short:"y" help:"With --entry: do not ask for confirmation."`
	Output      string `short:"o" enum:"text,json" default:"text" help:"The format of the output: text or json."`
}

// Help returns the text after the flags in the command's help.
func (*Reset) Help() string {
	return `Examples:
  weir reset user_id=42,action=login
  weir reset --entry user_id=42

The exit code is 0 if a key was reset, 1 if there was no key to reset or you did not confirm, and 2 after an error.`
}

// Validate reports arguments that have no meaning together.
func (r *Reset) Validate() error {
	switch {
	case r.Descriptor != "" && r.Entry != "":
		return errors.New("--entry cannot be used with a descriptor: remove one of them")
	case r.Descriptor == "" && r.Entry == "":
		return errors.New("needs a descriptor, for example: weir reset user_id=42,action=login, or every key with one entry: " +
			"weir reset --entry user_id=42")
	case r.Entry == "" && r.Cursor != "":
		return errors.New("--cursor needs --entry")
	}
	return nil
}

// Run resets the key. The exit code is [Failed] if nothing is stored for the key, or the user does
// not confirm.
func (r *Reset) Run(ctx context.Context, streams Streams) error {
	return failedIfNotFound(r.run(ctx, streams))
}

func (r *Reset) run(ctx context.Context, streams Streams) error {
	c, err := r.client()
	if err != nil {
		return err
	}
	if r.Entry != "" {
		return r.byEntry(ctx, c, streams)
	}
	key, err := r.request(ctx, c)
	if err != nil {
		return err
	}
	done, err := c.Reset(ctx, key)
	if err != nil {
		return err
	}
	if !done.Notified {
		warnReplicas(streams.Err)
	}
	return printResult(streams.Out, r.Output, done, func() string {
		rows := []string{"RULE\tLIMIT\tRESULT\tSOURCE"}
		for _, l := range done.Limits {
			result := "was not in use"
			if l.Reset {
				result = "reset"
			}
			rows = append(rows, rowOf(l.Rule, l.Name, result, l.Source))
		}
		return terminal.Table(rows...)
	})
}

// warnReplicas warns that a reset did not reach all replicas.
func warnReplicas(errs io.Writer) {
	warn(errs, "other replicas were not fully notified: they may deny the key until DENY_CACHE_MAX has passed. Repeat the reset")
}

// byEntry makes a whole pass, and prints its result.
func (r *Reset) byEntry(ctx context.Context, c *client.Client, streams Streams) error {
	entry, err := parseEntry(r.Entry)
	if err != nil {
		return err
	}
	domain, err := r.domain(ctx, c)
	if err != nil {
		return err
	}
	if err := r.confirm(domain, streams); err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	request := api.ResetByEntryRequest{Domain: domain, Entry: explain.Entry{entry.Key, entry.Value}, Cursor: r.Cursor}
	sum, err := makePass(ctx, c, request, streams.Err)
	if !sum.Notified {
		warnReplicas(streams.Err)
	}
	if err != nil {
		return err
	}
	err = printResult(streams.Out, r.Output, sum, func() string { return fmt.Sprintf("scanned %d, reset %d\n", sum.Scanned, sum.Reset) })
	if err == nil && sum.Reset == 0 {
		fmt.Fprintf(streams.Err, "weir: no key in use contains the entry %s: check its key, its value and the domain\n", terminal.Printable(r.Entry))
		return Failed
	}
	return err
}

// makePass makes all steps of a pass, and returns their sum. It prints the progress to errs. If a
// step after the first fails, it prints the cursor from which the next pass may continue.
func makePass(ctx context.Context, c *client.Client, request api.ResetByEntryRequest, errs io.Writer) (sum api.ResetByEntryResult, err error) {
	sum.Notified = true
	for !sum.Done {
		step, err := c.ResetByEntry(ctx, request)
		if err != nil {
			if sum.Cursor != "" {
				fmt.Fprintf(errs, "scanned %d, reset %d. To continue: --cursor %s\n", sum.Scanned, sum.Reset, terminal.Printable(sum.Cursor))
			}
			return sum, err
		}
		if !step.Done && (step.Cursor == "" || step.Cursor == request.Cursor) {
			return sum, errors.New("the server repeats a step of the reset, so it is not Weir or has a fault: check the address")
		}
		request.Cursor = step.Cursor
		sum = api.ResetByEntryResult{
			Scanned: sum.Scanned + step.Scanned, Reset: sum.Reset + step.Reset, Cursor: step.Cursor, Done: step.Done,
			Notified: sum.Notified && step.Notified,
		}
		if !sum.Done {
			fmt.Fprintf(errs, "scanned %d, reset %d\n", sum.Scanned, sum.Reset)
		}
	}
	return sum, nil
}

// parseEntry reads the value of --entry.
func parseEntry(text string) (descriptors.Entry, error) {
	entries, err := descriptors.ParseEntries(text)
	if err == nil && len(entries) != 1 {
		err = errors.New("want one entry, such as user_id=42")
	}
	if err != nil {
		return descriptors.Entry{}, fmt.Errorf("--entry: %w", err)
	}
	return entries[0], nil
}

// confirm asks the user. Without a terminal it returns an error.
func (r *Reset) confirm(domain string, streams Streams) error {
	if r.Yes {
		return nil
	}
	if !isTerminal(streams.In) {
		return errors.New("this resets every key with the entry: add --yes to confirm, because standard input is not a terminal")
	}
	fmt.Fprintf(streams.Err, "Reset every key of the domain %s that contains %s? [y/N] ", terminal.Printable(domain), terminal.Printable(r.Entry))
	line, err := bufio.NewReader(streams.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		fmt.Fprintln(streams.Err, "nothing was reset: add --yes to reset without a question")
		return Failed
	}
	return nil
}
