package cli

import (
	"fmt"

	"github.com/weir-rls/weir/internal/offline/rulesimport"
	"github.com/weir-rls/weir/internal/terminal"
)

// Import converts the limits of another rate limiter to rules.
type Import struct {
	Limitador    ImportLimitador    `cmd:"" help:"Import a limits file or a Limitador resource."`
	Nginx        ImportNginx        `cmd:"" help:"Import nginx's limit_req and limit_conn."`
	Kong         ImportKong         `cmd:"" help:"Import the rate-limiting plugins of a declarative Kong configuration."`
	EnvoyGateway ImportEnvoyGateway `cmd:"" name:"envoy-gateway" help:"Import the global limits of BackendTrafficPolicy resources."`
}

// Help returns the text after the flags in the command's help.
func (*Import) Help() string {
	return `Examples:
  weir import limitador limits.yaml > rules.yaml
  nginx -T | weir import nginx - > rules.yaml

The exit code is 0 if every limit was imported, 1 if Weir has no equivalent for a limit, and 2 after another error. With 1 and 2 nothing is
written. With --partial, Weir writes the limits that it can import and exits with 0.`
}

// The flags of all imports.
type importFlags struct {
	Domain  string `help:"The domain of the rules or, if the file has several, the one to write."`
	Partial bool   `help:"Write the limits that can be imported, and skip the others."`
	File    string `arg:"" optional:"" help:"The file. - is standard input."`
}

// missing returns an error with an example if the file is missing.
func (f *importFlags) missing(command, example string) error {
	if f.File == "" {
		return fmt.Errorf("needs a file, for example: weir import %s %s (- reads standard input)", command, example)
	}
	return nil
}

// run reads the file and prints the rules. It returns [Failed] if the rules would lack a limit; it
// then prints these limits and the notes, but no rules.
func (f *importFlags) run(streams Streams, read func(name string, data []byte) (*rulesimport.Imported, error)) error {
	name, data, err := readNamed(f.File, streams.In, rulesimport.MaxFile, "pass only the part that has the limits")
	if err != nil {
		return err
	}
	imported, err := read(name, data)
	if err != nil {
		return err
	}
	for _, note := range imported.Notes {
		printEscaped(streams.Err, "note:", terminal.Printable(note))
	}
	for _, p := range imported.Problems {
		printEscaped(streams.Err, "not imported:", terminal.Printable(p))
	}
	if len(imported.Problems) > 0 && !f.Partial {
		fmt.Fprintln(streams.Err, "nothing is written: add --partial to write the other limits")
		return Failed
	}
	text, err := imported.Rules(f.Domain)
	if err != nil {
		return err
	}
	_, err = streams.Out.Write(text)
	return err
}

// ImportLimitador imports limits of Limitador.
type ImportLimitador struct {
	importFlags `embed:""`
}

// Validate reports a missing file.
func (i *ImportLimitador) Validate() error { return i.missing("limitador", "limits.yaml") }

// Run writes the rules of a namespace.
func (i *ImportLimitador) Run(streams Streams) error { return i.run(streams, rulesimport.Limitador) }

// ImportNginx imports nginx limits.
type ImportNginx struct {
	importFlags `embed:""`
}

// Validate reports a missing file.
func (i *ImportNginx) Validate() error { return i.missing("nginx", "nginx.conf") }

// Run writes the rules of all zones.
func (i *ImportNginx) Run(streams Streams) error {
	return i.run(streams, func(name string, data []byte) (*rulesimport.Imported, error) {
		return rulesimport.Nginx(name, data, i.Domain)
	})
}

// ImportKong imports Kong limits.
type ImportKong struct {
	importFlags `embed:""`
}

// Validate reports a missing file.
func (i *ImportKong) Validate() error { return i.missing("kong", "kong.yaml") }

// Run writes the rules of all plugins.
func (i *ImportKong) Run(streams Streams) error {
	return i.run(streams, func(name string, data []byte) (*rulesimport.Imported, error) {
		return rulesimport.Kong(name, data, i.Domain)
	})
}

// ImportEnvoyGateway imports Envoy Gateway policies.
type ImportEnvoyGateway struct {
	importFlags `embed:""`
}

// Validate reports a missing file.
func (i *ImportEnvoyGateway) Validate() error { return i.missing("envoy-gateway", "policy.yaml") }

// Run writes the rules of a policy.
func (i *ImportEnvoyGateway) Run(streams Streams) error {
	return i.run(streams, rulesimport.EnvoyGateway)
}
