// Package envoygen writes Envoy's configuration for rules: the rate limit filter, its cluster, and
// the actions that send the descriptors of the rules.
//
//	config, err := envoygen.New(rules, envoygen.Options{Service: "weir:8081", Upstream: "shop:8080"})
//	text, err := config.Bootstrap()
//
// Rules name keys, but not where Envoy finds their values. Options.From, and a table of well-known
// keys, name these sources. New returns Problems if Envoy's configuration cannot limit as the rules
// require, and Notes for every assumption.
package envoygen

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Options configures New. Service is required, and Upstream for a bootstrap.
type Options struct {
	Domain string // the domain of the rules; may be empty if there is only one
	// From lists the sources of keys, such as user_id=header:x-user-id. A key that is not in From
	// has a default source.
	From []string
	// Hits and Cost set the hits that a descriptor charges at the beginning and at the end of a
	// request, such as tenant=%BYTES_SENT%. The keys of a descriptor, such as user_id.action, name
	// it.
	Hits, Cost []string
	// Routes have constant values of keys, such as /login:generic_key=login. In an EnvoyFilter, the
	// text before the colon is the name of a route.
	Routes []string

	Service, Upstream string // host:port
	Timeout           time.Duration
	FailureModeDeny   bool // Envoy denies requests that Weir does not decide
	TrustedHops       int  // trusted proxies before Envoy, for the address of the client

	Namespace, Selector, Context string // for the EnvoyFilter
}

// Problems are the error of New. They are the rules that Envoy cannot be configured to apply, each
// with its file and line, and the arguments without effect.
type Problems []string

// Error returns one line for each problem.
func (p Problems) Error() string { return strings.Join(p, "\n") }

// A Config is Envoy's configuration for the rules of a domain.
type Config struct {
	o      Options
	domain string
	routes []*route
	notes  []string

	cost, hits map[string]string // the hits at the end and at the beginning of a request, by the keys of a descriptor; without one, 1

	leaseTTL time.Duration // the shortest TTL of a lease of the rules; 0 without leases
	features
}

// features are those that the filters and the listener of the configuration depend on.
type features struct {
	Leases  bool // a header carries the id of the request
	Address bool // an action sends the address of the client
	Path    bool // an action sends the path, or a route matches a prefix of it
	AtEnd   bool // Envoy calls at the end of a request
}

// Notes returns the assumptions that the configuration makes, each once.
func (c *Config) Notes() []string { return c.notes }

// New returns the configuration for the rules of one domain. Its error is Problems, or an argument
// that cannot be read.
func New(rules *descriptors.Rules, o Options) (*Config, error) {
	domain, err := chooseDomain(rules, o.Domain)
	if err != nil {
		return nil, err
	}
	if err := checkHostPort("service", o.Service, "weir:8081"); err != nil {
		return nil, err
	}
	if o.Upstream != "" {
		if err := checkHostPort("upstream", o.Upstream, "shop:8080"); err != nil {
			return nil, err
		}
	}
	if o.Selector != "" && !isLabel(o.Selector) {
		return nil, fmt.Errorf("--selector %q: write LABEL=VALUE, such as istio=ingressgateway", o.Selector)
	}
	g := &generator{Config: &Config{o: o, domain: domain}}
	if err := g.readArguments(); err != nil {
		return nil, err
	}
	var all []*descriptors.Rule
	for rule := range rules.All() {
		if rule.Domain == domain {
			all = append(all, rule)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the domain %s has no rule: add descriptors with limits", domain)
	}
	g.collect(rules.Domain(domain), all)
	for _, rule := range all {
		g.addRule(rule)
	}
	g.finish()
	if len(g.problems) > 0 {
		return nil, g.problems
	}
	return g.Config, nil
}

func chooseDomain(rules *descriptors.Rules, domain string) (string, error) {
	names := rules.DomainNames()
	switch {
	case len(names) == 0:
		return "", errors.New("the rules have no domain: write 'domain:' and descriptors with limits")
	case domain == "" && len(names) > 1:
		return "", fmt.Errorf("the rules have several domains: set --domain to one of %s", strings.Join(names, ", "))
	case domain == "":
		return names[0], nil
	case !slices.Contains(names, domain):
		return "", fmt.Errorf("--domain %s: the rules have no such domain; %s", domain, nearest(domain, names))
	}
	return domain, nil
}

// isLabel reports whether the text is one label of Kubernetes with a value.
func isLabel(text string) bool {
	label, value, _ := strings.Cut(text, "=")
	return label != "" && value != "" && !strings.ContainsAny(value, "=,")
}

func nearest(name string, names []string) string {
	if best := spelling.Nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "they have " + strings.Join(names, ", ")
}

func checkHostPort(flag, text, example string) error {
	host, port, err := net.SplitHostPort(text)
	n, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || bad != nil || n == 0 || host == "":
		return fmt.Errorf("--%s %q: want host:port, such as %s", flag, text, example)
	case port[0] == '0': // in YAML, 010 may be 8
		return fmt.Errorf("--%s %q: want the port without leading zeros, such as %d", flag, text, n)
	}
	return nil
}

// note records an assumption about the rule at a file and line, or about all rules if at is "".
func (g *generator) note(at, format string, args ...any) {
	g.notes = add(g.notes, at, format, args)
}

// problem records a problem with the rule at a file and line, or with all rules if at is "".
func (g *generator) problem(at, format string, args ...any) {
	g.problems = add(g.problems, at, format, args)
}

// add adds a text with its file and line to a list, once.
func add(to []string, at, format string, args []any) []string {
	text := fmt.Sprintf(format, args...)
	if at != "" {
		text = at + ": " + text
	}
	if slices.Contains(to, text) {
		return to
	}
	return append(to, text)
}
