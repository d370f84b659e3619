package envoygen

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
)

//go:embed templates
var files embed.FS

// templates returns the templates. A template renders another one by include. They are parsed at
// their first use, because a server has none.
var templates = sync.OnceValue(func() *template.Template {
	all := template.New("")
	all.Funcs(template.FuncMap{
		"scalar": rulesyaml.Quoted, "item": item,
		"include": func(name string, data any) (string, error) { return render(all, name, data) },
	})
	return template.Must(all.ParseFS(files, "templates/*.yaml"))
})

// Bootstrap returns a complete Envoy configuration.
func (c *Config) Bootstrap() ([]byte, error) {
	if c.o.Upstream == "" {
		return nil, errors.New("want the address of the service that is limited: set --upstream host:port")
	}
	return c.execute("bootstrap.yaml")
}

// Part returns one part of a bootstrap: the filters, a virtual host, or the cluster.
func (c *Config) Part(name string) ([]byte, error) {
	if parts := []string{"filter", "route", "cluster"}; !slices.Contains(parts, name) {
		return nil, fmt.Errorf("no part %s: write %s", name, strings.Join(parts, ", "))
	}
	return c.execute(name + ".yaml")
}

// EnvoyFilter returns an EnvoyFilter for Istio.
func (c *Config) EnvoyFilter() ([]byte, error) { return c.execute("envoyfilter.yaml") }

// A page holds the values that the templates show.
type page struct {
	features
	RetryAfter        bool // Envoy has enable_retry_after_header
	Routes            []pageRoute
	DomainText        string
	MaxStreamDuration string
	Timeout           string
	FailureModeDeny   bool
	TrustedHops       int
	Service, Upstream endpoint
	Registry          string // the cluster in Istio's registry; "" if the service is outside of the mesh
	Cluster           string
	Namespace         string
	Label, LabelValue string
	Context           string
	Filters           []string // the names of their templates
}

// A pageRoute holds the rate limits of a route, "" without any.
type pageRoute struct{ Match, RateLimits string }

// An endpoint is an address of a cluster.
type endpoint struct{ Host, Port string }

// Type returns the type of a cluster with the endpoint.
func (e endpoint) Type() string {
	if net.ParseIP(e.Host) != nil {
		return "STATIC"
	}
	return "STRICT_DNS"
}

func (c *Config) execute(name string) ([]byte, error) {
	p := page{
		features: c.features, RetryAfter: name != "envoyfilter.yaml",
		DomainText: rulesyaml.Quoted(c.domain),
		Timeout:    seconds(cmp.Or(c.o.Timeout, 100*time.Millisecond)), FailureModeDeny: c.o.FailureModeDeny, TrustedHops: c.o.TrustedHops,
		Cluster: "weir", Namespace: cmp.Or(c.o.Namespace, "istio-system"), Context: cmp.Or(c.o.Context, "GATEWAY"),
		Filters: []string{"ratelimit.yaml"},
	}
	if c.Leases {
		p.Filters = []string{"id.yaml", "ratelimit.yaml"}
	}
	p.Service.Host, p.Service.Port, _ = net.SplitHostPort(c.o.Service)
	p.Upstream.Host, p.Upstream.Port, _ = net.SplitHostPort(c.o.Upstream)
	p.Label, p.LabelValue, _ = strings.Cut(cmp.Or(c.o.Selector, "istio=ingressgateway"), "=")
	if name == "envoyfilter.yaml" && strings.HasSuffix(p.Service.Host, ".svc.cluster.local") {
		p.Registry = "outbound|" + p.Service.Port + "||" + p.Service.Host
		p.Cluster = p.Registry
	}
	if c.leaseTTL > 0 {
		// A request must end before its lease expires.
		p.MaxStreamDuration = seconds(max((c.leaseTTL * 5 / 6).Truncate(time.Millisecond), time.Millisecond))
	}
	if name != "envoyfilter.yaml" {
		if err := c.checkPrefixes(&p); err != nil {
			return nil, err
		}
	}
	for _, r := range c.routes {
		all, err := c.rateLimitsOf(r)
		if err != nil {
			return nil, err
		}
		text, err := textOf(all)
		if err != nil {
			return nil, err
		}
		p.Routes = append(p.Routes, pageRoute{r.match, text})
	}
	text, err := render(templates(), name, &p)
	return []byte(text), err
}

// checkPrefixes returns an error for a route that is not the prefix of a path. A prefix needs paths
// in normal form.
func (c *Config) checkPrefixes(p *page) error {
	for _, r := range c.routes {
		if r.match == "" {
			continue
		}
		if !strings.HasPrefix(r.match, "/") || strings.ContainsAny(r.match, "?#") {
			return fmt.Errorf("--route %q: write a prefix of a path, such as /login, before the colon", r.match)
		}
		p.Path = true
	}
	return nil
}

// render returns the text of a template.
func render(from *template.Template, name string, data any) (string, error) {
	var b strings.Builder
	err := from.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

// seconds returns a duration as Envoy reads it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

// item moves lines to the right, except the first, which is indented already. It omits the last
// line break.
func item(columns int, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString(strings.Repeat(" ", columns))
		}
		b.WriteString(line)
	}
	return strings.TrimSpace(b.String())
}

// textOf returns rate_limits as YAML.
func textOf(all []rateLimit) (string, error) {
	var b strings.Builder
	commented := map[string]bool{}
	for _, l := range all {
		fmt.Fprintf(&b, "# %s\n- actions:\n", l.comment)
		for i, a := range l.config.GetActions() {
			text, err := block(a)
			if err != nil {
				return "", err
			}
			if i < len(l.notes) && l.notes[i] != "" && !commented[l.notes[i]] {
				commented[l.notes[i]] = true
				fmt.Fprintf(&b, "    # %s\n", l.notes[i])
			}
			b.WriteString("    - " + item(6, text) + "\n")
		}
		if h := l.config.GetHitsAddend(); h != nil {
			text, err := block(h)
			if err != nil {
				return "", err
			}
			b.WriteString("  hits_addend: " + text)
		}
		if l.config.GetApplyOnStreamDone() {
			b.WriteString("  apply_on_stream_done: true\n")
		}
	}
	return b.String(), nil
}

// block returns a message as YAML: each field on a line of its own, with its value in braces.
func block(m proto.Message) (string, error) {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return "", err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(escaped(data), &doc); err != nil {
		return "", err
	}
	plainStyle(&doc)
	fields := doc.Content[0]
	if len(fields.Content) == 2 && fields.Content[1].Kind == yaml.MappingNode {
		fields.Content[1].Style = yaml.FlowStyle
		text, err := yaml.Marshal(&doc)
		const longest = 130
		if err != nil || len(text) <= longest {
			return string(text), err
		}
		fields.Content[1].Style = 0
	} else {
		fields.Style = yaml.FlowStyle
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err = e.Encode(&doc)
	return b.String(), err
}

// escaped escapes characters of a JSON text that YAML does not allow or reads as line breaks.
func escaped(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		if r >= 0x7f && r <= 0xffff && !unicode.IsPrint(r) {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// isBoolean matches texts that are booleans in YAML 1.1. The encoder writes YAML 1.2, but Envoy and
// Istio read 1.1.
var isBoolean = regexp.MustCompile(`^(?i:y|yes|n|no|on|off)$`)

// plainStyle removes the braces and quotes of JSON. The encoder quotes what else needs it. Line
// breaks are quoted, because a literal block would lose those at its end in a template.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	if n.Value == "@type" || n.Tag == "!!str" && (isBoolean.MatchString(n.Value) || strings.ContainsAny(n.Value, "\n"+rulesyaml.LineSeparators)) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for i, child := range n.Content {
		plainStyle(child)
		// JSON has numbers of 64 bits as texts.
		if i%2 == 1 && n.Kind == yaml.MappingNode && n.Content[i-1].Value == "number" {
			child.Tag = "!!int"
		}
	}
}
