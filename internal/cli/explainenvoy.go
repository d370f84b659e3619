package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/weir-rls/weir/internal/offline/envoyactions"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// maxEnvoyFileBytes bounds an Envoy configuration.
const maxEnvoyFileBytes = 16 << 20

// envoyFlags describe a request to Envoy, from which Envoy makes descriptors.
type envoyFlags struct {
	Envoy          string   `placeholder:"FILE|-" help:"The Envoy configuration: a bootstrap, a listener, a route configuration, a virtual host or a route. Its rate_limits make the descriptors."`
	Header         []string `sep:"none" placeholder:"'NAME: VALUE'" help:"With --envoy: a header of the request. May be repeated."`
	Path           string   `placeholder:"/PATH" help:"With --envoy: path and query of the request; / if empty."`
	Method         string   `placeholder:"METHOD" help:"With --envoy: the method of the request; GET if empty."`
	Host           string   `placeholder:"HOST" help:"With --envoy: the host of the request."`
	RemoteAddress  string   `placeholder:"IP" help:"With --envoy: the address of the client."`
	Metadata       []string `sep:"none" placeholder:"NAMESPACE:KEY.PATH=VALUE" help:"With --envoy: a string in the dynamic metadata of the request. May be repeated."`
	ServiceCluster string   `placeholder:"NAME" help:"With --envoy: Envoy's --service-cluster."`
	Listener       string   `placeholder:"NAME" help:"With --envoy: the listener, if several have a rate limit filter."`
	Filter         string   `placeholder:"NAME" help:"With --envoy: the rate limit filter, if the listener has several."`
}

// isSet reports whether any flag except --envoy is set.
func (f *envoyFlags) isSet() bool {
	texts := f.Path + f.Method + f.Host + f.RemoteAddress + f.ServiceCluster + f.Listener + f.Filter
	return texts != "" || len(f.Header)+len(f.Metadata) > 0
}

func (e *Explain) validateEnvoy() error {
	switch {
	case e.Live != "":
		return errors.New("--envoy cannot be used with --live: pass the rules as --config")
	case e.Request != "" || len(e.Descriptors) > 0:
		return errors.New("--envoy cannot be used with descriptors or --request, because Envoy makes the descriptors: remove them")
	}
	return nil
}

// explainByEnvoy explains the descriptors that Envoy would send.
func (e *Explain) explainByEnvoy(o explain.Options, rules *descriptors.Rules, stdin io.Reader) (*explain.Explanation, error) {
	request, err := e.envoyFlags.request()
	if err != nil {
		return nil, err
	}
	name, data, err := readNamed(e.Envoy, stdin, maxEnvoyFileBytes, "pass only the route configuration, the virtual host or the route")
	if err != nil {
		return nil, err
	}
	config, err := envoyactions.Parse(name, data)
	if err != nil {
		return nil, err
	}
	derived, err := config.Derive(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	domain, err := e.requestDomain(derived.Domain, rules)
	if err != nil {
		return nil, err
	}
	before, atEnd := &decide.Request{Domain: domain}, &decide.Request{Domain: domain}
	envoy := &explain.Envoy{Route: derived.Route, RateLimits: []explain.EnvoyRateLimit{}}
	for _, r := range derived.RateLimits {
		for i := range r.Entries { // as the server does
			r.Entries[i].Value = descriptors.EscapeInvalidUTF8(r.Entries[i].Value)
		}
		envoy.RateLimits = append(envoy.RateLimits, explain.EnvoyRateLimit{
			Source: r.Source, Descriptor: explain.EntriesOf(r.Entries), Skipped: r.Skipped, Unknown: r.Unknown, AtEnd: r.AtEnd,
			Reason: strings.Join(r.Reasons, "; "), Ignored: append([]string{}, r.Ignored...),
		})
		if r.Skipped {
			continue
		}
		to := before
		if r.AtEnd {
			to = atEnd
		}
		to.Descriptors = append(to.Descriptors, r.Descriptor)
	}
	return explain.ForEnvoy(o, rules, envoy, before, atEnd), nil
}

// request returns the request that the flags describe.
func (f *envoyFlags) request() (*envoyactions.Request, error) {
	request := &envoyactions.Request{
		Method: cmp.Or(f.Method, "GET"), Path: cmp.Or(f.Path, "/"), Host: f.Host, Metadata: map[string]string{},
		ServiceCluster: f.ServiceCluster, Listener: f.Listener, Filter: f.Filter,
	}
	if !strings.HasPrefix(request.Path, "/") {
		return nil, fmt.Errorf("--path %q: want a path that begins with /", f.Path)
	}
	for _, h := range f.Header {
		name, value, ok := strings.Cut(h, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || name == "":
			return nil, fmt.Errorf("--header %q: want 'name: value', such as 'x-user-id: 42'; for the pseudo-headers set --path, "+
				"--method and --host", h)
		case strings.EqualFold(name, "host") && request.Host == "":
			request.Host = value
		}
		request.Headers = append(request.Headers, envoyactions.Header{Name: name, Value: value})
	}
	for _, m := range f.Metadata {
		path, value, err := envoyactions.ParseMetadata(m)
		if err != nil {
			return nil, fmt.Errorf("--metadata %q: %w", m, err)
		}
		request.Metadata[path] = value
	}
	if f.RemoteAddress != "" {
		var err error
		request.RemoteAddress, err = netip.ParseAddr(f.RemoteAddress)
		if err != nil {
			return nil, fmt.Errorf("--remote-address %q: want an IP address, such as 192.0.2.1", f.RemoteAddress)
		}
	}
	return request, nil
}
