package rulesfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// Options configures [ParseWith]. The zero value is the default.
type Options struct {
	// MergeDomains allows several files with one domain. Descriptors of later files follow those of
	// earlier ones.
	MergeDomains bool
	// CalendarMonths makes month a calendar month in UTC for fixed windows without window_start.
	CalendarMonths bool
	// ReplicasUnknown enables the warning about on_store_error: local without a known number of
	// replicas.
	ReplicasUnknown bool
	// Overlay sets Weir's own keys in limits that omit them. It may be nil.
	Overlay *Overlay
}

// Parse is [ParseWith] with default options and without warnings.
func Parse(files ...File) (*descriptors.Rules, error) {
	rules, _, err := ParseWith(Options{}, files...)
	return rules, err
}

// ParseWith parses files, one for each domain unless o merges domains. The order of files is
// significant for wildcards of merged domains. Warnings are probable mistakes in valid rules,
// sorted by file, line and column. A non-nil error is [Faults], with every fault of the files.
func ParseWith(o Options, files ...File) (rules *descriptors.Rules, warnings []Diagnostic, err error) {
	if o.Overlay == nil {
		o.Overlay = &Overlay{}
	}
	b := &build{
		options: o, builder: descriptors.NewBuilder(), domains: map[string]*domainTree{}, names: map[nameIn]position{},
		applied: map[*limitSettings]bool{},
	}
	parsers := make([]*parser, len(files))
	var faults []Diagnostic
	for i, f := range files {
		p := &parser{newReader(f), b}
		parsers[i] = p
		if root := p.readRoot(f.Data); root != nil {
			p.readFile(root)
		}
		if faults = append(faults, p.faults...); len(faults) >= maxFaults {
			break
		}
	}
	if len(faults) > 0 {
		return nil, nil, sortedFaults(faults)
	}
	for domain := range b.domains {
		o.Overlay.completeDomain(domain, b.builder)
	}
	rules = b.builder.Build()
	for _, check := range b.checks {
		check()
	}
	b.lint()
	comments := slices.Clone(o.Overlay.ignores)
	for _, p := range parsers {
		warnings, comments = append(warnings, p.warnings...), append(comments, p.ignores...)
	}
	warnings = append(warnings, o.Overlay.warn(b.applied)...)
	var unchecked []string
	if !o.ReplicasUnknown {
		unchecked = []string{localWithoutReplicas}
	}
	return rules, silence(warnings, comments, unchecked...), nil
}

// A build collects the rules of all files.
type build struct {
	options Options
	builder *descriptors.Builder
	domains map[string]*domainTree  // by domain
	names   map[nameIn]position     // where each limit name first occurs
	applied map[*limitSettings]bool // parts of the overlay that matched a rule
	checks  []func()                // for warnings that need all files
}

type nameIn struct{ domain, name string }

// A parser adds the rules of one file to a build.
type parser struct {
	reader
	build *build
}

// deferCheck defers check until all files are read.
func (p *parser) deferCheck(check func()) { p.build.checks = append(p.build.checks, check) }

// readRoot parses data and returns the root of the first document; nil after a fault.
func (r *reader) readRoot(data []byte) *yaml.Node {
	root, more, err := decode(data)
	if err != nil {
		m := syntaxMistake(data, err)
		r.faultOf(syntax, &yaml.Node{Line: m.Line, Column: m.Column}, m.Message, m.Remedy)
		return nil
	}
	if more != nil {
		r.warn(droppedDocument, more, "only the first YAML document of a file is read, and this one is not",
			"put each document in a file of its own")
	}
	if root == nil || isNull(root) {
		r.fault(root, noDomain, domainRemedy)
		return nil
	}
	if kind := manifestKind(root); kind != "" {
		remedy := "want a file that begins with 'domain: <name>'"
		if kind == "ConfigMap" {
			remedy = "put the text of the key under data in a file of its own"
		}
		r.faultOf(kubernetesManifest, root, fmt.Sprintf("this is a Kubernetes manifest of the kind %s, not a rules file", excerpt(kind)),
			remedy)
		return nil
	}
	r.ignores = ignores(r.file, UTF8(data))
	return root
}

// manifestKind returns the kind of a Kubernetes manifest; "" for other files.
func manifestKind(root *yaml.Node) string {
	kind, version := "", false
	for i := 0; i+1 < len(root.Content) && root.Kind == yaml.MappingNode; i += 2 {
		switch root.Content[i].Value {
		case "kind":
			kind = root.Content[i+1].Value
		case "apiVersion":
			version = true
		}
	}
	if !version {
		return ""
	}
	return kind
}

// decode returns the root of the first document and the start of the second; nil for each that is
// absent.
func decode(data []byte) (root, more *yaml.Node, err error) {
	defer func() {
		// The YAML library panics on some malformed input, which must not crash the server.
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := d.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	if len(first.Content) > 0 {
		root = first.Content[0]
	}
	// The second document is not read, so it may be invalid.
	if d.Decode(&second) == nil {
		more = &second
	}
	return root, more, nil
}
