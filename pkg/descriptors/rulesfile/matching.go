package rulesfile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A claim is an entry, or a key and a prefix, that a descriptor matches. Claims are unique among
// siblings.
type claim struct {
	descriptors.Entry
	prefix netip.Prefix // the zero Prefix in an entry; else Value is its text
}

// A claimAt is a claim with its node.
type claimAt struct {
	claim
	node *yaml.Node
	list bool // the node is an item of a list
}

// recordClaims adds claims to taken, those of the siblings. It records a fault for each claim that
// a sibling has, in which describe names the descriptor, and returns the other claims.
func (r *reader) recordClaims(claims []claimAt, taken map[claim]position, describe func(name string) string) (added []claimAt) {
	for _, c := range claims {
		first, twice := taken[c.claim]
		if !twice {
			taken[c.claim], added = r.positionOf(c.node), append(added, c)
			continue
		}
		remedy := "merge them"
		if c.list {
			remedy = "remove one"
		}
		r.fault(c.node, fmt.Sprintf("duplicate descriptor %s: %s has it too", describe(c.Joined()), r.positionText(first)), remedy)
	}
	return added
}

// readNodeSpec reads the keys of a descriptor that configure its node, and returns its claims. It
// returns no claims if the key or the value is faulty.
func (r *reader) readNodeSpec(f fields) (spec descriptors.NodeSpec, claims []claimAt) {
	misspelled := !f.has("key") && r.faulty(f)
	key, keyOK := r.readText(f.get("key"))
	value, valueOK := r.readNodeValue(f.get("value"))
	spec.Entry = descriptors.Entry{Key: key, Value: value}
	if keyOK && key == "" && !misspelled {
		r.fault(cmp.Or(f.value("key"), f.at), "descriptor has empty key", "write 'key: <name>'")
	}
	given := slices.DeleteFunc([]string{"value", "values", "cidr"}, func(name string) bool { return !f.has(name) })
	if len(given) > 1 {
		r.fault(f.key(given[1]), fmt.Sprintf("'%s' and '%s' are both given", given[0], given[1]),
			"keep one, or write a descriptor for each")
	}
	if !f.has("values") && !f.has("cidr") {
		claims = append(claims, claimAt{claim: claim{Entry: spec.Entry}, node: f.key("key")})
	}
	entry := func(value string) descriptors.Entry { return descriptors.Entry{Key: key, Value: value} }
	for _, item := range r.readItems(f.get("values"), "value") {
		if value, ok := r.readListedValue(item); ok {
			spec.Values = append(spec.Values, value)
			claims = append(claims, claimAt{claim: claim{Entry: entry(value)}, node: item, list: true})
		}
	}
	for _, item := range r.readItems(f.get("cidr"), "prefix") {
		if prefix, ok := r.readPrefix(item); ok {
			spec.Prefixes = append(spec.Prefixes, prefix)
			claims = append(claims, claimAt{claim: claim{entry(prefix.String()), prefix}, node: item, list: true})
		}
	}
	for _, name := range []string{"values", "cidr"} {
		if f.has(name) && strings.Contains(key, "*") {
			r.fault(f.value("key"), fmt.Sprintf("a key with a '*' cannot have '%s'", name), "write a descriptor for each key")
		}
	}
	spec.ShareThreshold, spec.ValueToMetric = r.readLenientBool(f.get("share_threshold")), r.readLenientBool(f.get("value_to_metric"))
	if spec.ShareThreshold && !spec.IsShareable() && !f.has("values") && !f.has("cidr") {
		r.fault(f.key("share_threshold"),
			fmt.Sprintf("share_threshold can only be used with wildcard values (containing '*'), but found key '%s'", excerpt(spec.Joined())),
			"remove it, or write a '*' in the value, or use 'values' or 'cidr'")
	}
	if key == "" || !valueOK {
		return spec, nil
	}
	return spec, claims
}

// readNodeValue is [reader.readText] for the value of a descriptor. A list belongs to its key
// 'values'.
func (r *reader) readNodeValue(f field) (string, bool) {
	if n, ok := r.valueOf(f); ok && n.Kind == yaml.SequenceNode {
		r.fault(n, "'value' is a list, not a text", "write 'values' for a list")
		return "", false
	}
	return r.readText(f)
}

// readItems returns the items of a list of scalars, which must not be empty.
func (r *reader) readItems(f field, item string) []*yaml.Node {
	n, ok := r.valueOf(f)
	switch {
	case !ok:
		return nil
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0, n.ShortTag() == "!!null":
		r.fault(n, fmt.Sprintf("'%s' is empty", f.key.Value), "add a "+item)
		return nil
	}
	remedy := listRemedy
	if n.Kind == yaml.ScalarNode {
		remedy = "write '" + f.key.Value + ": [" + excerptOf(n) + "]'"
	}
	return r.readSequence(n, f.key.Value, remedy)
}

// readListedValue reads an item of values.
func (r *reader) readListedValue(n *yaml.Node) (string, bool) {
	value, ok := r.readTextOf(n, "an item of 'values'")
	switch {
	case !ok:
	case value == "":
		r.fault(n, "an item of 'values' is empty", "write a value, or remove the item")
	case strings.Contains(value, "*"):
		r.fault(n, fmt.Sprintf("the item '%s' of 'values' has a '*', and values are compared as they are", excerpt(value)),
			"write 'value: \""+excerpt(value)+"\"' in a descriptor of its own")
	default:
		return value, true
	}
	return "", false
}

// readPrefix reads an item of cidr. An IPv4-mapped prefix is returned as IPv4.
func (r *reader) readPrefix(n *yaml.Node) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(n.Value); err == nil && a.Zone() == "" {
		a = a.Unmap()
		r.fault(n, fmt.Sprintf("the address %s has no prefix length", excerpt(n.Value)),
			"write '"+netip.PrefixFrom(a, a.BitLen()).String()+"'")
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(n.Value)
	if err != nil {
		r.fault(n, fmt.Sprintf("an item of 'cidr' is %s, not a prefix", describe(n)),
			"want an address and a length, such as 10.0.0.0/8 or 2001:db8::/32")
		return netip.Prefix{}, false
	}
	const mapped = 128 - 32 // bits before the IPv4 address
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	if masked := p.Masked(); masked != p {
		r.fault(n, fmt.Sprintf("the prefix %s has address bits beyond its length", excerpt(n.Value)),
			"write '"+masked.String()+"' for the network, or '"+netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String()+"' for the address")
		return netip.Prefix{}, false
	}
	return p, true
}
