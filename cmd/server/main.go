// Command weir is a rate limit service for Envoy.
//
//	weir [serve] --config rules.yaml     answers Envoy on :8081 (gRPC); /healthcheck and /metrics on :8080
//	weir check rules.yaml                prints every fault of rules, or one line that says there is none
//	weir version
//
// weir serve --help lists every setting, as a flag and as an environment variable. SIGTERM ends the server once proxies have
// turned away, SIGINT at once, and SIGHUP makes it read its rules again. It keeps nothing on disk
// but what MEMORY_SNAPSHOT names.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/settings"
)

func main() {
	args := os.Args[1:]
	// The debug pages show the command line, and a flag may hold a password.
	os.Args = os.Args[:1]
	os.Exit(run(context.Background(), args, os.Stdout, os.Stderr))
}

type commands struct {
	Serve   serve   `cmd:"" default:"withargs" help:"Answer Envoy (the default command)."`
	Check   check   `cmd:"" help:"Print every fault of rules."`
	Version version `cmd:"" help:"Print the version."`
}

// streams are where a command writes.
type streams struct{ out, err io.Writer }

// errSaid ends a command that has said itself what is wrong.
var errSaid = errors.New("said")

// run carries out a command and returns its exit code: 0, 1 where it failed, 2 where it was not understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	// Who runs envoyproxy/ratelimit by docker-compose says `command: /bin/ratelimit`, for its image has no entry point. Ours has.
	if len(args) > 0 && args[0] == "/bin/ratelimit" {
		args = args[1:]
	}
	var cli commands
	exited := -1
	parser, err := newParser(&cli,
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams{stdout, stderr}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "weir:", err)
		return 2
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		// kong puts the name of the command before what Validate says.
		fmt.Fprintf(stderr, "weir: %s\nweir --help tells how\n", strings.TrimPrefix(err.Error(), "serve: "))
		return 2
	}
	switch err := command.Run(); {
	case errors.Is(err, errSaid):
		return 1
	case err != nil:
		fmt.Fprintln(stderr, "weir:", err)
		return 1
	}
	return 0
}

func newParser(cli *commands, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(cli, append([]kong.Option{
		kong.Name("weir"),
		kong.Description("A rate limit service for Envoy."),
		kong.UsageOnError(),
		kong.Vars{"redis_socket": settings.RedisSocket},
		kong.ExplicitGroups(groups()),
		kong.KindMapper(reflect.Bool, truth{}),
	}, options...)...)
}

// flagOf returns the name of the flag of a variable of package settings.
func flagOf(variable string) string { return strings.ToLower(strings.ReplaceAll(variable, "_", "-")) }

func groups() []kong.Group {
	var all []kong.Group
	for _, g := range settings.Groups {
		all = append(all, kong.Group{Key: g.Key, Title: g.Title})
	}
	return all
}

// truth reads what strconv.ParseBool does, as envoyproxy/ratelimit does, and no more.
type truth struct{}

func (truth) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		// A flag without a value.
		target.SetBool(true)
		return nil
	}
	text := fmt.Sprint(ctx.Scan.Pop().Value)
	value, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("cannot read %q: want true or false", text)
	}
	target.SetBool(value)
	return nil
}

// IsBool tells kong that the flag needs no value.
func (truth) IsBool() bool { return true }
