package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/conform"
)

// Conform tests a rate limit service for Envoy from outside and grades it.
type Conform struct {
	Rules      bool     `help:"Print the rules that the service must load, and exit."`
	List       bool     `help:"Print the checks, and exit."`
	Algorithms []string `default:"fixed_window" placeholder:"NAME" help:"The algorithms whose rules the service has loaded: fixed_window, sliding_log, funnel. Default: fixed_window, the algorithm of envoyproxy/ratelimit."`
	Only       string   `placeholder:"REGEX" help:"Run only the checks whose ids match."`
	Output     string   `short:"o" enum:"text,json" default:"text" help:"The format of the output: text or json."`

	Timeout     time.Duration `default:"0s" placeholder:"DURATION" help:"The timeout of the whole run. Default: 60s, and 90s more with --minute-turn."`
	CallTimeout time.Duration `default:"5s" placeholder:"DURATION" help:"The timeout of a call. Default: 5s."`
	Skew        time.Duration `default:"10ms" placeholder:"DURATION" help:"The largest difference between the clocks of the service's replicas. Default: 10ms."`
	MinuteTurn  bool          `help:"Also test the boundary of a window of one minute, which takes up to 65s more."`
	AllowErrors bool          `help:"Accept errors under concurrency, for a service on a faulty network. A failed call may or may not have been charged."`

	TLS        bool   `name:"tls" help:"Connect with TLS."`
	CA         string `name:"ca" placeholder:"FILE" help:"The CA that signs the service's certificate, in PEM. Default: the CAs of the system."`
	Cert       string `placeholder:"FILE" help:"A client certificate, in PEM."`
	Key        string `placeholder:"FILE" help:"The key of the client certificate, in PEM."`
	ServerName string `placeholder:"NAME" help:"The name in the service's certificate. Default: the host in the address."`

	Target string `arg:"" optional:"" name:"host:port" help:"The gRPC address of the service under test."`
}

// Help returns examples, what the checks charge, and the exit codes.
func (*Conform) Help() string {
	return `Examples:
  weir conform --rules > conform.yaml       then load the file into the service
  weir conform 127.0.0.1:8081
  weir conform --algorithms=fixed_window,sliding_log,funnel -o json 127.0.0.1:8081
  weir conform --only '^counting' --allow-errors 127.0.0.1:8081

The checks charge only keys of their own, so they can run against a service that others use. The checks under crash send
requests that crash some services, and run last.

The exit code is 0 if no check failed, 1 if one failed, and 2 after an error, such as a service without the rules.`
}

// Validate reports missing and conflicting arguments.
func (c *Conform) Validate() error {
	switch {
	case c.Rules && c.List:
		return errors.New("--rules cannot be used with --list: remove one of them")
	case (c.Rules || c.List) && c.Target != "":
		return errors.New("--rules and --list cannot be used with an address: remove it")
	case c.Target == "" && !c.Rules && !c.List:
		return errors.New("needs the address of the service, for example: weir conform 127.0.0.1:8081")
	case !c.TLS && (c.CA != "" || c.Cert != "" || c.Key != "" || c.ServerName != ""):
		return errors.New("--ca, --cert, --key and --server-name need --tls")
	case c.Timeout < 0 || c.CallTimeout <= 0 || c.Skew <= 0:
		return errors.New("--call-timeout and --skew must be above 0, such as 1ms, and --timeout at least 0")
	}
	return nil
}

// Run prints the report. It returns [Failed] if a check failed.
func (c *Conform) Run(ctx context.Context, streams Streams) error {
	if c.Rules || c.List {
		return c.print(streams.Out)
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	var written error
	if c.Output == "text" {
		options.Done = func(r conform.Result) {
			_, err := io.WriteString(streams.Out, terminal.PrintableLines(r.Text()))
			written = errors.Join(written, err)
		}
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	report, err := conform.Run(ctx, options)
	if len(report.Checks) > 0 {
		written = errors.Join(written, printResult(streams.Out, c.Output, &report, func() string { return report.Summary() + "\n" }))
	}
	err = errors.Join(err, written)
	if err == nil && report.Failed > 0 {
		return Failed
	}
	return err
}

// print prints the rules, or the checks.
func (c *Conform) print(out io.Writer) error {
	if c.Rules {
		text, err := conform.Rules(c.Algorithms)
		if err == nil {
			_, err = io.WriteString(out, text)
		}
		return err
	}
	checks, err := conform.Checks(c.Algorithms)
	if err != nil {
		return err
	}
	return printResult(out, c.Output, checks, func() string {
		var rows []string
		for _, check := range checks {
			rows = append(rows, terminal.Row(check.ID, check.Asks))
		}
		return terminal.Table(rows...)
	})
}

func (c *Conform) options() (conform.Options, error) {
	o := conform.Options{
		Target: c.Target, Algorithms: c.Algorithms, Timeout: c.Timeout, CallTimeout: c.CallTimeout, Skew: c.Skew,
		MinuteTurn: c.MinuteTurn, AllowErrors: c.AllowErrors,
	}
	var err error
	if c.Only != "" {
		o.Only, err = compile("--only", c.Only)
		if err != nil {
			return o, err
		}
	}
	if c.TLS {
		o.TLS, err = (tlsfiles.Client{Cert: c.Cert, Key: c.Key, CA: c.CA, ServerName: c.ServerName}).Config()
		if err != nil {
			return o, err
		}
	}
	return o, nil
}
