// Command weir is a rate limit service for Envoy.
//
//	weir --config rules.yaml                                     serve on :8081, and /healthcheck and /metrics on :8080
//	weir check rules.yaml                                        print every fault of rules
//	weir check --settings                                        print every fault of the settings in the environment
//	weir explain --config rules.yaml user_id=42                  show which limits apply to a request, and why
//	weir test rules_test.yaml                                    run tests of rules
//	weir gen envoy --config rules.yaml --upstream shop:8080      write Envoy's configuration for rules
//	weir import limitador limits.yaml                            write rules for the limits of another rate limiter
//	weir convert --format envoy --domain ugc --descriptor 'path=%{path}' access.log     make a recording
//	weir suggest --config rules.yaml day.ndjson.zst              find limits for the traffic of a recording
//	weir simulate --config rules.yaml day.ndjson.zst             run rules over a recording, and show what they deny
//	weir diff old.yaml new.yaml --against day.ndjson.zst         compare rules over recorded requests
//	weir plan --limit 1000 --replicas 100                        plan local limits, memory and calls to Redis
//	weir peek user_id=42                                         print the state of a key in a running server
//	weir reset user_id=42                                        reset it, on all replicas
//	weir top                                                     show the busiest and the most denied keys
//	weir tail                                                    print decisions as they are made
//	weir conform 127.0.0.1:8081                                  grade any rate limit service for Envoy from outside
//	weir version
//
// weir serve --help shows the settings that most users need, and --help=all every setting. SIGTERM
// stops the server once proxies have had time to stop sending, SIGINT immediately. SIGHUP reloads
// the rules.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/cli"
)

func main() {
	args := os.Args
	// The debug pages show os.Args. A flag may contain a password, so only the program's name
	// stays.
	os.Args = os.Args[:1]
	os.Exit(run(context.Background(), args[0], args[1:], os.Stdout, os.Stderr))
}

type commands struct {
	Serve   serveCommand `cmd:"" default:"withargs" help:"Serve the rate limit service (the default command)."`
	Version version      `cmd:"" help:"Print the version."`

	Check   cli.Check   `cmd:"" group:"rules" help:"Check rules or settings for faults."`
	Explain cli.Explain `cmd:"" group:"rules" help:"Show which limits apply to a request, and why."`
	Test    cli.Test    `cmd:"" group:"rules" help:"Test rules: send requests at virtual times, and compare the verdicts with the expected ones."`
	Gen     cli.Gen     `cmd:"" group:"rules" help:"Write Envoy's configuration for rules."`
	Import  cli.Import  `cmd:"" group:"rules" help:"Write rules from the limits of another rate limiter."`

	Convert  cli.Convert  `cmd:"" group:"traffic" help:"Make a recording from Envoy, nginx, JSON or CSV access logs."`
	Suggest  cli.Suggest  `cmd:"" group:"traffic" help:"Find limits for the traffic of a recording."`
	Simulate cli.Simulate `cmd:"" group:"traffic" help:"Run rules over a recording, and show what they deny."`
	Diff     cli.Diff     `cmd:"" group:"traffic" help:"Compare two sets of rules over recorded requests: the keys that are newly denied or allowed."`
	Plan     cli.Plan     `cmd:"" group:"traffic" help:"Plan local limits, memory, calls to Redis and over-admission for rules and users."`

	Peek  cli.Peek  `cmd:"" group:"running" help:"Print the state of a key in a running server, without charging it."`
	Reset cli.Reset `cmd:"" group:"running" help:"Reset a key in a running server, or every key that contains an entry."`
	Top   cli.Top   `cmd:"" group:"running" help:"Show the busiest and the most denied keys of a running server."`
	Tail  cli.Tail  `cmd:"" group:"running" help:"Print the decisions of a running server as they are made."`

	Conform cli.Conform `cmd:"" group:"running" help:"Grade any rate limit service for Envoy from outside."`
}

// run runs a command and returns its exit code. Most commands return 0 for success, 1 for a
// negative result and 2 after an error; docs/commands.md lists the others. program is the name
// under which weir was started.
func run(ctx context.Context, program string, args []string, stdout, stderr io.Writer) int {
	// Manifests for envoyproxy/ratelimit start /bin/ratelimit, because its image has no entry
	// point.
	asRatelimit := filepath.Base(program) == "ratelimit"
	if len(args) > 0 && args[0] == "/bin/ratelimit" {
		args, asRatelimit = args[1:], true
	}
	args, all := helpArgs(args, asRatelimit)
	var parsed commands
	exited := -1
	parser, err := newParser(&parsed,
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(cli.Streams{In: os.Stdin, Out: stdout, Err: stderr}, cli.SettingsChecker(checkSettings)),
		kong.Help(help(all)),
	)
	if err != nil {
		fmt.Fprintln(stderr, "weir:", err)
		return 2
	}
	if asRatelimit {
		args = removeUnknown(parser, args, stderr)
	}
	if err := unknownCommand(parser, args); err != nil && !asRatelimit {
		fmt.Fprintln(stderr, "weir:", err)
		return 2
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "weir: %s\nweir --help shows the commands, %s\n", argumentError(err, args), helpOf(parser, args))
		return usageExitCode(args)
	}
	return cli.ExitCode(command.Run(), stderr)
}
