package main

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

func newParser(into *commands, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(into, append([]kong.Option{
		kong.Name("weir"),
		kong.Description("A rate limit service for Envoy."),
		kong.Vars{"redis_socket": settings.RedisSocket, "overlay_keys": strings.Join(rulesfile.OverlayKeys(), ", ")},
		kong.ExplicitGroups(groups()),
		kong.TypeMapper(reflect.TypeFor[bool](), boolean{}),
		needsValue[string](),
		needsValue[int](),
		needsValue[int64](),
		needsValue[uint16](),
		needsValue[float32](),
		needsValue[float64](),
		needsValue[time.Duration](),
	}, options...)...)
}

// needsValue returns an option by which kong rejects a flag of type T without a value. Unlike kong,
// it does not quote the next argument, which may be a secret.
func needsValue[T any]() kong.Option {
	mapper := kong.NewRegistry().RegisterDefaults().ForType(reflect.TypeFor[T]())
	return kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(func(ctx *kong.DecodeContext, into reflect.Value) error {
		if !ctx.Scan.Peek().IsValue() {
			return fmt.Errorf("needs a value: write %s=VALUE", ctx.Value.ShortSummary())
		}
		return mapper.Decode(ctx, into)
	}))
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
		return fmt.Errorf("cannot read %q: want true or false", text)
	}
	target.SetBool(value)
	return nil
}

// IsBool implements [kong.BoolMapper], so that the flag needs no value.
func (boolean) IsBool() bool { return true }

// commandOf returns the command that args name, or nil.
func commandOf(parser *kong.Kong, args []string) *kong.Node {
	for _, command := range parser.Model.Children {
		if len(args) > 0 && command.Name == args[0] {
			return command
		}
	}
	return nil
}

// usageExitCode returns the exit code for invalid arguments: 2, unless the command has a method
// UsageExitCode.
func usageExitCode(command *kong.Node) int {
	if command != nil {
		if c, ok := command.Target.Addr().Interface().(interface{ UsageExitCode() int }); ok {
			return c.UsageExitCode()
		}
	}
	return 2
}

// unknownCommand returns an error if args name an unknown command. kong would report an unexpected
// argument of serve, the default command.
func unknownCommand(parser *kong.Kong, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || commandOf(parser, args) != nil {
		return nil
	}
	var names []string
	for _, command := range parser.Model.Children {
		names = append(names, command.Name)
	}
	if nearest := spelling.Nearest(args[0], names); nearest != "" {
		return fmt.Errorf("unknown command %q: did you mean %q?", args[0], nearest)
	}
	return fmt.Errorf("unknown command %q: the commands are %s", args[0], strings.Join(names, ", "))
}

// removeUnknown removes unknown flags with their values from args, and warns about each one.
// envoyproxy/ratelimit ignores its arguments, and some manifests contain flags of its forks.
func removeUnknown(parser *kong.Kong, args []string, stderr io.Writer) []string {
	known := map[string]bool{"help": true}
	for _, command := range parser.Model.Children {
		for _, flag := range command.Flags {
			known[flag.Name], known["no-"+flag.Name] = true, true
		}
	}
	var accepted []string
	mayBeValue := false // the flag before arg was removed, and has no value yet
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			if !mayBeValue {
				accepted = append(accepted, arg)
			}
			mayBeValue = false
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		mayBeValue = !known[name] && !hasValue
		if !known[name] {
			fmt.Fprintf(stderr, "weir: warning: unknown argument --%s ignored\n", name)
			continue
		}
		accepted = append(accepted, arg)
	}
	return accepted
}

// helpOf returns the help command for a command; nil is serve, the default command.
func helpOf(command *kong.Node) string {
	if command == nil || command.Name == "serve" {
		return "weir serve --help the settings"
	}
	return "weir " + command.Name + " --help its arguments"
}

// groups returns the headings of commands and settings in help texts.
func groups() []kong.Group {
	all := []kong.Group{
		{Key: "rules", Title: "Write and test rules:"},
		{Key: "evidence", Title: "Choose limits from recorded traffic:"},
		{Key: "running", Title: "Ask a running server:"},
	}
	for _, g := range settings.Groups {
		all = append(all, kong.Group{Key: g.Key, Title: g.Title})
	}
	return all
}
