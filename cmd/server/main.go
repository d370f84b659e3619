// Command weir is a rate limit service for Envoy.
//
//	weir --config rules.yaml                                     serve the rate limit service on :8081, and /healthcheck and /metrics on :8080
//	weir check rules.yaml                                        print every fault of rules
//	weir check --settings                                        print every fault of the settings in the environment
//	weir explain --config rules.yaml user_id=42                  show which limits a request is under, and why
//	weir test rules_test.yaml                                    run tests of rules
//	weir gen envoy --config rules.yaml --upstream shop:8080      write Envoy's half of rules
//	weir import limitador limits.yaml                            write rules for the limits of another rate limiter
//	weir convert --format envoy --domain ugc --descriptor 'path=%{path}' access.log     make a recording
//	weir suggest --config rules.yaml day.ndjson.zst              find limits for the traffic of a recording
//	weir simulate --config rules.yaml day.ndjson.zst             run rules over a recording, and show what they deny
//	weir diff old.yaml new.yaml --against day.ndjson.zst         compare rules over recorded requests
//	weir plan --limit 1000 --replicas 100                        plan local limits, memory and calls to Redis
//	weir peek user_id=42                                         print the state of a key in a running server
//	weir reset user_id=42                                        reset it, on all replicas
//	weir top                                                     show the heaviest and the most denied keys
//	weir tail                                                    print decisions as they are made
//	weir conform 127.0.0.1:8081                                  grade any rate limit service for Envoy from outside
//	weir version
//
// weir serve --help shows the settings that most users need, and --help=all every setting. SIGTERM stops the server once
// proxies have had time to stop sending, SIGINT at once. SIGHUP reloads the rules.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/spelling"
)

// heapSample is the mean number of bytes between two allocations that the heap profile samples. Go's default of 512 KiB takes 0.7 %
// of the CPU time of a request.
const heapSample = 2 << 20

func main() {
	runtime.MemProfileRate = heapSample
	args := os.Args
	// The debug pages show the command line, and a flag may contain a password.
	os.Args = os.Args[:1]
	os.Exit(run(context.Background(), args[0], args[1:], os.Stdout, os.Stderr))
}

type commands struct {
	Serve   serve   `cmd:"" default:"withargs" help:"Serve the rate limit service (the default command)."`
	Version version `cmd:"" help:"Print the version."`

	Check   cli.Check   `cmd:"" group:"rules" help:"Print every fault of rules or settings."`
	Explain cli.Explain `cmd:"" group:"rules" help:"Show which limits a request is under, and why."`
	Test    cli.Test    `cmd:"" group:"rules" help:"Test rules: requests at virtual times, with the verdicts that they must get."`
	Gen     cli.Gen     `cmd:"" group:"rules" help:"Write Envoy's half of rules."`
	Import  cli.Import  `cmd:"" group:"rules" help:"Write rules for the limits of another rate limiter."`

	Convert  cli.Convert  `cmd:"" group:"evidence" help:"Make a recording from access logs: of Envoy, of nginx, JSON or CSV."`
	Suggest  cli.Suggest  `cmd:"" group:"evidence" help:"Find limits for the traffic of a recording."`
	Simulate cli.Simulate `cmd:"" group:"evidence" help:"Run rules over a recording, and show what they deny."`
	Diff     cli.Diff     `cmd:"" group:"evidence" help:"Compare two sets of rules over recorded requests: the keys that are newly denied or allowed."`
	Plan     cli.Plan     `cmd:"" group:"evidence" help:"Plan local limits, memory, calls to Redis and over-admission for rules and users."`

	Peek  cli.Peek  `cmd:"" group:"running" help:"Print the state of a key in a running server. It charges nothing."`
	Reset cli.Reset `cmd:"" group:"running" help:"Reset a key in a running server, or every key that contains an entry."`
	Top   cli.Top   `cmd:"" group:"running" help:"Show the heaviest and the most denied keys of a running server."`
	Tail  cli.Tail  `cmd:"" group:"running" help:"Print the decisions of a running server as they are made."`

	Conform cli.Conform `cmd:"" group:"running" help:"Grade any rate limit service for Envoy from outside."`
}

// run runs a command and returns its exit code. All commands return 0 for success, 1 for failure and 2 for invalid arguments; some
// document other codes. program is the name under which weir was started.
func run(ctx context.Context, program string, args []string, stdout, stderr io.Writer) int {
	// Manifests for envoyproxy/ratelimit start /bin/ratelimit, because its image has no entry point.
	asRatelimit := filepath.Base(program) == "ratelimit"
	if len(args) > 0 && args[0] == "/bin/ratelimit" {
		args, asRatelimit = args[1:], true
	}
	args, all := helpArgs(args)
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
		args = dropUnknown(parser, args, stderr)
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
		return usageExitCode(parser, args)
	}
	err = command.Run()
	var exit cli.Exit
	switch {
	case errors.As(err, &exit):
		return int(exit)
	case err != nil:
		if errors.As(err, new(*fs.PathError)) {
			err = cli.ReadError(err)
		}
		fmt.Fprintln(stderr, "weir:", err)
		return 1
	}
	return 0
}

// usageExitCode returns the exit code for invalid arguments: 2, unless the command has a method UsageExitCode.
func usageExitCode(parser *kong.Kong, args []string) int {
	for _, command := range parser.Model.Children {
		if len(args) == 0 || command.Name != args[0] {
			continue
		}
		if c, ok := command.Target.Addr().Interface().(interface{ UsageExitCode() int }); ok {
			return c.UsageExitCode()
		}
	}
	return 2
}

func newParser(into *commands, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(into, append([]kong.Option{
		kong.Name("weir"),
		kong.Description("A rate limit service for Envoy."),
		kong.UsageOnError(),
		kong.Vars{"redis_socket": settings.RedisSocket},
		kong.ExplicitGroups(groups()),
		kong.KindMapper(reflect.Bool, boolean{}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
	}, options...)...)
}

// fromVariable matches kong's error for an invalid environment variable. kong names the flag, although the user set the variable.
var fromVariable = regexp.MustCompile(`(?s)^--[a-z0-9-]+: (.*) \(from envar ([A-Z0-9_]+)=".*"\)$`)

// kongTexts maps kong's messages for invalid values to Weir's.
var kongTexts = []struct {
	kong *regexp.Regexp
	weir string
}{
	{regexp.MustCompile(`expected a valid 16 bit uint but got ("(?:[^"\\]|\\.)*")`), "want a whole number from 0 to 65535, not $1"},
	{regexp.MustCompile(`expected an? (?:valid \d+ bit )?int but got ("(?:[^"\\]|\\.)*")(?: \(\w+\))?`), "want a whole number such as 10, not $1"},
	{regexp.MustCompile(`expected a valid \d+ bit uint but got ("(?:[^"\\]|\\.)*")`), "want a whole number of 0 or more such as 10, not $1"},
	{regexp.MustCompile(`expected a float but got ("(?:[^"\\]|\\.)*")(?: \(\w+\))?`), "want a number such as 0.5, not $1"},
	{regexp.MustCompile(`expected \S+ value but got "EOL" \(<EOL>\)`), "want a value behind it"},
	{regexp.MustCompile(`missing value, expecting "<arg>"$`), "want a value behind it"},
	{regexp.MustCompile(`^(unknown flag \S+), did you mean "(.*)"\?$`), "$1: did you mean $2?"},
	{regexp.MustCompile(`^(unexpected argument .*=.*)$`), "$1: join the entries of a descriptor with commas, such as a=1,b=2"},
	{regexp.MustCompile(`^(unexpected argument [^=]*)$`), "$1: remove it"},
}

// wrongChoice matches kong's error for a value that is not in an enum.
var wrongChoice = regexp.MustCompile(`^(--\S+) must be one of (\S+) but got (".*")`)

// argumentError returns err as a message that names the flag or variable that the user set.
func argumentError(err error, args []string) string {
	text := strings.TrimPrefix(err.Error(), "serve: ") // kong puts the name of the command before the error of Validate
	if names, found := strings.CutPrefix(text, "expected one of "); found && len(args) > 0 {
		return args[0] + ": want " + oneOf(strings.Split(names, ", "))
	}
	if m := wrongChoice.FindStringSubmatch(text); m != nil {
		return m[1] + ": want " + oneOf(strings.Split(m[2], ",")) + ", not " + m[3]
	}
	for _, t := range kongTexts {
		text = t.kong.ReplaceAllString(text, t.weir)
	}
	return fromVariable.ReplaceAllString(text, "$2: $1")
}

// oneOf joins quoted choices, such as text, json or junit, without the empty one.
func oneOf(quoted []string) string {
	var words []string
	for _, q := range quoted {
		if word := strings.Trim(q, `"`); word != "" {
			words = append(words, word)
		}
	}
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// unknownCommand returns an error if args name an unknown command or subcommand. The error suggests the nearest command, or lists
// all of them.
func unknownCommand(parser *kong.Kong, args []string) error {
	known, path := parser.Model.Children, ""
	for _, arg := range args {
		if len(known) == 0 || known[0].Type != kong.CommandNode || strings.HasPrefix(arg, "-") {
			return nil
		}
		var names []string
		var below *kong.Node
		for _, command := range known {
			names = append(names, command.Name)
			if command.Name == arg {
				below = command
			}
		}
		switch nearest := spelling.Nearest(arg, names); {
		case below != nil:
			known, path = below.Children, path+arg+" "
		case nearest != "":
			return fmt.Errorf("unknown command %q: did you mean %q?", path+arg, path+nearest)
		default:
			return fmt.Errorf("unknown command %q: the commands are %s", path+arg, strings.Join(names, ", "))
		}
	}
	return nil
}

// dropUnknown removes unknown flags from args and warns about each one. envoyproxy/ratelimit ignores its arguments, and some
// manifests contain flags of its forks.
func dropUnknown(parser *kong.Kong, args []string, stderr io.Writer) []string {
	known := map[string]bool{"help": true}
	for _, command := range parser.Model.Children {
		for _, flag := range command.Flags {
			known[flag.Name], known["no-"+flag.Name] = true, true
		}
	}
	var kept []string
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && !known[name] {
			fmt.Fprintf(stderr, "weir: warning: unknown argument --%s ignored\n", name)
			continue
		}
		kept = append(kept, arg)
	}
	return kept
}

// helpOf returns the help command for args, whose default command is serve.
func helpOf(parser *kong.Kong, args []string) string {
	for _, command := range parser.Model.Children {
		if len(args) > 0 && command.Name == args[0] && command.Name != "serve" {
			return "weir " + command.Name + " --help its arguments"
		}
	}
	return "weir serve --help the settings"
}

// flagOf returns the flag of an environment variable.
func flagOf(variable string) string { return strings.ToLower(strings.ReplaceAll(variable, "_", "-")) }

// groups returns the headings of commands and settings in help texts.
func groups() []kong.Group {
	all := []kong.Group{
		{Key: "rules", Title: "Write and test rules:"},
		{Key: "evidence", Title: "Choose limits by evidence:"},
		{Key: "running", Title: "Ask a running server:"},
	}
	for _, g := range settings.Groups {
		all = append(all, kong.Group{Key: g.Key, Title: g.Title})
	}
	return all
}

// boolean decodes the values of [strconv.ParseBool], as envoyproxy/ratelimit does.
type boolean struct{}

func (boolean) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	text := fmt.Sprint(ctx.Scan.Pop().Value)
	value, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("cannot read %q: write true or false", text)
	}
	target.SetBool(value)
	return nil
}

// IsBool implements [kong.BoolMapper], so that the flag needs no value.
func (boolean) IsBool() bool { return true }

func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return fmt.Errorf("%q has no unit: write %sms or %ss", text, text, text)
		}
		return fmt.Errorf("cannot read %q: write a duration such as 15ms, 2s or 1h30m", text)
	}
	target.SetInt(int64(d))
	return nil
}
