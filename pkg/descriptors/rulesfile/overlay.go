package rulesfile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// An Overlay sets the algorithm and other settings of limits that do not set their own, such as
// limits by xDS. It is immutable and safe for concurrent use. The zero value sets nothing.
type Overlay struct {
	rules    *descriptors.Rules // index of the keys of limits; no Rule has limits
	limits   map[*descriptors.Rule]*limitSettings
	defaults map[string]descriptors.Defaults // by domain
	warnings []Diagnostic
	ignores  []ignore
}

var (
	overlaySchema = &MapSchema{Name: "an overlay", Keys: fileSchema.Keys}
	// A descriptor of an overlay has only keys that match.
	overlayDescriptorSchema = &MapSchema{
		Name: "a descriptor of an overlay", Keys: []string{"key", "value", "values", "cidr", "rate_limit", "descriptors"},
	}
	overlayLimitSchema = &MapSchema{Name: "a rate_limit of an overlay", Keys: append(slices.Clone(settingKeys), "requests_per_unit")}
)

// OverlayKeys returns the keys that a rate_limit of an overlay may have.
func OverlayKeys() []string { return slices.Clone(overlayLimitSchema.Keys) }

// ParseOverlay parses files, one for each domain. They have the shape of rules, but a rate_limit
// may have only requests_per_unit and the keys that Weir adds. A non-nil error is [Faults].
func ParseOverlay(files ...File) (*Overlay, error) {
	o := &Overlay{limits: map[*descriptors.Rule]*limitSettings{}, defaults: map[string]descriptors.Defaults{}}
	builder, domains := descriptors.NewBuilder(), map[string]string{}
	var faults []Diagnostic
	for _, f := range files {
		p := overlayParser{newReader(f), o, builder, domains}
		if root := p.readRoot(f.Data); root != nil {
			p.readFile(root)
		}
		faults = append(faults, p.faults...)
		o.warnings, o.ignores = append(o.warnings, p.warnings...), append(o.ignores, p.ignores...)
	}
	if len(faults) > 0 {
		return nil, sortedFaults(faults)
	}
	o.rules = builder.Build()
	return o, nil
}

// completeDomain sets on_store_error and on_deny of a domain whose rules omit them.
func (o *Overlay) completeDomain(domain string, b *descriptors.Builder) {
	set, missing := b.Defaults(domain), o.defaults[domain]
	set.OnStoreError, set.OnDeny = cmp.Or(set.OnStoreError, missing.OnStoreError), cmp.Or(set.OnDeny, missing.OnDeny)
}

// warn returns the warnings of the overlay, and one for each limit that matched no rule.
func (o *Overlay) warn(applied map[*limitSettings]bool) []Diagnostic {
	all := slices.Clone(o.warnings)
	for _, s := range o.limits {
		if !applied[s] {
			all = append(all, Diagnostic{s.file, s.at.Line, s.at.Column, overlayWithoutEffect,
				"the overlay has no effect here, because it matches no rate_limit of the rules", "correct its keys and values, or remove it"})
		}
	}
	return all
}

// An overlayParser adds the rules of one file to an overlay.
type overlayParser struct {
	reader
	overlay *Overlay
	builder *descriptors.Builder
	domains map[string]string // the file of each domain
}

func (p *overlayParser) readFile(root *yaml.Node) {
	f, ok := p.readFields(root, overlaySchema)
	if !ok {
		return
	}
	domain, ok := p.readText(f.get("domain"))
	switch first, taken := p.domains[domain]; {
	case !ok:
	case domain == "":
		p.fault(f.value("domain"), noDomain, domainRemedy)
	case taken:
		p.fault(f.value("domain"), fmt.Sprintf("duplicate domain '%s' in overlay: %s has it too", excerpt(domain), first),
			"put all its descriptors in one file")
	default:
		p.domains[domain] = p.file
		p.overlay.defaults[domain] = descriptors.Defaults{
			OnStoreError: limiters.ParseOnStoreError(p.readOnStoreError(f.get("on_store_error"))), OnDeny: p.readOnDeny(f.get("on_deny")),
		}
	}
	p.readDescriptors(f.get("descriptors"), p.builder.Domain(domain))
}

func (p *overlayParser) readDescriptors(list field, at *descriptors.Node) {
	taken := map[claim]position{}
	p.eachDescriptor(list, overlayDescriptorSchema, func(f fields) {
		spec, claims := p.readNodeSpec(f)
		child := at.Add(spec)
		p.recordClaims(claims, taken, func(name string) string { return "'" + excerpt(name) + "'" })
		if !p.warnIfEmpty(f.get("rate_limit")) {
			p.readLimit(f.value("rate_limit"), child)
		}
		p.readDescriptors(f.get("descriptors"), child)
	})
}

func (p *overlayParser) readLimit(n *yaml.Node, at *descriptors.Node) {
	f, ok := p.readFields(n, overlayLimitSchema)
	if !ok {
		return
	}
	s := p.readLimitSettings(f)
	if r := f.get("requests_per_unit"); !p.isUnset(r) {
		s.settings["requests_per_unit"] = setting{r.key, strconv.FormatInt(p.readNumber(r, 0, limiters.LargestMax, 0), 10)}
	}
	p.overlay.limits[at.SetRule(descriptors.Rule{Unlimited: true})] = s
	if f.has("algorithm") { // else the rules may set it
		p.checkApplicable(s, s, "")
	}
}
