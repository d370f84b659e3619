package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weir-rls/weir/internal/offline/envoygen"
	"github.com/weir-rls/weir/internal/terminal"
)

// Gen generates Envoy's configuration for rules.
type Gen struct {
	Envoy       GenEnvoy       `cmd:"" help:"Write an Envoy configuration, or part of one."`
	EnvoyFilter GenEnvoyFilter `cmd:"" name:"envoyfilter" help:"Write an Istio EnvoyFilter."`
}

// The flags of both commands.
type genFlags struct {
	rulesFlags `embed:""`

	Domain  string        `help:"The domain. Optional if the rules have only one."`
	From    []string      `sep:"none" placeholder:"KEY=SOURCE" help:"Where Envoy finds the value of a key, such as user_id=header:x-user-id. May be repeated."`
	Hits    []string      `sep:"none" placeholder:"KEYS=HITS" help:"The hits of a descriptor at the beginning of a request: a number or an Envoy format string, such as user_id.action=10. May be repeated."`
	Cost    []string      `sep:"none" placeholder:"KEYS=HITS" help:"The hits of a descriptor at the end of a request, such as 'tenant=%BYTES_SENT%'. May be repeated."`
	Timeout time.Duration `default:"100ms" help:"The longest time that Envoy waits for Weir."`
	Deny    bool          `name:"failure-mode-deny" help:"Envoy denies requests while Weir does not answer."`
}

func (f *genFlags) options() envoygen.Options {
	return envoygen.Options{Domain: f.Domain, From: f.From, Hits: f.Hits, Cost: f.Cost, Timeout: f.Timeout, FailureModeDeny: f.Deny}
}

// Validate reports missing rules, an invalid timeout and two readers of standard input.
func (f *genFlags) Validate() error {
	switch {
	case len(f.Config) == 0:
		return errors.New("needs --config with the rules, for example: --config rules.yaml")
	case f.Timeout <= 0:
		return errors.New("--timeout must be above 0, because Envoy would wait without a limit")
	}
	return f.checkStdin(f.Config)
}

// write generates the configuration, and prints its notes and the result of text. It returns
// [Failed] if Envoy could not limit as the rules say; it then prints only the problems.
func (f *genFlags) write(streams Streams, o envoygen.Options, text func(*envoygen.Config) ([]byte, error)) error {
	for _, argument := range slices.Concat(o.From, o.Hits, o.Cost, o.Routes, []string{o.Domain, o.Upstream, o.Service, o.Namespace, o.Selector}) {
		if !utf8.ValidString(argument) {
			return fmt.Errorf("%q is not UTF-8, and Envoy's configuration cannot contain other bytes: correct it", argument)
		}
	}
	rules, err := f.load(streams.In)
	if err != nil {
		return err
	}
	config, err := envoygen.New(rules, o)
	var out []byte
	if err == nil {
		out, err = text(config)
	}
	if problems, ok := errors.AsType[envoygen.Problems](err); ok {
		for _, p := range problems {
			printEscaped(streams.Err, "error:", terminal.Printable(p))
		}
		fmt.Fprintf(streams.Err, "nothing is written: %d rules or arguments need a change\n", len(problems))
		return Failed
	}
	if err != nil {
		return err
	}
	for _, note := range config.Notes() {
		printEscaped(streams.Err, "note:", terminal.Printable(note))
	}
	_, err = streams.Out.Write(out)
	return err
}

// GenEnvoy writes an Envoy configuration for the rules of a domain.
type GenEnvoy struct {
	genFlags `embed:""`

	Routes      []string `name:"route" sep:"none" placeholder:"PREFIX:KEY=VALUE" help:"The constant value of a key for the paths with a prefix, such as /login:generic_key=login. May be repeated."`
	Upstream    string   `placeholder:"HOST:PORT" help:"The service behind Envoy."`
	Service     string   `default:"127.0.0.1:8081" placeholder:"HOST:PORT" help:"The address of Weir."`
	Part        string   `enum:",filter,route,cluster" default:"" placeholder:"PART" help:"Write only one part: filter, route or cluster."`
	TrustedHops int      `help:"The number of trusted proxies in front of Envoy."`
}

// Help returns the text after the flags in the command's help.
func (*GenEnvoy) Help() string {
	return `Examples:
  weir gen envoy --config rules.yaml --upstream shop:8080 --service weir:8081 > envoy.yaml
  weir gen envoy --config rules.yaml --upstream shop:8080 --from user_id=metadata:envoy.filters.http.jwt_authn:claims.sub
  weir gen envoy --config rules.yaml --part route --route /login:generic_key=login

A SOURCE is header:NAME, path, method, host, query:NAME, metadata:NAMESPACE:KEY.PATH, remote_address,
masked_remote_address:V4/V6, constant, match:VALUE=HEADER:TEXT, status:CODES or cel:EXPRESSION. docs/gen.md describes them.

The exit code is 0, or 1 if Envoy has no configuration for a rule, or 2 after another error. With 1 and 2 nothing is written.`
}

// Validate reports missing and conflicting arguments.
func (g *GenEnvoy) Validate() error {
	switch err := g.genFlags.Validate(); {
	case err != nil:
		return err
	case g.Upstream == "" && g.Part == "":
		return errors.New("needs --upstream with the service behind Envoy, such as --upstream shop:8080, or --part")
	case g.TrustedHops < 0:
		return errors.New("--trusted-hops must be at least 0")
	}
	return nil
}

// Run writes the configuration.
func (g *GenEnvoy) Run(streams Streams) error {
	o := g.options()
	o.Routes, o.Upstream, o.Service, o.TrustedHops = g.Routes, g.Upstream, g.Service, g.TrustedHops
	return g.write(streams, o, func(c *envoygen.Config) ([]byte, error) {
		if g.Part != "" {
			return c.Part(g.Part)
		}
		return c.Bootstrap()
	})
}

// GenEnvoyFilter writes an EnvoyFilter for the rules of a domain.
type GenEnvoyFilter struct {
	genFlags `embed:""`

	Routes    []string `name:"route" sep:"none" placeholder:"NAME:KEY=VALUE" help:"The constant value of a key for a route, by the name of the route, such as login:generic_key=login. May be repeated."`
	Service   string   `default:"weir.weir.svc.cluster.local:8081" placeholder:"HOST:PORT" help:"The address of Weir."`
	Namespace string   `default:"istio-system" help:"The namespace of the EnvoyFilter."`
	Selector  string   `default:"istio=ingressgateway" placeholder:"LABEL=VALUE" help:"The label of the Envoy pods."`
	Context   string   `enum:"GATEWAY,SIDECAR_INBOUND" default:"GATEWAY" help:"GATEWAY if the pods are a gateway, SIDECAR_INBOUND if they have a sidecar."`
}

// Run writes the EnvoyFilter.
func (g *GenEnvoyFilter) Run(streams Streams) error {
	o := g.options()
	o.Routes, o.Service, o.Namespace, o.Selector, o.Context = g.Routes, g.Service, g.Namespace, g.Selector, g.Context
	return g.write(streams, o, (*envoygen.Config).EnvoyFilter)
}
