package suggest

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrNoYAML is the error of a report without a recommendation, or with those of several domains, which need a file each.
var ErrNoYAML = errors.New("no YAML")

// WriteYAML writes the recommendations as rules. The reasons are comments.
func (r *Report) WriteYAML(out io.Writer) error {
	domains := r.domains()
	switch len(domains) {
	case 0:
		return fmt.Errorf("%w: there is no recommendation; -o text shows the reasons", ErrNoYAML)
	case 1:
		_, err := io.WriteString(out, r.yaml(domains[0], true))
		return err
	}
	return fmt.Errorf("%w: the recommendations are for several domains, and each needs a file: choose one of %q with --domain", ErrNoYAML, domains)
}

// domains returns the domains with recommendations.
func (r *Report) domains() (names []string) {
	for i := range r.Rules {
		if rule := &r.Rules[i]; len(rule.Recommendations) > 0 && !slices.Contains(names, rule.Domain) {
			names = append(names, rule.Domain)
		}
	}
	return names
}

// A yamlNode is a descriptor in YAML.
type yamlNode struct {
	text     string // its lines, without indentation
	children []*yamlNode
}

func (n *yamlNode) child(text string) *yamlNode {
	for _, c := range n.children {
		if c.text == text {
			return c
		}
	}
	c := &yamlNode{text: text}
	n.children = append(n.children, c)
	return c
}

// yaml returns the rules of one domain.
func (r *Report) yaml(domain string, reasons bool) string {
	root := &yamlNode{}
	limits := map[*yamlNode]string{}
	for i := range r.Rules {
		rule := &r.Rules[i]
		if rule.Domain != domain || len(rule.Recommendations) == 0 {
			continue
		}
		node := root
		for _, level := range rule.target.rule.Levels() {
			node = node.child(yamlLevel(&level))
		}
		limits[node] = rule.yamlLimits(reasons)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\n", scalar(domain))
	root.write(&b, "", limits)
	return b.String()
}

func (n *yamlNode) write(b *strings.Builder, indent string, limits map[*yamlNode]string) {
	for line := range strings.Lines(limits[n]) {
		b.WriteString(indent + line)
	}
	if len(n.children) == 0 {
		return
	}
	b.WriteString(indent + "descriptors:\n")
	for _, c := range n.children {
		first := "  - "
		for line := range strings.Lines(c.text) {
			b.WriteString(indent + first + line)
			first = "    "
		}
		c.write(b, indent+"    ", limits)
	}
}

// yamlLevel returns the lines of a descriptor that say what it matches.
func yamlLevel(l *descriptors.Level) string {
	text := "key: " + scalar(l.Key) + "\n"
	var list []string
	for _, v := range l.Values {
		list = append(list, scalar(v))
	}
	for _, p := range l.Prefixes {
		list = append(list, strconv.Quote(p.String()))
	}
	switch {
	case len(l.Values) > 0:
		text += "values: [" + strings.Join(list, ", ") + "]\n"
	case len(l.Prefixes) > 0:
		text += "cidr: [" + strings.Join(list, ", ") + "]\n"
	case l.Value != "":
		text += "value: " + scalar(l.Value) + "\n"
	}
	if l.ShareThreshold {
		text += "share_threshold: true\n"
	}
	return text
}

// yamlLimits returns the lines of the limits of a rule.
func (r *Rule) yamlLimits(reasons bool) string {
	var b strings.Builder
	indent, item := "", "rate_limit: "
	if len(r.Recommendations) > 1 {
		b.WriteString("rate_limits:\n")
		indent, item = "  ", "- "
	}
	for i := range r.Recommendations {
		rec := &r.Recommendations[i]
		for _, reason := range rec.Reasons {
			if reasons {
				b.WriteString(indent + "# " + reason + "\n")
			}
		}
		b.WriteString(indent + item + rec.yaml() + "\n")
	}
	return b.String()
}

// yaml returns the limit as a mapping in one line.
func (r *Recommendation) yaml() string {
	var keys []string
	add := func(key, value string) { keys = append(keys, key+": "+value) }
	if r.Name != "" {
		add("name", scalar(r.Name))
	}
	if r.Algorithm != limiters.DefaultAlgorithm {
		add("algorithm", r.Algorithm)
	}
	add("unit", r.Unit)
	if r.Multiplier > 1 {
		add("unit_multiplier", fmt.Sprint(r.Multiplier))
	}
	add("requests_per_unit", fmt.Sprint(r.Limit))
	if counts := r.algorithm.variant.spec.CountDenied; counts != limiters.CountsDeniedByDefault(r.Algorithm) {
		add("count_denied", fmt.Sprint(counts))
	}
	for _, p := range limiters.Parameters(r.Algorithm) {
		if value := p.Text(r.algorithm.variant.params()); value != "" && !p.Hidden {
			add(p.Key, value)
		}
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// plainScalar matches texts that YAML reads as themselves, within braces too.
var plainScalar = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// scalar returns a text as YAML. A text that is no plain word is in double quotes.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null", ".nan", ".inf":
		return strconv.Quote(text)
	}
	if plainScalar.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}
