package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

func newParser(into *commands, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(into, append([]kong.Option{
		kong.Name("weir"),
		kong.Description("A rate limit service for Envoy."),
		kong.UsageOnError(),
		kong.Vars{"redis_socket": settings.RedisSocket, "overlay_keys": strings.Join(rulesfile.OverlayKeys(), ", ")},
		kong.ExplicitGroups(groups()),
		kong.KindMapper(reflect.Bool, boolean{}),
		// kong's own mapper would replace each byte that is not UTF-8 with U+FFFD.
		kong.KindMapper(reflect.String, requireValue(func(ctx *kong.DecodeContext, into reflect.Value) error {
			into.SetString(ctx.Scan.Pop().String())
			return nil
		})),
		mustBe[int]("a whole number such as 10"),
		mustBe[int64]("a whole number such as 10"),
		mustBe[uint16]("a whole number from 0 to 65535"),
		mustBe[float32]("a number such as 0.5"),
		mustBe[float64]("a number such as 0.5"),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), requireValue(decodeDuration)),
	}, options...)...)
}

// mustBe returns an option by which kong decodes values of T's kind, with errors that name the form
// of the value.
func mustBe[T any](form string) kong.Option {
	mapper := kong.NewRegistry().RegisterDefaults().ForType(reflect.TypeFor[T]())
	return kong.KindMapper(reflect.TypeFor[T]().Kind(), requireValue(func(ctx *kong.DecodeContext, into reflect.Value) error {
		text := ctx.Scan.Peek().String()
		if mapper.Decode(ctx, into) != nil {
			return fmt.Errorf("must be %s, not %q", form, text)
		}
		return nil
	}))
}

// requireValue returns a mapper of flags and variables, which checks that there is a value before
// it calls decode. kong puts the name of the flag before the errors.
func requireValue(decode kong.MapperFunc) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, into reflect.Value) error {
		token, flag := ctx.Scan.Peek(), ctx.Value
		text := token.String()
		switch {
		case token.IsEOL():
			return errNoValue
		case !token.IsValue():
			// The value may be a secret.
			return fmt.Errorf("%w: write %s=VALUE if the next argument is the value", errNoValue, flag.ShortSummary())
		case flag.Enum != "" && !slices.Contains(flag.EnumSlice(), text):
			return fmt.Errorf("must be %s, not %q", oneOf(flag.EnumSlice()), text)
		}
		return decode(ctx, into)
	}
}

var errNoValue = errors.New("needs a value")

func decodeDuration(ctx *kong.DecodeContext, into reflect.Value) error {
	text := ctx.Scan.Pop().String()
	d, err := time.ParseDuration(text)
	if err != nil {
		if _, err := time.ParseDuration(text + "s"); err == nil && strings.Trim(text, "0123456789.") == "" {
			return fmt.Errorf("%q has no unit: want %sms or %ss", text, text, text)
		}
		return fmt.Errorf("cannot read %q: want a duration such as 15ms, 2s or 1h30m", text)
	}
	into.SetInt(int64(d))
	return nil
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

// fromVariable matches kong's error for an invalid environment variable. kong names the flag,
// although the user set the variable.
var fromVariable = regexp.MustCompile(`^--[a-z0-9-]+: (.*) \(from envar ([A-Z0-9_]+)=".*"\)$`)

// aboutSubject matches an error about a command, flag or variable whose text continues the name:
// kong puts a colon between them.
var aboutSubject = regexp.MustCompile(`(?m)^([a-z ]+|-[a-z0-9-]+|[A-Z0-9_]+): (must|needs|cannot be used) `)

// argumentError returns err as a message that names the flag or variable that the user set, and the
// remedy.
func argumentError(err error, args []string) string {
	text := strings.TrimPrefix(err.Error(), "serve: ") // kong puts the name of the command before the error of Validate
	if names, found := strings.CutPrefix(text, "expected one of "); found && len(args) > 0 {
		return args[0] + " needs " + oneOf(strings.Split(strings.ReplaceAll(names, `"`, ""), ", "))
	}
	if flag, _, found := strings.Cut(text, ": missing value, "); found { // the flag may repeat
		return flag + " " + errNoValue.Error()
	}
	if argument, found := strings.CutPrefix(text, "unexpected argument "); found {
		if strings.Contains(argument, "=") {
			return text + ": join the entries of a descriptor with commas, such as a=1,b=2"
		}
		return text + ": remove it"
	}
	return aboutSubject.ReplaceAllString(fromVariable.ReplaceAllString(text, "$2: $1"), "$1 $2 ")
}

// oneOf joins choices, such as text, json or junit, without the empty one.
func oneOf(choices []string) string {
	choices = slices.DeleteFunc(choices, func(c string) bool { return c == "" })
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// usageExitCode returns the exit code for invalid arguments.
func usageExitCode(args []string) int {
	if len(args) > 0 && args[0] == "diff" {
		return int(cli.DiffFault)
	}
	return int(cli.Error)
}

// foreignCommands maps commands of other programs to the commands of weir with the same purpose.
var foreignCommands = map[string]string{"lint": "check", "validate": "check"}

// unknownCommand returns an error if args name an unknown command or subcommand. The error suggests
// the nearest command, or lists all of them.
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
		switch nearest := cmp.Or(foreignCommands[path+arg], spelling.Nearest(arg, names)); {
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

// removeUnknown removes unknown flags with their values from args, and warns about each one.
// envoyproxy/ratelimit ignores its arguments, and some manifests contain flags of its forks.
func removeUnknown(parser *kong.Kong, args []string, stderr io.Writer) []string {
	known := map[string]bool{"--help": true}
	for _, flag := range selectedCommand(parser, args).Flags {
		known["--"+flag.Name], known["--no-"+flag.Name], known["-"+string(flag.Short)] = true, true, true
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
		name, _, hasValue := strings.Cut(arg, "=")
		mayBeValue = !known[name] && !hasValue
		if !known[name] {
			fmt.Fprintf(stderr, "weir: warning: unknown argument %s ignored\n", name)
			continue
		}
		accepted = append(accepted, arg)
	}
	return accepted
}

// selectedCommand returns the command that args name, by default serve.
func selectedCommand(parser *kong.Kong, args []string) (selected *kong.Node) {
	for _, command := range parser.Model.Children {
		if len(args) > 0 && command.Name == args[0] || selected == nil && command.Name == "serve" {
			selected = command
		}
	}
	return selected
}

// helpOf returns the help command for args.
func helpOf(parser *kong.Kong, args []string) string {
	if command := selectedCommand(parser, args); command.Name != "serve" {
		return "weir " + command.Name + " --help its arguments"
	}
	return "weir serve --help the settings"
}

// groups returns the headings of commands and settings in help texts.
func groups() []kong.Group {
	all := []kong.Group{
		{Key: "rules", Title: "Write and test rules:"},
		{Key: "traffic", Title: "Choose limits from recorded traffic:"},
		{Key: "running", Title: "Ask a running server:"},
	}
	for _, g := range settings.Groups {
		all = append(all, kong.Group{Key: g.Key, Title: g.Title})
	}
	return all
}
