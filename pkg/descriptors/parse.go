package descriptors

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Parse reads files, one domain each. The error is [Faults]: everything that is wrong with them.
func Parse(files ...File) (*Rules, error) {
	rules := &Rules{domains: map[string]*node{}}
	homes := map[string]string{}
	var faults Faults
	for _, f := range files {
		p := parser{reader: reader{file: f.Name}, rules: rules, homes: homes}
		p.parse(f.Data)
		faults = append(faults, p.faults...)
		rules.warnings = append(rules.warnings, p.warnings...)
	}
	if len(faults) > 0 {
		faults.sort()
		return nil, faults
	}
	rules.warnings.sort()
	return rules, nil
}

// A parser adds what one file says to rules.
type parser struct {
	reader
	rules *Rules
	homes map[string]string // the file of each domain
}

func (p *parser) parse(data []byte) {
	root, more, err := decode(data)
	if err != nil {
		line := 1
		// The library tells a place in its text alone. Where it tells none, the place is the first line.
		_, _ = fmt.Sscanf(err.Error(), "yaml: line %d:", &line)
		p.fault(&yaml.Node{Line: line, Column: 1}, "error loading config file: %v", err)
		return
	}
	if more != nil {
		p.warn(more, "the file has several YAML documents: only the first counts; put each in a file of its own")
	}
	if root == nil || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		p.fault(root, noDomain)
		return
	}
	p.top(root)
}

// decode gives the root of the first document, nil if there is none, and where another begins, nil if nowhere.
func decode(data []byte) (root, more *yaml.Node, err error) {
	defer func() {
		// The library reports what it thinks impossible by a panic. No file may stop the server.
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
	// What follows the first document need not be valid: nothing reads it.
	if d.Decode(&second) == nil {
		more = &second
	}
	return root, more, nil
}
