package rulesfile

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

const (
	noDomain     = "config file cannot have empty domain"
	domainRemedy = "write 'domain: <name>' at the top"
)

// A domainTree is the root of a domain's tree, with the file that first named the domain.
type domainTree struct {
	file         string
	root         *branch
	taken        claimSet
	onStoreError position // position of the domain's on_store_error
	onDeny       position // position of the domain's on_deny
}

// A claimSet holds the descriptors of one level, by claim and by their composite names in
// envoyproxy/ratelimit.
type claimSet struct {
	claims map[claim]position
	names  map[string]position
}

func newClaimSet() claimSet { return claimSet{map[claim]position{}, map[string]position{}} }

// A position is a line and a column of a file.
type position struct {
	file         string
	line, column int
}

func (r *reader) positionOf(n *yaml.Node) position { return position{r.file, n.Line, n.Column} }

func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

func (p *parser) readFile(root *yaml.Node) {
	f, ok := p.readFields(root, fileSchema)
	if !ok {
		return
	}
	domain, ok := p.readText(f.get("domain"))
	p.warnSpace(f.value("domain"), "domain", domain)
	// After a fault in the domain, its descriptors are still checked.
	to := &domainTree{
		file: p.file, root: &branch{node: p.build.builder.Domain(domain), domain: domain}, taken: newClaimSet(),
	}
	switch first := p.build.domains[domain]; {
	case !ok:
	case domain == "" && !f.has("domain") && p.faulty(f): // the key is probably misspelled
	case domain == "":
		p.fault(f.value("domain"), noDomain, domainRemedy)
	case first == nil:
		p.build.domains[domain] = to
	case p.build.options.MergeDomains:
		to = first
	case p.generated:
		p.fault(f.value("domain"),
			fmt.Sprintf("duplicate domain '%s' in config file: another resource, %s, has it too", excerpt(domain), first.file),
			"send one resource for each domain, or set MERGE_DOMAIN_CONFIG")
	default:
		p.fault(f.value("domain"), fmt.Sprintf("duplicate domain '%s' in config file: %s has it too", excerpt(domain), first.file),
			"put all its descriptors in one file, or set MERGE_DOMAIN_CONFIG")
	}
	p.readDomainOnStoreError(f.get("on_store_error"), to)
	p.readDomainOnDeny(f.get("on_deny"), to)
	p.readDescriptors(f.get("descriptors"), to.root, to.taken)
}

// readDomainOnStoreError reads on_store_error of a domain, on which its files must agree.
func (p *parser) readDomainOnStoreError(f field, tree *domainTree) {
	onStoreError := limiters.ParseOnStoreError(p.readOnStoreError(f))
	if onStoreError == limiters.OnStoreErrorUnset {
		return
	}
	defaults := p.build.builder.Defaults(tree.root.domain)
	if before := defaults.OnStoreError; before != limiters.OnStoreErrorUnset && before != onStoreError {
		p.fault(f.key, fmt.Sprintf("'on_store_error' is '%s' here and '%s' in %s", onStoreError, before, p.positionText(tree.onStoreError)),
			"set it once")
		return
	}
	defaults.OnStoreError, tree.onStoreError = onStoreError, p.positionOf(f.key)
}

// readDomainOnDeny reads on_deny of a domain, which only one of its files may have.
func (p *parser) readDomainOnDeny(f field, tree *domainTree) {
	response := p.readOnDeny(f)
	switch {
	case response == nil:
	case tree.onDeny.line > 0:
		p.fault(f.key, fmt.Sprintf("the domain has an 'on_deny' already, in %s", p.positionText(tree.onDeny)), "set it once")
	default:
		p.build.builder.Defaults(tree.root.domain).OnDeny = response
		tree.onDeny = p.positionOf(f.key)
	}
}

// maxComposite bounds a composite name in a message, in bytes.
const maxComposite = 500

// composite returns the name of a descriptor in messages of envoyproxy/ratelimit.
func (b *branch) composite() string {
	text := b.domain
	for _, e := range b.path {
		text += "." + e.Joined()
	}
	return text
}

func (p *parser) readDescriptors(list field, at *branch, taken claimSet) {
	p.eachDescriptor(list, descriptorSchema, func(f fields) { p.readDescriptor(f, at, taken) })
}

// readDescriptor reads a descriptor below at, with all descriptors below it.
func (p *parser) readDescriptor(f fields, at *branch, taken claimSet) {
	spec, claims := p.readNodeSpec(f)
	child := &branch{
		node: at.node.Add(spec), domain: at.domain, path: append(slices.Clip(at.path), spec.Entry),
		reader: &p.reader, key: f.key("key"), spec: spec, claims: claims,
	}
	if p.generated {
		child.node.SetSource(p.file, 0)
	} else {
		child.node.SetSource(p.file, f.at.Line)
		at.children = append(at.children, child)
	}
	p.nodes += len(child.path) / levelsPerNode
	if len(claims) > 0 {
		p.takeClaims(claims, at, taken)
		p.warnKey(f.key("key"), spec)
		p.warnValues(f.value("value"), claims)
	}
	rule := p.readRule(f, child)
	if rule != nil && rule.UsesLeases() {
		p.checkLeases(f, rule, child)
	}
	child.rule, child.hasLimits = rule, rule != nil && !rule.Unlimited
	p.readDescriptors(f.get("descriptors"), child, newClaimSet())
	at.hasLimits = at.hasLimits || child.hasLimits
	if child.node.IsEmpty() {
		p.deferCheck(func() {
			if !child.node.Exempts() {
				p.warn(ruleWithoutEffect, f.at, "the descriptor has neither a limit nor descriptors, and exempts nothing at its level",
					"add a 'rate_limit', or remove it")
			}
		})
	}
}

// readRule reads the limits and modifiers of a descriptor; nil if there are none.
func (p *parser) readRule(f fields, at *branch) *descriptors.Rule {
	rule := &descriptors.Rule{
		ShadowMode: p.readLenientBool(f.get("shadow_mode")), QuotaMode: p.readLenientBool(f.get("quota_mode")),
		DetailedMetric: p.readLenientBool(f.get("detailed_metric")), Metadata: p.readMetadata(f.get("metadata")),
	}
	p.readLimits(f, at, rule)
	if rule.Unlimited || len(rule.Limits) > 0 {
		return at.node.SetRule(*rule)
	}
	if f.has("rate_limit") || f.has("rate_limits") {
		return nil // a fault or warning has been recorded
	}
	set := modesOf(rule)
	set["metadata"] = len(rule.Metadata) > 0
	for name, isSet := range set {
		if isSet {
			p.deferCheck(func() {
				if !at.allBelow(name) {
					p.warn(modifierWithoutLimit, f.key(name), fmt.Sprintf("'%s' has no effect without a 'rate_limit' beside it", name),
						"move it beside the 'rate_limit', descriptors do not inherit it")
				}
			})
		}
	}
	return nil
}

// takeClaims is recordClaims for a set. It also warns about names that envoyproxy/ratelimit
// rejects.
func (p *parser) takeClaims(claims []claimAt, below *branch, taken claimSet) {
	added := p.recordClaims(claims, taken.claims, func(name string) string {
		return "composite key '" + descriptors.Truncate(below.composite()+"."+name, maxComposite) + "'"
	})
	for _, c := range added {
		if c.list {
			continue // envoyproxy/ratelimit has no lists
		}
		name := c.Joined()
		if first, twice := taken.names[name]; twice {
			p.warn(duplicateInRatelimit, c.node,
				fmt.Sprintf("envoyproxy/ratelimit rejects this as a duplicate of %s, because it joins key and value by '_'",
					p.positionText(first)),
				"Weir compares key and value separately, so nothing needs to change")
			continue
		}
		taken.names[name] = p.positionOf(c.node)
	}
}

// positionText returns p for a message about the file of r: "line 3", or "other.yaml:3".
func (r *reader) positionText(p position) string {
	if p.file == r.file {
		return fmt.Sprintf("line %d", p.line)
	}
	return p.String()
}

// allBelow reports whether there are limits below b and all of them have a modifier. Envoy Gateway
// sets shadow_mode at each level.
func (b *branch) allBelow(modifier string) bool {
	some := false
	for _, c := range b.children {
		if c.rule != nil && !modesOf(c.rule)[modifier] || len(c.children) > 0 && !c.allBelow(modifier) {
			return false
		}
		some = some || c.rule != nil || len(c.children) > 0
	}
	return some
}

// modesOf returns the modifiers of r that are true or false, by key.
func modesOf(r *descriptors.Rule) map[string]bool {
	return map[string]bool{"shadow_mode": r.ShadowMode, "quota_mode": r.QuotaMode, "detailed_metric": r.DetailedMetric}
}
