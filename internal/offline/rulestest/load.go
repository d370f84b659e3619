package rulestest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// Load reads a file of tests and the rules that it names. The error is [rulesfile.Faults] of the
// tests or the rules, or the error of an unreadable file.
func Load(name string) (*Suite, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	p := parse(rulesfile.File{Name: name, Data: data})
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := p.loadRules(); err != nil {
		return nil, err
	}
	return p.suite, nil
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, sources.MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > sources.MaxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes, the maximum for a test file: split it", name, sources.MaxFileBytes)
	}
	return data, nil
}

// loadRules reads the rules of the file, and sets the domains that the file omits.
func (p *parser) loadRules() error {
	s := p.suite
	files, overlay := p.readFiles(s.rules, "rules"), p.readFiles(s.overlay, "overlay")
	if err := p.Err(); err != nil {
		return err
	}
	var err error
	s.Rules, err = build(rulesfile.Options{MergeDomains: s.merge, CalendarMonths: s.server.CalendarMonths}, files, overlay)
	if err != nil {
		return err
	}
	p.setDomains()
	return p.Err()
}

// readFiles returns the files of paths, which are relative to the file of the tests.
func (p *parser) readFiles(paths []path, what string) []rulesfile.File {
	var all []rulesfile.File
	for _, path := range paths {
		name := path.text
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(p.suite.File), name)
		}
		files, err := sources.Read(name)
		if err != nil {
			p.Fault(path.node, fmt.Sprintf("cannot read the %s: %v", what, err),
				"write the path of a file or folder, relative to this file")
		}
		all = append(all, files...)
	}
	for _, file := range all {
		p.suite.Inputs = append(p.suite.Inputs, file.Name)
	}
	return all
}

// setDomains sets the domain of requests that have none.
func (p *parser) setDomains() {
	names := p.suite.Rules.DomainNames()
	for _, t := range p.suite.Tests {
		for _, s := range t.Steps {
			if s.request.Domain != "" {
				continue
			}
			if len(names) != 1 {
				p.FaultAt(s.Line,
					fmt.Sprintf("the request has no domain, and the rules have %d: %s", len(names), strings.Join(names, ", ")),
					"add 'domain:' to the file, the test or the request")
				return
			}
			s.request.Domain = names[0]
		}
	}
}

// InitOptions names the rules for [Init], and configures how they are read.
type InitOptions struct {
	Rules, Overlay               string // paths of files or folders; the overlay may be ""
	MergeDomains, CalendarMonths bool
}

// load reads the rules.
func (o *InitOptions) load() (*descriptors.Rules, error) {
	files, err := sources.Read(o.Rules)
	var overlay []rulesfile.File
	if err == nil && o.Overlay != "" {
		overlay, err = sources.Read(o.Overlay)
	}
	if err != nil {
		return nil, err
	}
	return build(rulesfile.Options{MergeDomains: o.MergeDomains, CalendarMonths: o.CalendarMonths}, files, overlay)
}

// build parses rules with their overlay, if there is one.
func build(o rulesfile.Options, files, overlay []rulesfile.File) (rules *descriptors.Rules, err error) {
	if len(overlay) > 0 {
		o.Overlay, err = rulesfile.ParseOverlay(overlay...)
		if err != nil {
			return nil, err
		}
	}
	rules, _, err = rulesfile.ParseWith(o, files...)
	return rules, err
}
