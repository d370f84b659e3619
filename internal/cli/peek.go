package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/admin/api"
)

// Peek prints the state of a key in a running server. It charges nothing.
type Peek struct {
	AdminServer `embed:""`
	adminKey    `embed:""`
	Output      string `short:"o" enum:"text,json" default:"text" help:"The format of the output: text or json."`
}

// Help returns the text after the flags in the command's help.
func (*Peek) Help() string {
	return `Examples:
  weir peek user_id=42
  weir peek user_id=42,action=login -o json

The exit code is 0 if the descriptor has a limit, 1 if the server has no limit for it, and 2 after an error.`
}

// Validate reports a missing descriptor.
func (p *Peek) Validate() error {
	if p.Descriptor == "" {
		return errors.New("needs a descriptor, for example: weir peek user_id=42")
	}
	return nil
}

// Run prints the limits of the descriptor with their states. The exit code is [Failed] if the
// descriptor has no limit.
func (p *Peek) Run(ctx context.Context, streams Streams) error {
	return failedIfNotFound(p.run(ctx, streams))
}

func (p *Peek) run(ctx context.Context, streams Streams) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	key, err := p.request(ctx, c)
	if err != nil {
		return err
	}
	state, err := c.Peek(ctx, key)
	if err != nil {
		return err
	}
	err = printResult(streams.Out, p.Output, state, func() string { return keyStateText(&state) })
	if err == nil && len(state.Limits) == 0 && !state.Unlimited {
		fmt.Fprintln(streams.Err, "weir: no limit applies to this descriptor: "+cmp.Or(terminal.Printable(state.Hint), "weir explain shows why"))
		return Failed
	}
	return err
}

func keyStateText(state *api.KeyState) string {
	switch {
	case len(state.Limits) > 0:
	case state.Unlimited:
		return "unlimited: the rule of this descriptor counts nothing\n"
	default:
		return ""
	}
	rows := []string{"RULE\tLIMIT\tALGORITHM\tUSED\tOF\tREMAINING\tRETRY AFTER\tRESET AFTER\tPENALTY\tMODE\tSOURCE"}
	for _, l := range state.Limits {
		s := l.State.Rounded()
		rows = append(rows, rowOf(l.Rule, l.Name, l.Algorithm, s.Used, l.RequestsPerUnit, s.Remaining, s.RetryAfter, s.ResetAfter,
			s.Penalty, l.Mode, l.Source))
	}
	return terminal.Table(rows...)
}
