package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/cli"
)

// endless is a file without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestTooLargeInputIsAnErrorWithARemedy(t *testing.T) {
	streams := cli.Streams{In: endless{}, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}
	explain := func(set func(*cli.Explain)) error {
		e := &cli.Explain{}
		e.Config = []string{"../../envoy/rules.yaml"}
		set(e)
		return e.Run(context.Background(), streams)
	}
	for name, c := range map[string]struct {
		run  func() error
		want string
	}{
		"weir import": {func() error {
			c := &cli.ImportNginx{}
			c.File = "-"
			return c.Run(streams)
		}, "standard input has more than 4194304 bytes: pass only the part that has the limits"},
		"weir explain --request": {func() error {
			return explain(func(e *cli.Explain) { e.Request = "-" })
		}, "standard input has more than 262144 bytes: write fewer descriptors"},
		"weir explain --envoy": {func() error {
			return explain(func(e *cli.Explain) { e.Envoy = "-" })
		}, "standard input has more than 16777216 bytes: pass only the route configuration, the virtual host or the route"},
		"weir explain --config -": {func() error {
			return explain(func(e *cli.Explain) { e.Config = []string{"-"}; e.Descriptors = []string{"a=b"} })
		}, "standard input has more than 16777216 bytes: split the rules into several files"},
	} {
		errs := streams.Err.(*bytes.Buffer)
		errs.Reset()
		if code := cli.ExitCode(c.run(), errs); code != 2 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit code %d, printed %q, want %q", name, code, errs, c.want)
		}
	}
}
