package rulesfile

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// envoysKeys are the default descriptor keys of Envoy's actions. A key precedes the keys that it
// begins with.
var envoysKeys = []string{"generic_key", "header_match", "query_match", "remote_address_match", "remote_address", "masked_remote_address",
	"source_cluster", "destination_cluster"}

// warnKey warns about keys that match in envoyproxy/ratelimit only because it joins key and value.
func (p *parser) warnKey(key *yaml.Node, spec descriptors.NodeSpec) {
	p.warnSpace(key, "key", spec.Key)
	if spec.Value != "" {
		return
	}
	for _, k := range envoysKeys {
		if spec.Key == k {
			break
		}
		if rest, joined := strings.CutPrefix(spec.Key, k+"_"); joined && rest != "" {
			p.warn(joinedKey, key,
				fmt.Sprintf("a key that begins with '%s_' does not match the key '%s' with a value, as it does in envoyproxy/ratelimit",
					k, k),
				fmt.Sprintf("write 'key: %s' and 'value: %s'", k, excerpt(rest)))
			break
		}
	}
	if strings.Contains(spec.Key, "*") && !strings.HasSuffix(spec.Key, "*") {
		p.warn(patternInKey, key,
			fmt.Sprintf("the pattern '%s' is matched against the key alone, with any value; "+
				"envoyproxy/ratelimit matches it against key and value joined by '_'",
				excerpt(spec.Key)),
			"write the pattern of the value in 'value'")
	}
}

// warnSpace warns about leading or trailing spaces.
func (r *reader) warnSpace(n *yaml.Node, what, text string) {
	trimmed := strings.TrimFunc(text, func(c rune) bool { return unicode.IsSpace(c) || unicode.Is(unicode.Cf, c) })
	if trimmed != text {
		r.warn(surroundingSpace, n,
			fmt.Sprintf("the %s %s begins or ends with a space, which requests hardly have", what, strconv.Quote(excerpt(text))),
			"write '"+excerpt(trimmed)+"'")
	}
}

// warnOctal warns about a number, read as v, that readers of YAML 1.2 read as another one.
func (r *reader) warnOctal(n *yaml.Node, key string, v int64) {
	decimal, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if err == nil && decimal != v {
		r.warn(octalNumber, n,
			fmt.Sprintf("the leading 0 makes %s octal: Weir reads %d, as YAML 1.1 does, but YAML 1.2 reads %d",
				excerpt(n.Value), v, decimal),
			fmt.Sprintf("write '%s: %d' or '%s: %d'", key, v, key, decimal))
	}
}

// warnValues warns about values that match no request as text. value is the node of a value outside
// a list.
func (p *parser) warnValues(value *yaml.Node, claims []claimAt) {
	for _, c := range claims {
		if c.prefix.IsValid() {
			continue
		}
		if c.list {
			value = c.node
		}
		// Envoy's masked_remote_address sends a prefix as text.
		if _, err := netip.ParsePrefix(c.Value); err == nil && c.Key != "masked_remote_address" {
			p.warn(prefixAsValue, value, fmt.Sprintf("the value '%s' is compared as text, and matches no address of this prefix", c.Value),
				fmt.Sprintf("write 'cidr: [%s]'", c.Value))
		}
		if a, err := netip.ParseAddr(c.Value); err == nil && a.String() != c.Value {
			p.warn(addressForm, value, fmt.Sprintf("the value '%s' is compared as text, and Envoy writes this address as '%s'", c.Value, a),
				fmt.Sprintf("write '%s', or 'cidr: [%s]'", a, netip.PrefixFrom(a.WithZone(""), a.BitLen())))
		}
		p.warnSpace(value, "value", c.Value)
		if remedy := templateRemedy(c.Key, c.Value); remedy != "" {
			p.warn(templateValue, value,
				fmt.Sprintf("the value '%s' looks like a template, and Weir compares it as text", excerpt(c.Value)),
				remedy)
			continue
		}
		if isRegex(c.Value) {
			p.warn(regexValue, value,
				fmt.Sprintf("the value '%s' looks like a regular expression, but only '*' has a meaning in it", excerpt(c.Value)),
				regexRemedy(c.Value))
		}
	}
}

var (
	envoyFormat  = regexp.MustCompile(`^%[A-Z_]+(?:\(.*\))?(?::\d+)?%$`) // %REQ(x-user-id)%
	unfilled     = regexp.MustCompile(`\$\{[^}]*\}|\{\{.*\}\}`)          // ${USER} {{ .Values.user }}
	pathVariable = regexp.MustCompile(`/(?:\{[^/{}]*\}|:[A-Za-z_]\w*)`)  // /user/{id} /user/:id
)

// templateRemedy returns advice for a value that looks like a template; "" for other values.
func templateRemedy(key, value string) string {
	switch {
	case envoyFormat.MatchString(value):
		return "remove the value: each value that Envoy sends then has a counter of its own"
	case unfilled.MatchString(value):
		return "write the value itself: fill in the template before Weir reads the file"
	// Under other keys, /user/{id} may be the name of a route.
	case strings.TrimPrefix(strings.ToLower(key), ":") == "path" && pathVariable.MatchString(value):
		return `write value: "` + excerpt(pathVariable.ReplaceAllString(value, "/*")) + `"`
	}
	return ""
}

// regexes match texts that are probably regular expressions rather than values of requests. They do
// not match "index.*", because '*' is a wildcard.
var regexes = []*regexp.Regexp{
	regexp.MustCompile(`^\^|^/.*\$$|[*+)\]]\$$`),   // anchors
	regexp.MustCompile(`(?:^|/)\.\*|\.\+`),         // any characters: .* /.* .+
	regexp.MustCompile(`\\[dDwWsSbB./]`),           // classes and escaped characters: \d \.
	regexp.MustCompile(`\[[^\]]+\](?:[+*?]|\{\d)`), // [a-z]+ [0-9]{3}
	regexp.MustCompile(`\([^()]*\|[^()]*\)|\(\?`),  // (a|b) (?i)
}

func isRegex(value string) bool {
	return slices.ContainsFunc(regexes, func(r *regexp.Regexp) bool { return r.MatchString(value) })
}

// regexRemedy returns the advice for a value that looks like a regular expression.
func regexRemedy(value string) string {
	pattern, anchored := strings.CutPrefix(value, "^")
	pattern, ends := strings.CutSuffix(pattern, "$")
	pattern = strings.NewReplacer(".*", "*", ".+", "*", `\.`, ".", `\/`, "/").Replace(pattern)
	if strings.ContainsAny(pattern, `\[](){}|+?^$"`) || pattern == "" {
		return "write '*' for any characters, or a rule for each value"
	}
	if anchored && !ends && !strings.HasSuffix(pattern, "*") {
		pattern += "*"
	}
	return `write value: "` + excerpt(pattern) + `"`
}
